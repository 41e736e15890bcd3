# SPDX-License-Identifier: Apache-2.0
"""A power mode that would be better is proposed, and never switched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jetdvfs.daemon.errors import TargetNotAttainable
from jetdvfs.daemon.planning.lease_plan import PlanRequest
from jetdvfs.daemon.planning.limits import ClockBounds, ClockLimits
from jetdvfs.daemon.planning.modes import against_default, propose, within_mode
from jetdvfs.daemon.planning.plan import Planning
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.twin.serve import serve
from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.profiles.twin.tree.attributes import constant
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.daemons.paced import IMAGE, MODEL, predicted

MODES = load_board("agx-xavier").modes[-1]
MAXN, CAPPED = (next(mode for mode in MODES.table if mode.name == name) for name in ("MAXN", "MODE_15W_DESKTOP"))
FASTEST_MS = float(predicted().latency_ms.min())


def request(target: str) -> PlanRequest:
    return PlanRequest(Planning(), predicted(), target, None, None, "squeezenet", True)


def test_a_target_that_the_mode_in_force_cannot_meet_names_the_mode_that_can() -> None:
    found = propose(request(f"latency_ms={1.3 * FASTEST_MS:.3f}"), MODES, CAPPED, None)
    assert found is not None and found.mode.name == "MAXN" and found.gain is None
    assert "sudo jetdvfs board mode MAXN" in found.note and "is met" in found.note
    assert against_default(request(f"latency_ms={1.3 * FASTEST_MS:.3f}"), MODES) is not None


def test_a_gain_is_told_and_what_is_not_worth_a_change_is_not_proposed() -> None:
    power = request("power_mw=40000")
    held = power.plan(within_mode(predicted().grid, CAPPED)).configuration
    found = propose(power, MODES, CAPPED, held)
    assert found is not None and found.gain is not None and found.gain > 0.03
    assert f"{found.gain:.0%} latency less" in found.note
    assert propose(power, MODES, MAXN, predicted().grid.top) is None


def test_the_operators_limits_bind_in_every_mode() -> None:
    bounds = ClockLimits(gpu_hz=ClockBounds(max=CAPPED.gpu_hz))
    assert propose(request(f"latency_ms={1.3 * FASTEST_MS:.3f}"), MODES, CAPPED, None, bounds) is None


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    if fuse.missing():
        pytest.skip(f"the simulated board needs FUSE: {fuse.missing()}")
    folder: Path = tmp_path_factory.mktemp("modes")
    twin = simulated_board("agx-xavier", mode="MODE_15W_DESKTOP")
    with serve(twin, folder / "root", "fuse"), Daemon(Board(twin, folder / "root"), folder) as daemon:
        yield daemon


def test_status_and_refusals_name_the_better_mode_which_stays_the_operators_to_switch(daemon: Daemon) -> None:
    with daemon.client() as client:
        network = client.load(MODEL, IMAGE)
        with pytest.raises(TargetNotAttainable, match=r"power mode MAXN instead of MODE_15W_DESKTOP.*is met"):
            client.hold(network, f"latency_ms={1.3 * FASTEST_MS:.3f}")
        with client.hold(network, "power_mw=40000"):
            assert eventually(lambda: client.status()["leases"][0]["proposal"])
            proposal = client.status()["leases"][0]["proposal"]
            assert proposal["mode"]["name"] == "MAXN" and proposal["gain"] > 0.03
            assert client.plan(network, "power_mw=40000")["proposal"]["mode"] == proposal["mode"]
            assert client.status()["mode"]["name"] == "MODE_15W_DESKTOP"


def test_a_prediction_in_a_mode_that_powers_half_of_the_gpu_down_is_slower_and_says_so(tmp_path: Path) -> None:
    if fuse.missing():
        pytest.skip(f"the simulated board needs FUSE: {fuse.missing()}")
    found = {}
    for mode in ("MAXN", "MODE_30W"):
        folder = tmp_path / mode
        folder.mkdir()
        twin = simulated_board("agx-orin-64gb", mode=mode)
        with (
            serve(twin, folder / "root", "fuse"),
            Daemon(Board(twin, folder / "root"), folder) as daemon,
            daemon.client() as client,
        ):
            assert client.status()["mode"]["name"] == mode
            network = client.load(MODEL, ["8x3x224x224"])
            slow = (1_728_000, 306_000_000, 3_199_000_000)
            found[mode] = (client.predict(network, slow)["at"], client.plan(network, "min-energy"))
            if mode == "MODE_30W":  # of which the driver took nothing, as the GPU had been used
                twin.tree.put(twin.tree.resolve("/sys/devices/platform/17000000.gpu/tpc_pg_mask"), constant(0))
                assert eventually(lambda: any("but it is 0; a reboot may" in note for note in client.status()["degraded"]))
                assert "GPU on" not in client.plan(network, "min-energy")["execution_note"]
    whole, half = (found[mode] for mode in ("MAXN", "MODE_30W"))
    assert "50% of the GPU on" in half[1]["execution_note"] and "GPU on" not in whole[1]["execution_note"]
    assert half[0]["latency_ms"] > 1.1 * whole[0]["latency_ms"]
