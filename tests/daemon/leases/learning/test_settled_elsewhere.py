# SPDX-License-Identifier: Apache-2.0
"""A board that settles warmer than was planned for draws more: the real daemon, whose minutes are made seconds, plans again."""

from __future__ import annotations

from pathlib import Path

import pytest

import jetdvfs
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.daemons.paced import IMAGE, MODEL, own

QUICKENED = """
from jetdvfs.daemon.hardware.sensors import sampled
from jetdvfs.daemon.leases.learning import learner
from jetdvfs.daemon.planning import thermal_state
sampled.IDLE_S = sampled.WATCHED_S = 0.2
learner.TEND_S, thermal_state.SETTLED_S, thermal_state._EVERY_S = 0.2, 1.5, 0.2
"""
WARMER_C = 30.0


@pytest.mark.slow
def test_a_power_target_is_planned_again_once_the_board_has_settled_warmer(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    surface = jetdvfs.load_profile("agx-xavier-sim").surface(jetdvfs.decompose(str(MODEL), IMAGE[0]))
    bound_mw = 0.7 * float(surface.power_mw.max())
    with Daemon(board, tmp_path, "--profile", "agx-xavier-sim", quickened=QUICKENED) as daemon, daemon.client() as client:
        network = client.load(MODEL, IMAGE)
        with client.hold(network, f"power_mw={bound_mw:.0f}") as lease:
            before, began = own(client)["predicted"], board.clocks
            assert before["power_mw"] <= bound_mw
            with board.twin.present():
                board.twin.faults.fever_c = WARMER_C
            warmer_c = before["temperature_c"] + WARMER_C / 2
            assert eventually(lambda: own(client)["predicted"]["temperature_c"] > warmer_c, within_s=20), client.log()
            assert board.clocks != began and own(client)["predicted"]["power_mw"] <= bound_mw
            (said,) = [entry for entry in client.log(lease.id) if entry["kind"] == "planned_again"]
            assert "the die has settled at" in said["reason"] and "warmer than planned for" in said["reason"]
    assert board.settings() == found
