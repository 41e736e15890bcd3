# SPDX-License-Identifier: Apache-2.0
"""Where the die's temperature will settle, and what is predicted there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.daemon.errors import UsageError
from jetdvfs.daemon.hardware.sensors.cooling import CoolingState
from jetdvfs.daemon.hardware.sensors.thermal import TripPoint
from jetdvfs.daemon.planning.plan import plan
from jetdvfs.daemon.planning.thermal_state import ThermalState, settled, warmth_of
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.heat import Heat
from jetdvfs.profiles.board import load_board
from jetdvfs.tests.support.profiles.analytic import board, conv2d, network, relu

BOARD = load_board("agx-xavier")
COLD = surface(network(*[conv2d(), relu()] * 5), board())
SURFACE = replace(COLD, leakage_mw=0.4 * COLD.idle_mw, heat=Heat(45.0, 38.0))


@dataclass(frozen=True)
class Read:
    """What sensors said last."""

    temperatures: Mapping[str, int]
    rails: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(BOARD.energy_rails, 2000.0))
    trips: tuple[TripPoint, ...] = (TripPoint("CPU-therm", "passive", 90_000), TripPoint("GPU-therm", "passive", 92_000))
    notes: tuple[str, ...] = ()
    energy_rails: tuple[str, ...] = BOARD.energy_rails

    def rails_mw(self) -> Mapping[str, float]:
        return self.rails

    def energy_mj(self) -> dict[str, float]:
        return {}

    def temperatures_mc(self) -> Mapping[str, int]:
        return self.temperatures

    def throttled(self, *, now: bool = False) -> tuple[str, ...]:
        return ()

    def cooling(self) -> tuple[CoolingState, ...]:
        return ()

    def over_current(self) -> Mapping[str, int]:
        return {}


def test_the_die_is_as_warm_as_its_hottest_zone_that_throttles() -> None:
    warmth = warmth_of(Read({"CPU-therm": 51_300, "GPU-therm": 48_000, "PMIC-Die": 100_000}), BOARD)
    assert warmth is not None and warmth.die_c == 51 and warmth.drawn_mw == 2000 * len(BOARD.energy_rails)
    assert warmth.k_per_w > 0


def test_without_a_zone_that_throttles_the_die_is_as_warm_as_the_hottest_of_cpu_gpu_and_junction() -> None:
    zones = {"CPU-therm": 51_300, "GPU-therm": 48_000, "Tboard_tegra": 60_000, "PMIC-Die": 100_000}
    for trips in ((), (TripPoint("Tboard_tegra", "active", 40_000), TripPoint("PMIC-Die", "critical", 120_000))):
        warmth = warmth_of(Read(zones, trips=trips), BOARD)
        assert warmth is not None and warmth.die_c == 51


def test_a_board_that_tells_no_temperature_is_planned_for_as_it_was_measured() -> None:
    assert warmth_of(Read({"PMIC-Die": 100_000}), BOARD) is None
    assert settled(SURFACE, None, None) is SURFACE


def test_without_its_power_the_die_is_taken_to_stay_as_warm_as_it_is() -> None:
    warmth = warmth_of(Read({"CPU-therm": 70_000}, rails={}), BOARD)
    assert warmth is not None and warmth.k_per_w == 0
    np.testing.assert_allclose(settled(SURFACE, warmth, None).energy_mj, SURFACE.warmed(70.0).energy_mj)


def test_a_profile_that_knows_no_temperature_is_taken_as_it_is() -> None:
    assert settled(COLD, ThermalState(80.0, 5000.0, 1.2), None) is COLD


def test_each_configuration_settles_where_what_it_draws_keeps_it() -> None:
    warmth = ThermalState(50.0, 4000.0, 1.2)
    found = settled(SURFACE, warmth, None)
    assert found.temperature_c is not None
    np.testing.assert_allclose(found.temperature_c, 50 + 1.2 * (found.power_mw - 4000) / 1e3, atol=0.1)
    assert np.ptp(found.temperature_c) > 5  # fast configurations are hotter
    np.testing.assert_array_equal(found.latency_ms, SURFACE.latency_ms)


def test_waiting_between_frames_cools() -> None:
    warmth = ThermalState(50.0, 4000.0, 1.2)
    busy, paced = (settled(SURFACE, warmth, fps).temperature_c for fps in (None, 2.0))
    assert busy is not None and paced is not None and (paced < busy).all()
    with pytest.raises(UsageError, match="fps=-1"):
        settled(SURFACE, warmth, -1)


def test_nothing_runs_away() -> None:
    found = settled(SURFACE, ThermalState(100.0, 0.0, 50.0), None)
    assert found.temperature_c is not None and found.temperature_c.max() <= 105


def test_a_plan_says_where_the_die_will_settle() -> None:
    chosen = plan(settled(SURFACE, ThermalState(60.0, 3000.0, 1.2), None), "min-energy")
    assert chosen.choice.temperature_c is not None
    assert f"The die is taken to settle at {chosen.choice.temperature_c:.0f} C." in chosen.why
    assert chosen.to_json()["choice"]["temperature_c"] == chosen.choice.temperature_c
    assert "temperature_c" not in plan(COLD, "min-energy").to_json()["choice"]
