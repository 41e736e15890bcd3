# SPDX-License-Identifier: Apache-2.0
"""What a board is, what it offers now, and what becomes of a request."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from jetdvfs.daemon.errors import HardwareBusy, HardwareRefused, InputError, UsageError
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.support.boards.hardware_kernel import CAP, CPU, EMC, GPU, INA, TREE, XAVIER, FakeClock, Kernel

MIDDLE = FrequencyConfiguration(1190400, 675750000, 1331200000)


def probe(kernel: Kernel, clock: FakeClock, tmp_path: Path) -> Hardware:
    return Hardware.probe(kernel, clock, baseline=tmp_path / "baseline.json")


# Which board


def test_the_board_is_known_from_the_device_tree(kernel: Kernel, clock: FakeClock) -> None:
    hardware = Hardware.probe(kernel, clock)
    assert hardware.description.name == "agx-xavier"
    assert (hardware.identity.l4t, hardware.identity.jetpack) == ("35.3.1", "5.1.1")


def test_the_device_tree_in_proc_serves_where_sysfs_has_none(kernel: Kernel, clock: FakeClock) -> None:
    for name in ("model", "compatible"):
        kernel.store[f"/proc/device-tree/{name}"] = kernel.store.pop(f"{TREE}/{name}")
    assert Hardware.probe(kernel, clock).description.name == "agx-xavier"


def test_sharing_a_chip_does_not_make_it_the_same_board(kernel: Kernel, clock: FakeClock) -> None:
    kernel.store[f"{TREE}/model"] = "NVIDIA Jetson Xavier NX\0"
    kernel.store[f"{TREE}/compatible"] = "nvidia,p3668\0nvidia,tegra194\0"
    found = Hardware.probe(kernel, clock, boards=(XAVIER,))
    assert (found.description.name, found.description.title) == ("tegra194", "NVIDIA Jetson Xavier NX")
    assert found.notes[0] == "tegra194 is not described: its files are read as those of agx-xavier, and nothing is predicted"
    kernel.store[f"{TREE}/compatible"] = "nvidia,p3668\0nvidia,tegra999\0"
    with pytest.raises(InputError, match=r"Jetson Xavier NX, nvidia,p3668, nvidia,tegra999; described: .*agx-xavier"):
        Hardware.probe(kernel, clock)


def test_the_most_specific_name_decides(kernel: Kernel, clock: FakeClock) -> None:
    kernel.store[f"{TREE}/compatible"] = "nvidia,p2972-0000-special\0nvidia,p2972-0000\0nvidia,tegra194\0"
    special = replace(XAVIER, name="special", compatible=("nvidia,p2972-0000-special", "nvidia,tegra194"))
    assert Hardware.probe(kernel, clock, boards=(XAVIER, special)).description.name == "special"
    assert Hardware.probe(kernel, clock, boards=(XAVIER,)).description.name == "agx-xavier"


def silent_for(kernel: Kernel, clock: FakeClock, seconds: float) -> None:
    """The device tree fails to be read until then."""
    until_s = clock.now + seconds

    def hold_up(path: str) -> None:
        if path.startswith(TREE) and clock.now < until_s:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    kernel.hold_up = hold_up


def test_a_device_tree_that_answers_late_is_waited_for(kernel: Kernel, clock: FakeClock) -> None:
    silent_for(kernel, clock, 3.0)
    assert Hardware.probe(kernel, clock).description.name == "agx-xavier"


def test_a_device_tree_that_never_answers_is_not_taken_for_another_machines(kernel: Kernel, clock: FakeClock) -> None:
    silent_for(kernel, clock, 1e6)
    began_s = clock.now
    with pytest.raises(HardwareBusy, match=rf"cannot be told which board this is: {TREE}/model: reading it failed with EIO"):
        Hardware.probe(kernel, clock)
    assert clock.now - began_s < 10


def test_a_board_can_be_named(kernel: Kernel, clock: FakeClock) -> None:
    del kernel.store[f"{TREE}/compatible"], kernel.store[f"{TREE}/model"]
    assert Hardware.probe(kernel, clock, board="agx-xavier").description is not None
    with pytest.raises(UsageError, match=r"'toaster' is not described; valid: .*agx-xavier"):
        Hardware.probe(kernel, clock, board="toaster")


# What it offers


def test_the_grid_is_the_running_systems_own(kernel: Kernel, clock: FakeClock) -> None:
    kernel.store[f"{GPU}/available_frequencies"] = "114750000 318750000 624750000"
    assert Hardware.probe(kernel, clock).grid().gpu_hz == (114750000, 318750000, 624750000)


def test_upper_limits_and_caps_bind_lower_limits_do_not(kernel: Kernel, clock: FakeClock) -> None:
    kernel.take(f"{CPU}/scaling_max_freq", "1190400")
    kernel.take(f"{CPU}/scaling_min_freq", "1190400")
    kernel.take(f"{GPU}/max_freq", "675750000")
    kernel.store[CAP] = "1600000000"
    grid = Hardware.probe(kernel, clock).grid()
    assert (grid.cpu_khz[0], grid.cpu_khz[-1], grid.gpu_hz[-1], grid.emc_hz[-1]) == (115200, 1190400, 675750000, 1600000000)


def test_our_own_limits_do_not_bind_us(clock: FakeClock, tmp_path: Path) -> None:
    kernel = Kernel(gpu_userspace=False)
    hardware = probe(kernel, clock, tmp_path)
    hardware.apply(MIDDLE, "test")
    assert kernel.store[f"{GPU}/max_freq"] == "675750000"
    assert hardware.grid().gpu_hz[-1] == 1377000000
    kernel.take(f"{GPU}/max_freq", "905250000")
    assert hardware.grid().gpu_hz[-1] == 905250000


def test_the_trained_memory_rates_are_read_from_the_firmware(kernel: Kernel, clock: FakeClock) -> None:
    tables = XAVIER.section("emc")["tables"]
    for khz in (204000, 1600000, 2133000):
        kernel.store[f"{tables}/{khz}"] = ""
    assert Hardware.probe(kernel, clock).grid().emc_hz == (204000000, 1600000000, 2133000000)


def test_without_debugfs_the_memory_clock_is_fixed_and_said_to_be(kernel: Kernel, clock: FakeClock, tmp_path: Path) -> None:
    for path in [path for path in kernel.store if path.startswith(EMC)]:
        del kernel.store[path]
    hardware = probe(kernel, clock, tmp_path)
    assert hardware.grid().emc_hz == (2133000000,)
    assert "memory clock is taken to be at 2133 MHz: debugfs is not mounted; " in hardware.notes[0]
    assert "cannot be seen" in hardware.notes[0]
    with pytest.raises(HardwareRefused, match="memory clock emc_hz=1331200000 is not offered now; valid: 2133000000"):
        hardware.apply(MIDDLE, "test")
    applied = hardware.apply(MIDDLE._replace(emc_hz=2133000000), "test")
    assert applied.verified
    assert not [write for write in applied.writes if "emc" in write.path]


def test_a_clock_that_can_be_seen_but_not_locked_is_fixed_where_it_is(kernel: Kernel, clock: FakeClock) -> None:
    del kernel.store[f"{EMC}/mrq_rate_locked"]
    assert Hardware.probe(kernel, clock).grid().emc_hz == (1065600000,)


def test_a_gpu_that_appears_late_is_found(kernel: Kernel, clock: FakeClock, tmp_path: Path) -> None:
    hidden = {path: kernel.store.pop(path) for path in list(kernel.store) if path.startswith(GPU)}
    kernel._hidden = lambda path: path if path.startswith(GPU) else None  # type: ignore[method-assign]
    hardware = probe(kernel, clock, tmp_path)
    assert len(hardware.grid().gpu_hz) == 1
    hardware.apply(hardware.grid().top, "before")
    del kernel._hidden
    kernel.store.update(hidden)
    assert len(hardware.grid().gpu_hz) == 14
    assert hardware.apply(MIDDLE, "after").verified
    hardware.restore()
    assert kernel.store[f"{GPU}/governor"] == "nvhost_podgov"


def test_clusters_are_set_together_and_one_that_is_offline_is_left_alone(
    kernel: Kernel, clock: FakeClock, tmp_path: Path
) -> None:
    second, offline = CPU.replace("policy0", "policy4"), CPU.replace("policy0", "policy8")
    for path in [path for path in kernel.store if path.startswith(CPU)]:
        kernel.store[path.replace(CPU, second)] = kernel.store[path]
    kernel.store[f"{offline}/affected_cpus"] = ""
    applied = probe(kernel, clock, tmp_path).apply(MIDDLE, "test")
    touched = [write.path for write in applied.writes if "cpufreq" in write.path]
    assert touched == [f"{policy}/{name}" for policy in (CPU, second) for name in ("scaling_governor", "scaling_setspeed")]
    assert applied.verified


# What becomes of a request


def test_a_frequency_that_is_not_offered_is_refused_before_anything_is_written(
    kernel: Kernel, clock: FakeClock, tmp_path: Path
) -> None:
    with pytest.raises(HardwareRefused, match=r"GPU clock gpu_hz=1000000000 is not offered now; valid: 114750000, 216750000"):
        probe(kernel, clock, tmp_path).apply(MIDDLE._replace(gpu_hz=1_000_000_000), "test")
    assert kernel.written == []
    assert not (tmp_path / "baseline.json").exists()


def test_nothing_is_set_without_a_place_for_the_baseline(kernel: Kernel, clock: FakeClock, tmp_path: Path) -> None:
    with pytest.raises(HardwareRefused, match="no clock was changed"):
        Hardware.probe(kernel, clock).apply(MIDDLE, "test")
    (tmp_path / "file").touch()
    with pytest.raises(HardwareRefused, match=r"cannot be written \(.*\); no clock was changed"):
        Hardware.probe(kernel, clock, baseline=tmp_path / "file" / "baseline").apply(MIDDLE, "test")
    assert kernel.written == []


def test_a_setting_that_the_board_obeys_is_verified(kernel: Kernel, clock: FakeClock, tmp_path: Path) -> None:
    hardware = probe(kernel, clock, tmp_path)
    applied = hardware.apply(MIDDLE, "latency_ms=50")
    assert applied.verified and applied.notes == ()
    assert applied.requested == applied.accepted == applied.effective == hardware.current() == MIDDLE
    assert [tuple(write) for write in applied.writes] == kernel.written
    told = json.loads(json.dumps(applied.to_json()))
    assert told["reason"] == "latency_ms=50"
    assert told["accepted"] == {"cpu_khz": 1190400, "gpu_hz": 675750000, "emc_hz": 1331200000}


def test_a_request_that_the_firmware_cuts_down_is_told_as_accepted(kernel: Kernel, clock: FakeClock, tmp_path: Path) -> None:
    hardware = probe(kernel, clock, tmp_path)
    kernel.measure[f"{EMC}/rate"] = kernel.measure[f"{EMC}/pto_counter"] = "800000000"
    applied = hardware.apply(MIDDLE, "test")
    assert not applied.verified
    assert (applied.requested.emc_hz, applied.accepted.emc_hz, applied.effective.emc_hz) == (1331200000, 800000000, 800000000)
    assert applied.notes == ("memory clock: asked for 1331.2 MHz, the board accepted 800 MHz (locked)",)


def test_a_throttled_clock_is_told_as_effective_after_a_bounded_wait(kernel: Kernel, clock: FakeClock, tmp_path: Path) -> None:
    kernel.measure[f"{CPU}/cpuinfo_cur_freq"] = "597600"
    applied = probe(kernel, clock, tmp_path).apply(MIDDLE, "test")
    assert not applied.verified
    assert (applied.accepted.cpu_khz, applied.effective.cpu_khz) == (1190400, 597600)
    assert applied.notes == ("CPU clock: set to 1190.4 MHz, measured 597.6 MHz: throttled, or stuck",)
    assert 50 < applied.elapsed_ms < 1000


def test_a_clock_that_takes_a_while_is_waited_for(kernel: Kernel, clock: FakeClock, tmp_path: Path) -> None:
    hardware = probe(kernel, clock, tmp_path)
    kernel.measure[f"{GPU}/cur_freq"] = "114750000"
    slept = clock.sleep

    def sleep(seconds: float) -> None:
        slept(seconds)
        if clock.now > 100.05:
            kernel.measure.pop(f"{GPU}/cur_freq", None)

    clock.sleep = sleep  # type: ignore[method-assign]
    applied = hardware.apply(MIDDLE, "test")
    assert applied.verified
    assert 50 <= applied.elapsed_ms < 60


@pytest.mark.parametrize(
    ("path", "reads", "note"),
    [
        (f"{CPU}/cpuinfo_cur_freq", "<unknown>", "CPU clock: accepted; the board has no measurement of it"),
        (f"{GPU}/cur_freq", "0", None),  # power-gated: runs as accepted when it wakes
        (f"{EMC}/pto_counter", "1328200000", None),  # a counter is a little off
    ],
)
def test_a_clock_that_cannot_be_measured_exactly_is_verified_by_what_was_accepted(
    kernel: Kernel, clock: FakeClock, tmp_path: Path, path: str, reads: str, note: str | None
) -> None:
    kernel.measure[path] = reads
    applied = probe(kernel, clock, tmp_path).apply(MIDDLE, "test")
    assert applied.verified
    assert applied.notes == ((note,) if note else ())


# What it measures


def test_rails_are_found_by_label_wherever_hwmon_numbered_them(kernel: Kernel, clock: FakeClock) -> None:
    hardware = Hardware.probe(kernel, clock)
    assert hardware.sensors.rails_mw() == {"GPU": 190, "CPU": 380, "SOC": 570, "CV": 950, "VDDRQ": 1140, "SYS5V": 1330}


def test_a_rail_that_cannot_be_read_is_left_out(kernel: Kernel, clock: FakeClock) -> None:
    for path in [path for path in kernel.store if path.startswith(f"{INA}/1-0041") and "2_input" in path]:
        del kernel.store[path]
    assert set(Hardware.probe(kernel, clock).sensors.rails_mw()) == {"GPU", "CPU", "SOC", "CV", "SYS5V"}


def test_the_zone_of_a_powered_off_part_has_no_temperature(kernel: Kernel, clock: FakeClock) -> None:
    assert Hardware.probe(kernel, clock).sensors.temperatures_mc() == {"CPU-therm": 41500}


def test_a_power_monitor_that_appears_late_is_found(kernel: Kernel, clock: FakeClock) -> None:
    late = {path: kernel.store.pop(path) for path in list(kernel.store) if path.startswith(f"{INA}/1-0041")}
    hardware = Hardware.probe(kernel, clock)
    assert "VDDRQ" not in hardware.sensors.rails_mw()
    assert any("power rails VDDRQ are not there" in note for note in hardware.notes)
    kernel.store |= late
    assert hardware.sensors.rails_mw()["VDDRQ"] == 1140
    assert not [note for note in hardware.notes if "power rails" in note]


# What was left behind


def test_somebody_elses_memory_lock_is_named_and_left(kernel: Kernel, clock: FakeClock, tmp_path: Path) -> None:
    hardware = probe(kernel, clock, tmp_path)
    assert not [note for note in hardware.notes if "locked" in note]
    kernel.take(f"{EMC}/mrq_rate_locked", "1")
    assert any("memory clock is locked by another program" in note for note in hardware.notes)
    hardware.apply(MIDDLE, "test")
    assert not [note for note in hardware.notes if "locked by another program" in note]
    hardware.restore()
    assert kernel.store[f"{EMC}/mrq_rate_locked"] == "1"
