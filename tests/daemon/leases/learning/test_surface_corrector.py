# SPDX-License-Identifier: Apache-2.0
"""What observation leaves of a surface, and what it must not conclude."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.daemon.leases.learning.observation_store import ObservationStore, ProgramKey
from jetdvfs.daemon.leases.learning.surface_corrector import SurfaceCorrector
from jetdvfs.daemon.planning.thermal_state import ThermalState
from jetdvfs.kernels.correction.flat import flat_surface
from jetdvfs.kernels.correction.observation import Observation
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.heat import Heat
from jetdvfs.tests.support.surfaces import GRID, crowded, seen_at

NET = ProgramKey(1000, "net")


def test_what_was_seen_before_a_program_became_heavier_promises_no_more_than_that(tmp_path: Path) -> None:
    surface, memory = (
        replace(crowded(), terms=None, latency_sigma=np.full(GRID.shape, 0.05)),
        ObservationStore(tmp_path / "memory.json"),
    )
    slow, fast = FrequencyConfiguration(500_000, 300_000_000, 600_000_000), GRID.top
    memory.remember(NET, [seen_at(surface, slow, slower=0.8)])
    corrections = SurfaceCorrector(memory, lambda: None)
    before_ms = surface.at(slow).latency_ms
    alone_ms = corrections.make(surface, NET, 1.0, (), False).at(slow).latency_ms
    assert alone_ms == pytest.approx(before_ms * np.exp(-2 * 0.05), rel=0.01)  # no farther than was uncertain
    heavier, as_usual = ([seen_at(surface, fast, slower=factor)] for factor in (1.3, 0.8))
    assert corrections.make(surface, NET, 1.0, heavier, True).at(slow).latency_ms > 1.25 * before_ms
    assert corrections.make(surface, NET, 1.0, heavier, False).at(slow).latency_ms > before_ms
    lighter = [seen_at(surface, fast, slower=0.6)]
    assert corrections.make(surface, NET, 1.0, lighter, False).at(slow).latency_ms < 0.75 * before_ms
    kept_ms = corrections.make(surface, NET, 1.0, as_usual, False).at(slow).latency_ms
    assert kept_ms == pytest.approx(0.8 * before_ms, rel=0.03)


def test_what_a_hot_die_drew_says_what_a_cold_one_will_draw(tmp_path: Path) -> None:
    flat = flat_surface(GRID)
    predicted = replace(flat, terms=None, idle_mw=0.6 * flat.power_mw, leakage_mw=0.3 * flat.power_mw, heat=Heat(45.0, 30.0))
    hot, cold = (predicted.warmed(die_c) for die_c in (80.0, 30.0))
    here = FrequencyConfiguration(1_000_000, 900_000_000, 600_000_000)
    as_predicted = Observation(here, hot.at(here).latency_ms, 1.1 * hot.at(here).power_mw, frames=30, temperature_c=80.0)
    corrections = SurfaceCorrector(ObservationStore(tmp_path / "memory.json"), lambda: ThermalState(30.0, 0.0, 0.0))
    found = corrections.make(predicted, NET, None, [as_predicted], False)
    assert found.at(here).power_mw == pytest.approx(1.1 * cold.at(here).power_mw, rel=0.02)
    of_any = corrections.make(predicted, NET, None, [replace(as_predicted, temperature_c=None)], False)
    assert of_any.at(here).power_mw > 1.2 * found.at(here).power_mw
