# SPDX-License-Identifier: Apache-2.0
"""Getting to know a program that nobody predicted: what is tried, what never is, and when it ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from jetdvfs.daemon.planning.exploring import ExplorationStep, next_configuration
from jetdvfs.daemon.planning.limits import Limits
from jetdvfs.kernels.correction.flat import flat_surface
from jetdvfs.kernels.correction.observation import Observation
from jetdvfs.kernels.grid import FrequencyGrid
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.compare.loop import LoopResult, replay, simulated_programs
from jetdvfs.profiles.twin.measured.tables import MeasuredTable, load_tables
from jetdvfs.tests.support.paths import ROOT
from jetdvfs.tests.support.profiles.measured_table import write_table

# Tables that others measured; they are not part of the repository.
SHARED = next((path for parent in ROOT.parents if (path := parent / "shared" / "data").exists()), ROOT / "shared" / "data")


GPU_HZ = tuple(mhz * 1_000_000 for mhz in (115, 217, 319, 421, 523, 625, 727, 854, 931, 1033, 1122, 1237, 1300))
EMC_HZ = tuple(mhz * 1_000_000 for mhz in (204, 408, 666, 800, 1062, 1331, 1600, 1866))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> MeasuredTable:
    folder = tmp_path_factory.mktemp("table")
    (table,) = load_tables(folder, [write_table(folder)])
    return table


@pytest.fixture(scope="module")
def runs(table: MeasuredTable) -> list[LoopResult]:
    return list(replay(table))


def _walk(table: MeasuredTable, target: str, limits: Limits | None = None) -> list[ExplorationStep]:
    steps: list[ExplorationStep] = []
    while not steps or steps[-1].exploring:
        known = _observed(table, steps)
        steps.append(next_configuration(flat_surface(table.grid), target, known, confidence=0.95, limits=limits))
    return steps


def _observed(table: MeasuredTable, steps: Sequence[ExplorationStep]) -> list[Observation]:
    observations = []
    for step in steps:
        at = table.grid.index(step.configuration)
        observations.append(Observation(step.configuration, float(table.latency_ms[at]), float(table.power_mw[at]), frames=30))
    return observations


def test_it_begins_at_the_highest_permitted_clocks(table: MeasuredTable) -> None:
    assert _walk(table, "min-energy")[0].configuration == table.grid.top
    limits = Limits(gpu_hz=(100_000_000, 700_000_000))
    steps = _walk(table, "min-energy", limits)
    assert steps[0].configuration.gpu_hz == max(hz for hz in table.grid.gpu_hz if hz <= 700_000_000)
    assert all(step.configuration.gpu_hz <= 700_000_000 for step in steps)


def test_no_deadline_is_missed_on_the_way(runs: list[LoopResult]) -> None:
    assert [run.deadline for run in runs] == [1.15, 1.5, 2.5, None]
    assert not any(run.late for run in runs)


def test_memory_that_the_gpu_hides_at_high_clocks_is_not_run_into() -> None:
    grid = FrequencyGrid((1_421_000,), GPU_HZ, EMC_HZ)
    gpu, emc = (np.array(levels, np.float64) / levels[-1] for levels in (GPU_HZ, EMC_HZ))
    latency_ms = 10 * np.maximum(1 / gpu[:, None], 0.8 / emc)[None]
    power_mw = (2000 + 3000 * gpu[:, None] ** 2 + 3000 * emc**2)[None]
    hidden = MeasuredTable("hidden", "memory", "tx2", "a formula", grid, latency_ms, power_mw)
    for run in replay(hidden, deadlines=(1.15, 1.3, 1.5)):
        assert not any(number > 3 for number in run.late) and run.after[10].regret < 0.03


@pytest.mark.parametrize("deadline", [1.15, 1.3, 2.5])
def test_a_program_that_waits_for_its_host_alone_is_led_down_to_the_lowest_gpu_clock(deadline: float) -> None:
    grid = FrequencyGrid((2_201_600,), GPU_HZ[2:], (3_199_000_000,))
    gpu = np.array(grid.gpu_hz, np.float64) / GPU_HZ[-1]
    random = np.random.default_rng(5)
    latency_ms = (10 * np.exp(0.005 * random.standard_normal(len(gpu))))[None, :, None]
    power_mw = (5000 + 15000 * gpu**2)[None, :, None]
    (run,) = replay(
        MeasuredTable("flat", "host", "agx-orin-64gb", "a formula", grid, latency_ms, power_mw), deadlines=(deadline,)
    )
    assert not run.late and run.after[10].regret < 0.03


def test_the_first_steps_change_one_clock_each(table: MeasuredTable) -> None:
    seen: list[tuple[int, ...]] = []
    for step in _walk(table, "latency_ms=60")[:3]:
        place = table.grid.index(step.configuration)
        apart = [sum(own != other for own, other in zip(place, before, strict=True)) for before in seen]
        assert not seen or min(apart) == 1
        seen.append(place)


def test_after_ten_configurations_the_plan_is_nearly_the_best(runs: list[LoopResult]) -> None:
    for run in runs:
        assert run.after[10].regret < 0.03 and not run.after[10].missed
        assert run.after[10].latency_error < 0.02 and run.after[10].power_error < 0.04


def test_other_ways_of_choosing_do_no_better(runs: list[LoopResult]) -> None:
    for run in runs:
        assert set(run.others) == {"top clocks", "best nvpmodel mode", "schedutil + podgov", "overlap fit, 10 random"}
        kept = [regret for regret in run.others.values() if regret is not None]
        assert run.after[20].regret <= min(kept) + 0.02
    assert runs[2].others["top clocks"] is not None and runs[2].others["top clocks"] > 0.1


def test_it_ends_with_the_plan_when_nothing_is_left_to_gain(table: MeasuredTable) -> None:
    steps = _walk(table, "latency_ms=60")
    assert 5 < len(steps) < 22 and not steps[-1].exploring
    assert steps[-1].corrected is not None and "Least energy" in steps[-1].reason


def test_the_plan_is_nowhere_that_frames_were_seen_late_whatever_the_others_say_of_it() -> None:
    programs = simulated_programs(load_bundle("agx-xavier-sim"), boards=3, perturbed=1, names=("googlenet",))
    for table, predicted in programs:
        limit_ms = 1.15 * float(table.latency_ms.min())
        steps: list[ExplorationStep] = []
        while not steps or steps[-1].configuration not in [step.configuration for step in steps[:-1]]:
            known = _observed(table, steps)
            steps.append(next_configuration(predicted, f"latency_ms={limit_ms}", known, confidence=0.95))
        assert not steps[-1].exploring and table.latency_ms[table.grid.index(steps[-1].configuration)] <= limit_ms


def test_a_target_out_of_reach_is_run_at_the_highest_clocks(table: MeasuredTable) -> None:
    top = table.grid.top
    at = table.grid.index(top)
    seen = [Observation(top, float(table.latency_ms[at]), float(table.power_mw[at]), frames=30)]
    step = next_configuration(flat_surface(table.grid), "latency_ms=1", seen, confidence=0.95)
    assert step.configuration == top and not step.exploring and "is not attainable" in step.reason


def test_a_command_prints_the_table_and_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mapping = write_table(tmp_path)
    assert main(["compare", "replay", "--data", str(tmp_path), "--table", str(mapping)]) == 0
    printed = capsys.readouterr().out
    assert "camera: a formula" in printed and "schedutil + podgov" in printed and "  10 " in printed
    assert main(["compare", "replay", "--data", str(tmp_path), "--table", str(mapping), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["deadline"] for row in rows] == [1.15, 1.5, 2.5, None]
    assert main(["compare", "replay", "--data", str(tmp_path), "--table", str(mapping), "--only", "radar"]) == 3
    assert "no table or program is called like this; there are camera" in capsys.readouterr().err


@pytest.mark.skipif(not SHARED.exists(), reason="the measured tables are not beside the repository")
def test_on_real_tables_it_is_within_its_goals_after_ten_configurations() -> None:
    tables = [table for table in load_tables(SHARED) if table.name == "agx-orin-cpu-gpu"]
    found = [run for table in tables for run in replay(table)]
    assert np.median([run.after[10].latency_error for run in found]) < 0.025
    assert np.median([run.after[10].power_error for run in found]) < 0.04
    assert np.quantile([run.after[10].regret for run in found], 0.9) < 0.05
    assert not any(number > 3 for run in found for number in run.late)


def test_a_predicted_network_on_another_silicon_is_known_after_ten_configurations() -> None:
    programs = simulated_programs(load_bundle("agx-xavier-sim"), boards=1, perturbed=1)
    table, predicted = next(programs)
    (run,) = replay(table, predicted, deadlines=(1.5,))
    assert run.after[10].latency_error_all < 0.025 and run.after[10].power_error_all < 0.05
    assert run.after[10].regret < 0.05 and not run.late and not run.after[3].missed
    before = np.abs(predicted.power_mw / table.power_mw - 1).mean()
    assert run.after[10].power_error_all < before
