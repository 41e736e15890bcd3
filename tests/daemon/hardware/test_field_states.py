# SPDX-License-Identifier: Apache-2.0
"""Boards in states that their users found them in: what the hardware layer tells of them."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.daemon.errors import InputError
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.daemon.hardware.power_modes import pending_units
from jetdvfs.daemon.hardware.sensors.sampled import TOO_OLD_S, SampledSensors
from jetdvfs.daemon.planning.modes import share_on
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.board import BOARDS_DIR, load_board
from jetdvfs.profiles.errors import TwinError
from jetdvfs.profiles.twin.simulated_board import SimulatedBoard
from jetdvfs.profiles.twin.states import STATES, put_into
from jetdvfs.profiles.twin.tree.attributes import constant
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock, Kernel
from jetdvfs.tests.support.boards.twin_fakes import TreeFiles, fake_board
from jetdvfs.tests.support.daemons.board_daemon import eventually

TABLE_OF_4_9 = 12
NOT_MOUNTED, SECURE = "debugfs is not mounted", "debugfs is without the firmware's clocks (bpmp), as with secure boot"


class Saying(Kernel):
    """A kernel of which one file says something else."""

    said = ("", "")

    def _read(self, path: str) -> bytes:
        return self.said[1].encode() if path == self.said[0] else super()._read(path)


def found(name: str, states: str, **how: Any) -> tuple[SimulatedBoard, Hardware]:
    board = fake_board(name=name, **how)
    put_into(board, states)
    return board, Hardware.probe(TreeFiles(board), board.clock)


def test_a_state_without_a_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(TwinError, match=f"board state 'list'; valid: {', '.join(STATES)}"):
        put_into(fake_board(), "list")


# The total rail


@pytest.mark.parametrize(
    ("name", "rail", "read"),
    [
        ("orin-nano-8gb", "VDD_IN", {"VDD_CPU_GPU_CV", "VDD_SOC"}),
        ("agx-orin-64gb", "VDDQ_VDD2_1V8AO", {"VDD_GPU_SOC", "VDD_CPU_CV"}),
    ],
)
def test_a_rail_that_cannot_be_read_is_named(name: str, rail: str, read: set[str]) -> None:
    _, hardware = found(name, "total-rail-missing")
    assert read <= set(hardware.sensors.rails_mw()) and rail not in hardware.sensors.rails_mw()
    assert f"power rails {rail} cannot be read: power and energy are unknown" in hardware.notes


def test_a_carrier_without_a_monitor_has_its_module_rails_summed_and_says_so() -> None:
    board, hardware = found("agx-thor", "no-ina238")
    parts = ("VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0")
    assert hardware.sensors.energy_rails == parts
    assert f"power rails VIN are not there: power and energy are the sum of {', '.join(parts)}" in hardware.notes
    board.faults.clear()  # its driver was loaded late
    assert "VIN" in hardware.sensors.rails_mw() and list(hardware.sensors.energy_rails) == ["VIN"]


def test_a_monitor_that_fails_is_no_carrier_without_one() -> None:
    board, hardware = found("agx-thor", "")
    for path, _ in board.tree.files():
        if path.endswith("/power1_input"):
            board.faults.refuse(path, errno.EIO, access="read")
    assert list(hardware.sensors.energy_rails) == ["VIN"]
    assert "power rails VIN cannot be read: power and energy are unknown" in hardware.notes


# Reads that fail now and then


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EIO])
def test_a_zone_or_rail_or_counter_that_fails_keeps_its_last_value_until_it_is_too_old(number: int) -> None:
    board = fake_board(name="orin-nano-8gb")
    ahead_s = [0.0]
    files = TreeFiles(board)
    sensors = SampledSensors(files, board.description, lambda: board.clock.monotonic() + ahead_s[0])

    def read_again() -> None:
        for _ in range(2):  # the second round has begun after this was called
            seen = files.ended
            sensors.throttled(now=True)
            assert eventually(lambda seen=seen: files.ended > seen)
            ahead_s[0] += 0.3
            time.sleep(0.2)

    board.clock.sleep(1)
    sensors.start()
    try:
        assert eventually(lambda: "tj-thermal" in sensors.temperatures_mc() and sensors.over_current())
        zones, rails, events = sensors.temperatures_mc(), sensors.rails_mw(), sensors.over_current()
        for path, _ in board.tree.files():
            if path.endswith(("/temp", "_input", "_event_cnt")):
                board.faults.refuse(path, number, access="read")
        ahead_s[0] = TOO_OLD_S - 2
        read_again()
        assert (sensors.temperatures_mc(), sensors.rails_mw(), sensors.over_current()) == (zones, rails, events)
        ahead_s[0] = TOO_OLD_S + 1
        read_again()
        assert (sensors.temperatures_mc(), sensors.rails_mw(), sensors.over_current()) == ({}, {}, {})
        assert any("VDD_IN" in note and "not read for 15 s" in note for note in sensors.notes)
    finally:
        sensors.stop()


# Limits


def test_an_upper_limit_of_0_is_none_under_linux_4_9() -> None:
    _, hardware = found("nano", "gpu-max-freq-zero")
    grid, unknown = hardware.seen()
    assert (len(grid.gpu_hz), unknown, hardware.moved_limits()) == (TABLE_OF_4_9, (), ())


def test_a_clock_held_within_no_limits_goes_back_to_none(tmp_path: Path) -> None:
    board = fake_board(name="nano")
    put_into(board, "gpu-max-freq-zero")
    files = TreeFiles(board)
    hardware = Hardware.probe(files, board.clock, baseline=tmp_path / "baseline")
    path = f"{board.description.section('gpu')['devfreq'][0]}/max_freq"
    assert hardware.apply(hardware.grid().top._replace(gpu_hz=307200000), "held").accepted.gpu_hz == 307200000
    assert not hardware.restore().failed and files.read_text(path) == "0"


@pytest.mark.parametrize("said", ["0", "N/A", ""])
def test_one_file_that_says_nothing_hides_nothing_else(said: str) -> None:
    kernel = Saying()
    whole = Hardware.probe(kernel, FakeClock())
    rails, zones = set(whole.sensors.rails_mw()), set(whole.sensors.temperatures_mc())
    kept = "/proc/", "/sys/firmware/", "/etc/nv_tegra_release"
    for path in [path for path in kernel.store if not path.startswith(kept)]:
        kernel.said = path, said
        hardware = Hardware.probe(kernel, FakeClock())
        grid, _ = hardware.seen()
        hardware.moved_limits(), hardware.current()
        assert grid.size and all(isinstance(note, str) for note in hardware.notes), path
        assert len(rails - set(hardware.sensors.rails_mw())) + len(zones - set(hardware.sensors.temperatures_mc())) <= 1, path


def test_a_limit_that_cannot_be_read_any_more_is_named() -> None:
    board, hardware = found("orin-nano-8gb", "")
    path = f"{board.description.section('gpu')['devfreq'][0]}/max_freq"
    board.faults.refuse(board.tree.resolve(path), errno.EIO, access="read")
    grid, (unknown,) = hardware.seen()
    assert unknown.startswith("GPU clock: its limits are unknown: ") and "EIO" in unknown
    assert grid.gpu_hz == board.description.grid.gpu_hz


# The memory clock


@pytest.mark.parametrize(
    ("states", "why"),
    [
        ("no-debugfs", NOT_MOUNTED),
        ("debugfs-without-bpmp", SECURE),
        ("debugfs-of-mainline", "debugfs is that of a mainline kernel, without the firmware's clocks (bpmp)"),
        ("debugfs-locked-down", "the kernel is locked down and closes debugfs, as with secure boot"),
    ],
)
@pytest.mark.parametrize("nothing", [False, True])
def test_why_debugfs_is_not_had_is_told(states: str, why: str, nothing: bool) -> None:
    _, hardware = found("orin-nano-8gb", f"{states},no-memory-clock" if nothing else states)
    (note,) = [note for note in hardware.notes if "memory clock" in note]
    assert why in note and ("is taken to be at" if nothing else "can only be capped") in note


# Which module, and whose power modes


def test_a_module_that_the_device_tree_names_is_never_taken_for_another_one() -> None:
    _, hardware = found("agx-orin-64gb", "undescribed-module")
    described = hardware.description
    assert (described.name, described.like[:9]) == ("p3701-0009", "agx-orin-") and set(described.marks.values()) == {"unknown"}


def test_a_device_tree_without_a_module_lets_the_file_of_modes_name_one_of_its_chip() -> None:
    kernel = Kernel()
    tree = "/sys/firmware/devicetree/base"
    kernel.store[f"{tree}/model"] = "Acme X1\0"
    kernel.store[f"{tree}/compatible"] = "acme,carrier-x1\0nvidia,tegra234\0"
    kernel.store["/var/lib/nvpmodel/conf_file_path"] = "/etc/nvpmodel/nvpmodel_p3767_0003_super.conf\n"
    assert Hardware.probe(kernel, FakeClock()).description.name == "orin-nano-8gb"
    kernel.store[f"{tree}/compatible"] = "acme,carrier-x1\0nvidia,tegra194\0"
    assert Hardware.probe(kernel, FakeClock()).description.name == "tegra194"
    kernel.store[f"{tree}/compatible"] = "acme,carrier-x1\0nvidia,tegra999\0"
    with pytest.raises(InputError, match="no described board fits"):
        Hardware.probe(kernel, FakeClock())


@pytest.mark.parametrize(
    ("compatible", "name", "like"),
    [
        ("nvidia,p4071-0000+p3834-0009\0nvidia,p3834-0009\0nvidia,tegra264", "p3834-0009", "agx-thor"),
        ("nvidia,p3740-0002+p3701-0009\0nvidia,p3701-0009\0nvidia,tegra234", "p3701-0009", "agx-orin-32gb"),
        ("nvidia,p3509-0000+p3699-0001\0nvidia,tegra186", "tegra186", "tx2"),
        ("acme,carrier\0nvidia,tegra210", "tegra210", "nano"),
    ],
)
def test_a_module_without_a_description_is_like_one_of_its_series_or_chip(compatible: str, name: str, like: str) -> None:
    kernel = Kernel()
    kernel.store["/sys/firmware/devicetree/base/model"] = "Another board\0"
    kernel.store["/sys/firmware/devicetree/base/compatible"] = f"{compatible}\0"
    described = Hardware.probe(kernel, FakeClock()).description
    assert (described.name, described.like, described.title) == (name, like, "Another board")


@pytest.mark.parametrize("name", ["orin-nano-8gb", "xavier-nx", "agx-orin-64gb"])
def test_power_modes_of_another_module_bound_nothing_and_are_named(name: str) -> None:
    _, hardware = found(name, "conf-of-another-module")
    assert (hardware.mode(), hardware.modes) == (None, None) and not any("raised" in one for one in hardware.moved_limits())
    assert any("is written for another module, p3" in note for note in hardware.notes)
    assert hardware.grid().gpu_hz[-1] == found(name, "")[1].grid().gpu_hz[-1]


def test_a_file_of_a_described_board_of_the_same_chip_is_named_too() -> None:
    kernel = Kernel()
    kernel.store["/etc/nvpmodel.conf"] = "< POWER_MODEL ID=0 NAME=MAXN >\nGPU MAX_FREQ 318750000\n"
    kernel.store["/var/lib/nvpmodel/conf_file_path"] = "/etc/nvpmodel/nvpmodel_t194_p3668.conf"
    hardware = Hardware.probe(kernel, FakeClock())
    assert hardware.modes is None and "is written for another module" in hardware.mode_note
    kernel.store["/var/lib/nvpmodel/conf_file_path"] = "/etc/nvpmodel/nvpmodel_t194_own.conf"
    assert Hardware.probe(kernel, FakeClock()).modes is not None


def test_a_mode_that_the_file_does_not_list_is_named() -> None:
    board, _ = found("orin-nano-8gb", "")
    board.tree.write("/var/lib/nvpmodel/status", b"pmode:0009")
    hardware = Hardware.probe(TreeFiles(board), board.clock)
    assert hardware.mode_note == "power mode 9 is in force, which /etc/nvpmodel.conf does not list"


@pytest.mark.parametrize(
    ("status", "mask", "share", "named"),
    [
        ("7W", None, 0.5, False),  # as the mode says
        ("7W", "240", 1.0, True),  # the GPU had been used, so that nvpmodel could turn nothing off
        ("7W", "0", 1.0, True),  # units that a module lacks cannot be on
        ("15W", "252", 0.5, True),
        ("", "252", 0.5, False),  # nvpmodel does not say which mode is in force
        ("", "240", 1.0, False),
        ("", "", None, False),
        ("7W", "", 0.5, False),  # a driver without the file: the mode is all that is known
    ],
)
def test_gpu_units_count_as_the_driver_has_them_not_as_the_mode_asks(
    status: str, mask: str | None, share: float | None, named: bool
) -> None:
    board, probed = found("orin-nano-8gb", "", firmware="base")
    modes = probed.modes
    assert modes is not None
    numbers = {mode.name: mode for mode in modes.table}
    units = "/sys/devices/platform/17000000.gpu/tpc_pg_mask"
    units = board.tree.resolve(units)
    said = f"pmode:{numbers[status].id:04}" if status else "none"
    board.tree.put("/var/lib/nvpmodel/status", constant(said))
    value = str(numbers[status].masks["tpc_pg_mask"]) if mask is None else mask
    if value:
        board.tree.put(units, constant(value))
    else:
        board.faults.vanish(units)
    hardware = Hardware.probe(TreeFiles(board), board.clock)
    masks = hardware.masks(hardware.mode())
    assert share_on(masks, modes) == share and bool(pending_units(hardware.mode(), masks)) == named


@pytest.mark.parametrize("name", sorted(path.stem for path in BOARDS_DIR.glob("*.yaml")))
def test_a_board_that_started_in_a_mode_has_the_units_of_that_mode_on(name: str) -> None:
    described = load_board(name)
    for modes in described.modes:
        for mode in modes.table:
            how = {"firmware": modes.name} if modes.name in described.firmware else {}
            if modes is not described.modes[-1] and not how:
                continue  # of an earlier release
            hardware = found(name, "", mode=mode.name, **how)[1]
            assert hardware.modes is not None and hardware.mode() == mode
            masks = hardware.masks(mode)
            assert share_on(masks, hardware.modes) == share_on(mode.masks, hardware.modes) and not pending_units(mode, masks)


@pytest.mark.parametrize(("mask", "share"), [("", 1.0), ("0", 1.0), ("1", None)])
@pytest.mark.parametrize("status", ["none", "pmode:0000"])
def test_modes_without_masks_leave_all_units_on_unless_the_driver_says_otherwise(
    mask: str, share: float | None, status: str
) -> None:
    board, probed = found("tx2", "")
    assert probed.modes is not None and not any(mode.masks for mode in probed.modes.table)
    board.tree.put("/var/lib/nvpmodel/status", constant(status))
    if mask:
        board.tree.put(board.tree.resolve("/sys/devices/17000000.gp10b/tpc_pg_mask"), constant(mask))
    hardware = Hardware.probe(TreeFiles(board), board.clock)
    assert share_on(hardware.masks(hardware.mode()), probed.modes) == share


@pytest.mark.parametrize("name", ["orin-nano-8gb", "agx-xavier", "agx-thor"])
def test_the_memory_clock_of_a_mainline_kernel_is_set_by_its_limits(name: str, tmp_path: Path) -> None:
    board, _ = found(name, "mainline-memory-clock")
    hardware = Hardware.probe(TreeFiles(board), board.clock, baseline=tmp_path / "baseline")
    assert not [note for note in hardware.notes if "memory clock" in note]
    grid = hardware.grid()
    assert grid.emc_hz == load_board(name).grid.emc_hz
    for level in (grid.emc_hz[-1], grid.emc_hz[0], grid.emc_hz[1]):
        applied = hardware.apply(FrequencyConfiguration(grid.cpu_khz[-1], grid.gpu_hz[0], level), "test")
        assert applied.verified and applied.effective.emc_hz == level == board.configuration.emc_hz
        assert {write.value for write in applied.writes if "/debug/emc/" in write.path} <= set(map(str, grid.emc_hz))
    assert not hardware.restore().failed
    held = {path: board.tree.read(f"/sys/kernel/debug/emc/{path}").decode().strip() for path in ("min_rate", "max_rate")}
    assert held == {"min_rate": str(grid.emc_hz[0]), "max_rate": str(grid.emc_hz[-1])}


def test_a_power_mode_s_limit_of_a_mainline_memory_clock_bounds_what_is_offered() -> None:
    board, hardware = found("orin-nano-8gb", "mainline-memory-clock")
    board.tree.write("/sys/kernel/debug/emc/max_rate", b"2133000000")
    assert hardware.grid().emc_hz[-1] == 2133000000
