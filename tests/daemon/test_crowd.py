# SPDX-License-Identifier: Apache-2.0
"""Thirty leases of two users who want others to wait: root still gets its clocks in time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jetdvfs.tests.support.daemons.board_daemon import LOW, Board, Daemon, eventually
from jetdvfs.tests.support.daemons.crowd import crowd
from jetdvfs.tests.support.daemons.other_users import open_to_everybody
from jetdvfs.tests.support.daemons.paced import IMAGE, MODEL


@pytest.mark.alone
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.slow
def test_root_holds_in_time_beside_thirty_leases_of_which_four_keep_changing(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    with Daemon(board, tmp_path, "--profile", "agx-xavier-sim") as daemon, daemon.client() as client:
        client.plan(client.load(MODEL, IMAGE), "min-energy")  # its models are converted from now on
        open_to_everybody(daemon.socket)
        took_s = []
        with crowd(daemon.socket, leases=30, changing=4):
            for _ in range(12):
                begun_s = time.monotonic()
                lease = client.hold(configuration=LOW)
                took_s.append(time.monotonic() - begun_s)
                lease.release()
        print([round(one, 3) for one in took_s])
        assert sorted(took_s)[len(took_s) // 2] < 0.3  # 2.5 to 5.7 s, or a refusal, before the joint choice was bounded
        assert eventually(lambda: not client.status()["leases"])
    assert board.settings() == found
