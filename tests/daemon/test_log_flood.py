# SPDX-License-Identifier: Apache-2.0
"""What a member does without a pause, and what it leaves in the log: a bounded number of lines, and others' entries."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jetdvfs.daemon.errors import DaemonError
from jetdvfs.daemon.system.journal import LINES_PER_MINUTE
from jetdvfs.daemon.wire.client import Client
from jetdvfs.tests.support.daemons.board_daemon import LOW, Board, Daemon
from jetdvfs.tests.support.daemons.other_users import open_to_everybody, somebody_else

SECONDS = 4.0


def flaps(client: Client) -> None:
    """Reports that miss and keep the target in turn."""
    lease = client.hold(target="latency_ms=20")
    end_s = time.monotonic() + SECONDS
    while time.monotonic() < end_s:
        client.call("Report", {"lease": lease.id, "latency_ms": [1000.0] * 32})
        client.call("Report", {"lease": lease.id, "latency_ms": [1.0] * 32})


def holds(client: Client) -> None:
    """Leases that end at once, each with a reason of its own."""
    end_s, number = time.monotonic() + SECONDS, 0
    while time.monotonic() < end_s:
        number += 1
        client.hold(configuration=LOW, reason=f"reason {number}", app=f"app {number}").release()


def changes(client: Client) -> None:
    lease = client.hold(target="latency_ms=20")
    end_s, number = time.monotonic() + SECONDS, 0
    while time.monotonic() < end_s:
        number += 1
        lease.change(target=f"latency_ms={20 + number % 50}")


def is_refused(client: Client) -> None:
    end_s, number = time.monotonic() + SECONDS, 0
    while time.monotonic() < end_s:
        number += 1
        with pytest.raises(DaemonError):
            client.call("Release", {"lease": f"none {number}"})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
@pytest.mark.parametrize("act", [flaps, holds, changes, is_refused], ids=lambda act: act.__name__)
def test_whatever_a_member_does_without_a_pause_the_log_is_bounded_and_others_entries_stay(
    act: object, board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    with Daemon(board, tmp_path) as daemon, daemon.client() as root:
        root.hold(configuration=LOW, reason="IMPORTANT")
        open_to_everybody(daemon.socket)
        before = len(daemon.log.read_text().splitlines())
        with somebody_else(65534, 54101):
            member = Client(daemon.socket)
        with member:
            act(member)  # type: ignore[operator]
            lines = daemon.log.read_text().splitlines()[before:]
            assert len(lines) <= LINES_PER_MINUTE + 20, "\n".join(lines[-30:])
            assert any("IMPORTANT" in str(entry) for entry in root.log())
            assert not [line for line in lines if line.startswith("Traceback")]
    assert board.settings() == found
