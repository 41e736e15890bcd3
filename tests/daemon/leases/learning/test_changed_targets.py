# SPDX-License-Identifier: Apache-2.0
"""A changed target stays, whatever the daemon does with the one before."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jetdvfs.daemon.errors import HardwareBusy
from jetdvfs.daemon.wire.client import Client, HeldLease
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.daemons.paced import FPS, IMAGE, MODEL, own

SLOW_PLANNING = """
import asyncio
from jetdvfs.daemon.leases.learning.learner import Learner
seen = Learner._seen
async def after_a_while(*given):
    await asyncio.sleep(0.7)
    return await seen(*given)
Learner._seen = after_a_while
"""
SLOW_BOARD = """
import time
from jetdvfs.daemon.leases import controller
from jetdvfs.daemon.leases.board import thread
thread.BoardThread.run.__kwdefaults__["longest_s"] = 0.5
replan = controller.Controller.replan
def slow(*given, asked=False):
    time.sleep(asked)
    return replan(*given, asked=asked)
controller.Controller.replan = slow
"""


def report(client: Client, lease: HeldLease, latency_ms: float) -> None:
    """Report twenty frames at settled clocks, and wait until the daemon has them."""
    time.sleep(1.0)
    client.call("Report", {"lease": lease.id, "latency_ms": [latency_ms] * 20})


@pytest.mark.parametrize("network", [True, False])
def test_a_change_while_the_former_target_is_planned_anew_stays(
    board: Board, found: dict[str, str], tmp_path: Path, network: bool
) -> None:
    with (
        Daemon(board, tmp_path, "--profile", "agx-xavier-sim", quickened=SLOW_PLANNING) as daemon,
        daemon.client() as client,
        daemon.client() as other,
    ):
        lease = client.hold(client.load(MODEL, IMAGE) if network else None, "latency_ms=20", fps=FPS)
        report(client, lease, 21.0)
        lease.change(target="latency_ms=30")
        changed = board.clocks
        time.sleep(1.5)
        assert own(other)["target"] == "latency_ms=30" and own(other)["limit_ms"] == 30.0
        assert board.clocks == changed
        again = [entry["reason"] for entry in other.log(lease.id) if entry["kind"] == "planned_again"]
        assert again[-1:] in ([], ["asked for latency_ms=30 from now on"])
        report(client, lease, 31.0)
        assert eventually(lambda: (own(other)["missed"] or {}).get("limit_ms") == 30.0)
        assert eventually(lambda: board.clocks != changed or own(other)["unkept"]), other.log()
        lease.release()
    assert board.settings() == found


def test_a_change_that_the_board_grants_too_late_is_undone(board: Board, found: dict[str, str], tmp_path: Path) -> None:
    with (
        Daemon(board, tmp_path, "--profile", "agx-xavier-sim", quickened=SLOW_BOARD) as daemon,
        daemon.client() as client,
        daemon.client() as other,
    ):
        lease = client.hold(client.load(MODEL, IMAGE), "latency_ms=30")
        before = board.clocks
        with pytest.raises(HardwareBusy, match="it is still waited for"):
            lease.change(target="latency_ms=8")
        kept = eventually(lambda: any("keeps its plan" in entry["message"] for entry in other.log()), within_s=5)
        assert kept and board.clocks == before
        assert own(other)["target"] == "latency_ms=30"
        report(client, lease, 31.0)
        assert eventually(lambda: (own(other)["missed"] or {}).get("limit_ms") == 30.0)
        lease.release()
    assert board.settings() == found
