# SPDX-License-Identifier: Apache-2.0
"""Frames of one user never change another user's plans, and no frames stop the daemon: real users, real daemon."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.daemon.wire.client import Client
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.daemons.other_users import open_to_everybody, somebody_else
from jetdvfs.tests.support.daemons.paced import IMAGE, MODEL, predicted

A, B = 64801, 64802

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")


@pytest.fixture
def clients(board: Board, tmp_path: Path) -> Iterator[dict[int, Client]]:
    """A connection of root, of A and of B."""
    with ExitStack() as stack:
        daemon = stack.enter_context(Daemon(board, tmp_path, "--profile", "agx-xavier-sim"))
        stack.enter_context(daemon.client())
        open_to_everybody(daemon.socket)
        made = {0: stack.enter_context(Client(daemon.socket))}
        for uid in (A, B):
            with somebody_else(uid, uid):
                made[uid] = stack.enter_context(Client(daemon.socket))
        yield made


def choice(client: Client, target: str) -> dict[str, Any]:
    found = client.plan(client.load(MODEL, IMAGE), target)["choice"]
    return {name: found["configuration"][name] for name in ("gpu_hz", "emc_hz")}


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_reports_of_one_user_leave_the_plans_and_holds_of_all_others_as_they_were(
    clients: dict[int, Client], factor: float
) -> None:
    """Frames that are credible, at the cheapest clocks and at others: 0.4 and 2.5 times as long as predicted."""
    target = f"latency_ms={3 * float(predicted().latency_ms.min()):.2f}"
    tight = f"latency_ms={1.05 * float(predicted().latency_ms.min()):.2f}"
    before = {uid: choice(clients[uid], target) for uid in (0, A)}
    client = clients[B]
    lease = client.hold(client.load(MODEL, IMAGE), "power_mw=4000")
    for milliwatts in (4000, 5000, 6000):
        lease.change(target=f"power_mw={milliwatts}")
        time.sleep(0.3)
        latency_ms = factor * client.status()["leases"][0]["predicted"]["latency_ms"]
        for _ in range(4):
            client.call("Report", {"lease": lease.id, "latency_ms": [latency_ms] * 8})
            time.sleep(0.1)
    lease.release()
    assert eventually(lambda: client.learned() != []), client.log()
    assert {one["uid"] for one in clients[0].learned()} == {B} and clients[A].learned() == [] and clients[A].forget() == 0
    assert {uid: choice(clients[uid], target) for uid in (0, A)} == before
    for uid in (0, A):
        with clients[uid].hold(clients[uid].load(MODEL, IMAGE), tight) as held:
            assert held.corrected is None
    assert clients[0].forget() == 1 and client.learned() == []


@pytest.mark.parametrize("network", [True, False])
def test_frames_of_no_time_then_slow_ones_end_in_no_traceback_and_the_lease_is_still_planned(
    clients: dict[int, Client], network: bool, tmp_path: Path
) -> None:
    client = clients[B]
    lease = client.hold(client.load(MODEL, IMAGE) if network else None, "latency_ms=20")
    time.sleep(1.2)
    for latencies_ms in ([0.0] * 4, *[[0.0] * 16] * 4, *[[0.0] * 8 + [1000.0] * 8] * 20, [1e7] * 8, [1e-9] * 8, [0.0, 1e7] * 8):
        client.call("Report", {"lease": lease.id, "latency_ms": list(latencies_ms)})
        time.sleep(0.05)
    text = (tmp_path / "log").read_text()
    assert "Traceback" not in text and "Error" not in text
    kinds = {entry["kind"] for entry in client.log(lease.id)}
    assert "frames_doubted" in kinds and "target_missed" in kinds
    lease.change(target="latency_ms=30")
    assert client.status()["leases"][0]["target"] == "latency_ms=30"
