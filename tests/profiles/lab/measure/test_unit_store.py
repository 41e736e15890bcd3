# SPDX-License-Identifier: Apache-2.0
"""What is measured is kept, whatever becomes of the disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.network import KernelInvocation
from jetdvfs.profiles.adapt.measurements import Measurements
from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.profiles.lab.measure.campaign import Campaign, CampaignSize, plan_campaign
from jetdvfs.profiles.lab.measure.meters.meter import KernelPower
from jetdvfs.profiles.lab.measure.steps import run_campaign
from jetdvfs.profiles.lab.measure.unit_store import UnitStore
from jetdvfs.tests.support.profiles.synthetic_meter import BOARD, SyntheticMeter, network, pointwise

FULL = Path("/dev/full")
SIZE = CampaignSize((0,), {}, 4, 2, 2, 2, 2, idle_configurations=40)


def campaign(size: CampaignSize = SIZE) -> Measurements:
    return run_campaign(planned(size), SyntheticMeter)


def planned(size: CampaignSize) -> Campaign:
    def kernels(kind: str, count: int) -> Sequence[KernelInvocation]:
        return [pointwise(kind, 10_000 * (number + 1)) for number in range(count)]

    return plan_campaign(BOARD, [network("net", [20_000])], kernels, size, kinds=("relu", "add"), temperature_c=45.0)


def test_a_full_disk_ends_a_campaign_with_one_line_and_what_was_measured_is_gone_on_with(tmp_path: Path) -> None:
    if not FULL.exists():
        pytest.skip("needs /dev/full")
    plan = planned(SIZE)
    folder = tmp_path / plan.digest
    folder.mkdir()
    full = folder / "unit-00002.npz"
    full.symlink_to(FULL)
    with pytest.raises(MeasurementError, match="No space left on device; the 2 steps before are kept"):
        run_campaign(plan, SyntheticMeter, tmp_path)
    full.unlink()
    assert sorted(path.name for path in folder.glob("*.npz")) == ["unit-00000.npz", "unit-00001.npz"]
    again = run_campaign(plan, SyntheticMeter, tmp_path)
    for name, rows in campaign().tables.items():
        assert np.array_equal(rows.value, again.tables[name].value), name


def test_a_record_that_cannot_be_written_leaves_the_one_there_is(tmp_path: Path) -> None:
    if not FULL.exists():
        pytest.skip("needs /dev/full")
    path, record = tmp_path / "record.npz", campaign()
    record.save(path)
    (tmp_path / "record.npz.tmp").symlink_to(FULL)
    with pytest.raises(MeasurementError, match=r"record\.npz: No space left on device; nothing there was changed"):
        replace(record, board="tx2").save(path)
    assert Measurements.load(path).board == BOARD.name


def test_a_folder_that_cannot_be_made_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MeasurementError, match="nothing was measured"):
        UnitStore(tmp_path / "file" / "folder")


def test_small_steps_measure_what_large_ones_do_of_idle_power_and_networks() -> None:
    large, small = (planned(replace(SIZE, small_steps=one)) for one in (False, True))
    assert large.digest != small.digest and len(small.units) > 2 * len(large.units)
    found = [run_campaign(plan, SyntheticMeter).tables for plan in (large, small)]
    for name in ("idle_mw", "host_active_mw"):
        first, second = (tables[name] for tables in found)
        assert np.array_equal(first.configuration, second.configuration) and np.allclose(first.value, second.value), name
    for name in ("kernel_ms", "host_us", "network_ms", "network_mw"):
        assert len(found[0][name]) == len(found[1][name]), name
    assert len(set(found[1]["network_ms"].configuration)) == SIZE.whole_network_configurations


class CountingIdle(SyntheticMeter):
    """Counts the configurations at which idle power by itself is asked for."""

    idle = 0

    def idle_rails_mw(
        self, configurations: Sequence[FrequencyConfiguration], temperature_c: float | None = None
    ) -> dict[str, NDArray[np.float64]]:
        self.idle += len(configurations)
        return super().idle_rails_mw(configurations, temperature_c)

    def kernel_powers(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration], issued: bool = False
    ) -> KernelPower:
        before = self.idle
        power = super().kernel_powers(invocations, configurations)
        self.idle = before
        return power


def test_power_of_kernels_together_is_theirs_with_idle_power_measured_once() -> None:
    plan = planned(replace(SIZE, power_kernels=3, power_configurations=1))
    powers = [unit for unit in plan.units if unit.kind == "kernel_mw"]
    assert sum(len(unit.what) for unit in powers) == len(plan.invocations) and max(len(unit.what) for unit in powers) == 3
    meter = CountingIdle()
    found = run_campaign(replace(plan, units=tuple(powers)), lambda node: meter).tables["kernel_mw"]
    assert meter.idle == len(powers) and len(found) > len(powers)
    _, gpu_hz, emc_hz = np.array(
        [BOARD.grid.configuration(np.unravel_index(at, BOARD.grid.shape)) for at in found.configuration]
    ).T
    assert found.value == pytest.approx(3000 * gpu_hz / 1.377e9 + 1000 * emc_hz / 2.133e9)


def test_parts_of_power_measured_together_are_the_same_at_whatever_step_they_are_measured() -> None:
    size = replace(SIZE, power_kernels=3, power_configurations=2)
    large, small = (
        run_campaign(planned(replace(size, small_steps=one)), SyntheticMeter).tables["kernel_mw"] for one in (False, True)
    )
    assert len(large) and all(
        np.array_equal(getattr(large, name), getattr(small, name)) for name in ("what", "configuration", "value")
    )


def test_idle_power_is_measured_at_so_many_configurations_as_the_campaign_says() -> None:
    assert len(campaign().tables["idle_mw"]) == 40
    assert len(campaign(replace(SIZE, idle_configurations=0)).tables["idle_mw"]) == BOARD.grid.size
