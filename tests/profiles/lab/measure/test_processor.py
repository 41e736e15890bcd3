# SPDX-License-Identifier: Apache-2.0
"""The processor that the tests run on, measured: its campaign, energy counters and clocks."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.profiles.adapt.measurements import Measurements
from jetdvfs.profiles.adapt.torch_process import TorchProcess
from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.profiles.lab.measure.meters.cpu import KERNEL_WORKER, CpuMeter, TimingLimits, processor
from jetdvfs.profiles.lab.measure.meters.cpufreq import POLICIES, Cpufreq
from jetdvfs.profiles.lab.measure.meters.rapl import Rapl
from jetdvfs.profiles.lab.measure.processor import (
    MeasuredModel,
    measure_processor,
    plan_processor,
    processor_size,
    this_processor,
)
from jetdvfs.tests.support.profiles.analytic import relu

SHORT = TimingLimits(kernel_s=0.0, network_s=0.0, power_s=0.01, timings=5)


@pytest.mark.slow
def test_the_processor_is_measured_from_end_to_end_and_an_interrupted_campaign_goes_on(
    models: list[MeasuredModel], tmp_path: Path
) -> None:
    steps: list[str] = []
    with this_processor(sys.executable, 1, root=tmp_path) as machine:

        def interrupt(done: int, total: int, text: str) -> None:
            steps.append(text)
            if len(steps) == 4:
                raise KeyboardInterrupt

        campaign = plan_processor(machine.device, models, machine.process.about["kinds"], processor_size(3))
        with pytest.raises(KeyboardInterrupt):
            measure_processor(campaign, models, machine, SHORT, tmp_path / "kept", interrupt)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("kept/*/*.npz")}
    assert len(kept) == 3
    with TorchProcess(threads=1, worker=KERNEL_WORKER) as again:
        found = measure_processor(campaign, models, replace(machine, process=again), SHORT, tmp_path / "kept")
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    found.save(tmp_path / "record.npz")
    record = Measurements.load(tmp_path / "record.npz")
    assert [network.name for network in record.networks] == ["narrow", "middle", "wide"]
    assert record.described.name == "cpu" and record.described.grid.size == 1 and not record.described.energy_rails
    assert set(record.tables["kernel_ms"].what) == set(range(len(record.invocations)))
    assert (record.tables["kernel_ms"].value > 0).all() and len(record.tables["network_ms"]) == 3
    assert not len(record.tables["kernel_mw"]) and not len(record.tables["idle_mw"])
    assert "aten::conv2d" in record.environment["ran"]["conv2d"] and record.environment["torch"]


def counters(root: Path, energy_uj: int, largest_uj: int = 10**9) -> Path:
    """A machine with one package and a part of it, as Linux's powercap has them."""
    for name, label in (("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core")):
        zone = root / "sys/class/powercap" / name
        zone.mkdir(parents=True, exist_ok=True)
        (zone / "name").write_text(f"{label}\n")
        (zone / "energy_uj").write_text(f"{energy_uj}\n")
        (zone / "max_energy_range_uj").write_text(f"{largest_uj}\n")
    return root


def test_energy_is_that_of_whole_packages_and_a_counter_may_begin_again(tmp_path: Path) -> None:
    rapl = Rapl(counters(tmp_path, 999_999_000))
    assert rapl.rails == ("package-0",)
    before = rapl.read_uj()
    counters(tmp_path, 4_001_000 - 1)
    assert rapl.since_mj(before) == {"package-0": pytest.approx(4_002)}
    assert Rapl(tmp_path / "elsewhere").rails == ()


def test_power_is_the_energy_of_the_time_between_two_readings(tmp_path: Path, process: TorchProcess) -> None:
    rapl = Rapl(counters(tmp_path, 0))

    def wait(seconds: float) -> None:

        time.sleep(seconds)
        counters(tmp_path, 5_000_000)

    meter = CpuMeter(process, {}, rapl, TimingLimits(power_s=0.2), wait=wait)
    idle = meter.idle_rails_mw([None, None])["package-0"]  # type: ignore[list-item]
    assert idle.shape == (2,) and np.all((idle > 10_000) & (idle <= 25_000))  # 5 J within 0.2 s or a little more
    power = meter.kernel_powers([relu(1 << 10)], [None])  # type: ignore[list-item]
    assert power.rails_mw["package-0"] == [0.0] and power.period_ms[0] > 0


def test_a_processor_with_counters_is_measured_with_its_power(
    models: list[MeasuredModel], tmp_path: Path, process: TorchProcess
) -> None:
    device = processor(process, Rapl(counters(tmp_path, 1)))
    campaign = plan_processor(device, models, process.about["kinds"], processor_size(1))
    assert {unit.kind for unit in campaign.units} >= {"kernel_mw", "idle_mw", "kernel_ms", "network"}


def cpufreq(root: Path, **files: int | str) -> list[Path]:
    """Two clusters of cores whose limits may be set from 400 to 2000 MHz."""
    folders = [root / POLICIES / name for name in ("policy0", "policy4")]
    at_first = {"scaling_min_freq": 400_000, "scaling_max_freq": 1_900_000}
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in {**at_first, "cpuinfo_min_freq": 400_000, "cpuinfo_max_freq": 2_000_000, **files}.items():
            (folder / name).write_text(f"{text}\n")
    return folders


def limits(folder: Path) -> list[int]:
    return [int((folder / name).read_text()) for name in ("scaling_min_freq", "scaling_max_freq")]


def test_a_processor_whose_clock_may_be_set_is_measured_over_its_clocks_and_has_them_back(
    models: list[MeasuredModel], tmp_path: Path
) -> None:
    folders = cpufreq(tmp_path)
    seen: set[tuple[int, ...]] = set()
    with this_processor(sys.executable, 1, (1000, 2000, 500), tmp_path) as machine:
        assert machine.device.grid.gpu_hz == (500_000_000, 1_000_000_000, 2_000_000_000)
        campaign = plan_processor(machine.device, models, machine.process.about["kinds"], processor_size(1, 3))
        networks = replace(campaign, units=tuple(unit for unit in campaign.units if unit.kind == "network"))

        def look(done: int, total: int, text: str) -> None:
            seen.update(tuple(limits(folder)) for folder in folders)

        found = measure_processor(networks, models, machine, SHORT, progress=look)
    assert {(500_000,) * 2, (1_000_000,) * 2, (2_000_000,) * 2} <= seen
    assert set(found.tables["network_ms"].configuration) == {0, 1, 2}
    assert found.environment["clocks_locked_mhz"] == [1000, 2000, 500]
    assert [limits(folder) for folder in folders] == [[400_000, 1_900_000]] * 2


def test_a_processors_clock_is_given_back_when_its_worker_cannot_be_started(tmp_path: Path) -> None:
    folders = cpufreq(tmp_path)
    with pytest.raises(MeasurementError, match="/nowhere/python"), this_processor("/nowhere/python", 1, (1000,), tmp_path):
        pass
    assert [limits(folder) for folder in folders] == [[400_000, 1_900_000]] * 2


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "policy0 of the processor has no clock of 2100 MHz; valid: 400 to 2000"),
        ({"scaling_available_frequencies": "400000 2000000"}, "no clock of 2100 MHz; valid: 400, 2000"),
    ],
)
def test_a_clock_that_a_processor_does_not_have_is_refused_by_what_it_has(
    files: dict[str, str], said: str, tmp_path: Path
) -> None:
    cpufreq(tmp_path, **files)
    with pytest.raises(MeasurementError, match=said):
        Cpufreq((2100,), tmp_path)


def test_a_processor_without_cpufreq_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="the kernel has no cpufreq for it"):
        Cpufreq((1000,), tmp_path)
    Cpufreq((), tmp_path).close()  # where none is asked for, none is needed


def test_two_models_of_one_name_are_refused(models: list[MeasuredModel], process: TorchProcess) -> None:
    device = processor(process, Rapl(Path("/nowhere")))
    with pytest.raises(MeasurementError, match="two models are called 'narrow'"):
        plan_processor(device, [models[0], models[0]], process.about["kinds"], processor_size(1))
