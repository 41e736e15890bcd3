# SPDX-License-Identifier: Apache-2.0
"""Every board of the family: the ordered writes of every kind of transition, every way to its clocks, every end state."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetdvfs.daemon.errors import DaemonError
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.kernels.grid import FrequencyConfiguration, FrequencyGrid
from jetdvfs.profiles.board import BoardDescription, list_boards, load_board
from jetdvfs.tests.support.boards.hardware_kernel import CPUFREQ, FakeClock, Kernel, Killed
from jetdvfs.tests.support.snapshots import record, recorded

FAMILY = [load_board(name) for name in list_boards()]


def named(board: BoardDescription) -> str:
    return board.name


def rules_of(board: BoardDescription) -> str:
    return "4.9" if board.kernel == "4.9" else "5.10"


def systems(board: BoardDescription) -> Iterator[tuple[str, Kernel]]:
    """The systems one may find on a board: each way to the memory clock, and a GPU without the userspace governor."""
    for way in board.section("emc")["drivers"]:
        yield f"emc by {way}", Kernel(board, rules=rules_of(board), emc=(way,))
    yield "gpu by limits", Kernel(board, rules=rules_of(board), gpu_userspace=False)
    other = "5.10" if rules_of(board) == "4.9" else "4.9"
    yield f"kernel {other}", Kernel(board, rules=other)


SYSTEMS = [(name, kernel) for board in FAMILY for name, kernel in systems(board)]


def corners(grid: FrequencyGrid) -> dict[str, FrequencyConfiguration]:
    low, middle, high = (FrequencyConfiguration(*(axis[at(len(axis))] for axis in axes(grid))) for at in (first, half, last))
    return {
        "from the board's own governors": middle,
        "everything up": high,
        "everything down": low,
        "cpu up, gpu and memory stay": low._replace(cpu_khz=high.cpu_khz),
        "cpu down, gpu and memory up": high._replace(cpu_khz=low.cpu_khz),
        "gpu down, cpu up, memory half": middle._replace(cpu_khz=high.cpu_khz, gpu_hz=low.gpu_hz),
    }


def axes(grid: FrequencyGrid) -> tuple[tuple[int, ...], ...]:
    return grid.cpu_khz, grid.gpu_hz, grid.emc_hz


def first(_: int) -> int:
    return 0


def half(count: int) -> int:
    return count // 2


def last(_: int) -> int:
    return -1


def short(kernel: Kernel, path: str) -> str:
    section = kernel.emc
    places = {CPUFREQ: "cpu", kernel.gpu: "gpu"}
    places |= {section[way]: f"emc {way}" for way in ("bpmp", "override", "devfreq", "cap", "halt") if way in section}
    for folder, name in places.items():
        if path.startswith(folder):
            return name + path.removeprefix(folder)
    return path


def transitions(kernel: Kernel, folder: Path) -> Iterator[str]:
    hardware = Hardware.probe(kernel, FakeClock(), boards=[kernel.board], baseline=folder / "baseline.json")
    for title, configuration in corners(hardware.grid()).items():
        kernel.written.clear()
        assert hardware.apply(configuration, "test").verified
        yield f"{title}: {' '.join(map(str, configuration))}"
        yield from (f"  {short(kernel, path)} = {value}" for path, value in kernel.written)
    kernel.written.clear()
    assert not hardware.restore().failed
    yield "given back:"
    yield from (f"  {short(kernel, path)} = {value}" for path, value in kernel.written)


@pytest.mark.parametrize("board", FAMILY, ids=named)
def test_the_ordered_writes_of_every_transition(board: BoardDescription, tmp_path: Path) -> None:
    for number, (name, kernel) in enumerate(systems(board)):
        (folder := tmp_path / str(number)).mkdir()
        made = "\n".join(transitions(kernel, folder))
        assert made == recorded(board.name, name), "if the order was meant to change: run this file"


@pytest.mark.parametrize("board", FAMILY, ids=named)
def test_a_memory_clock_out_of_reach_is_fixed_and_said_to_be(board: BoardDescription) -> None:
    hardware = Hardware.probe(Kernel(board, emc=()), FakeClock(), boards=[board])
    assert hardware.grid().emc_hz == (board.grid.emc_hz[-1],)
    assert any("memory clock is taken to be at" in note and "cannot be seen" in note for note in hardware.notes)


def test_a_memory_clock_that_can_only_be_capped_is_said_to_be() -> None:
    board = load_board("orin-nx-16gb")
    kernel = Kernel(board, emc=("cap",))
    kernel.store[board.section("emc")["cap"]] = "2133000000"
    hardware = Hardware.probe(kernel, FakeClock(), boards=[board])
    assert hardware.grid().emc_hz == (204000000, 665600000, 2133000000)
    assert "memory clock can only be capped (debugfs is not mounted): it moves below the requested clock" in hardware.notes


def test_the_memory_rates_of_a_table_in_one_file_are_read() -> None:
    board = load_board("agx-thor")
    kernel = Kernel(board)
    kernel.store[board.section("emc")["table"]] = "0 665600000 700000\n1 2133000000 720000\n2 4266000000 900000\n"
    assert Hardware.probe(kernel, FakeClock()).grid().emc_hz == (665600000, 2133000000, 4266000000)


@pytest.mark.parametrize("board", FAMILY, ids=named)
def test_rails_are_read_as_the_kernel_of_the_board_shows_them(board: BoardDescription) -> None:
    hardware = Hardware.probe(Kernel(board, rules=rules_of(board)), FakeClock(), boards=[board])
    rails = {rail for monitor in board.monitors for rail in monitor.channels if rail != "NC"}
    assert set(hardware.sensors.rails_mw()) == rails
    assert all(power > 0 for power in hardware.sensors.rails_mw().values())
    assert not [note for note in hardware.notes if "power rails" in note]


def test_a_monitor_that_works_out_the_power_itself_is_read_in_microwatts() -> None:
    assert Hardware.probe(Kernel(load_board("agx-thor")), FakeClock()).sensors.rails_mw()["VIN"] == 2500


# Throttling and fan


def test_a_zone_past_its_passive_trip_is_named_as_what_throttles() -> None:
    kernel = Kernel()
    zone = "/sys/class/thermal/thermal_zone0"
    kernel.store |= {f"{zone}/trip_point_0_type": "passive", f"{zone}/trip_point_0_temp": "90000"}
    kernel.store |= {f"{zone}/trip_point_1_type": "critical", f"{zone}/trip_point_1_temp": "95500"}
    kernel.store |= {f"{zone}/trip_point_2_type": "active", f"{zone}/trip_point_2_temp": "0"}
    hardware = Hardware.probe(kernel, FakeClock())
    assert [tuple(trip) for trip in hardware.sensors.trips] == [
        ("CPU-therm", "passive", 90000),
        ("CPU-therm", "critical", 95500),
    ]
    assert hardware.throttled() == ()
    kernel.store[f"{zone}/temp"] = "91250"
    assert hardware.throttled() == ("CPU-therm is past its passive trip at 90 C",)


def test_over_current_events_are_counted_where_the_board_counts_them() -> None:
    kernel = Kernel(load_board("orin-nano-8gb"))
    hardware = Hardware.probe(kernel, FakeClock())
    assert hardware.sensors.over_current() == {}
    node = "/sys/class/hwmon/hwmon3"
    kernel.store |= {f"{node}/name": "soctherm_oc", f"{node}/oc1_event_cnt": "0", f"{node}/oc3_event_cnt": "27390"}
    kernel.store[f"{node}/oc3_throt_en"] = "1"
    assert hardware.sensors.over_current() == {"oc1": 0, "oc3": 27390}


@pytest.mark.parametrize(
    ("files", "drive", "rpm"),
    [
        ({"/sys/class/hwmon/hwmon2/name": "pwmfan", "/sys/class/hwmon/hwmon2/pwm1": "51"}, 0.2, None),
        (
            {
                "/sys/class/hwmon/hwmon2/name": "pwmfan",
                "/sys/class/hwmon/hwmon2/pwm1": "255",
                "/sys/class/hwmon/hwmon0/name": "pwm_tach",
                "/sys/class/hwmon/hwmon0/rpm": "2900",
            },
            1.0,
            2900,
        ),
        ({"/sys/devices/pwm-fan/cur_pwm": "102", "/sys/devices/pwm-fan/rpm_measured": "1200"}, 0.4, 1200),
    ],
)
def test_the_fan_is_read_on_every_release(files: dict[str, str], drive: float, rpm: int | None) -> None:
    kernel = Kernel()
    hardware = Hardware.probe(kernel, FakeClock())
    assert hardware.fan() is None
    kernel.store |= files
    fan = hardware.fan()
    assert fan is not None
    assert fan.drive == pytest.approx(drive)
    assert fan.rpm == rpm


# Every end state


def ordered(kernel: Kernel) -> bool:
    """Whether no lower limit stands above its upper one."""
    pairs = [(path, path.replace("min_freq", "max_freq")) for path in kernel.store if path.endswith("min_freq")]
    return all(int(kernel.store[low]) <= int(kernel.store[high]) for low, high in pairs)


def clocks(kernel: Kernel) -> dict[str, str]:
    """What others see of the clocks; a setpoint counts only while its mode is in force."""
    fleeting = ("scaling_setspeed", "set_freq", "cur_freq", "clk_update_rate", "pto_counter", "scaling_cur_freq")
    loose = ("rate", "clk_rate")
    return {path: value for path, value in kernel.store.items() if path.rpartition("/")[2] not in (*fleeting, *loose)}


shares = st.tuples(st.floats(0, 0.999), st.floats(0, 0.999), st.floats(0, 0.999))
troubles = st.one_of(st.none(), st.tuples(st.sampled_from(("refused", "killed")), st.integers(1, 60)))


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(range(len(SYSTEMS))), st.lists(st.tuples(shares, troubles), min_size=1, max_size=4))
def test_whatever_is_asked_of_whichever_board_it_ends_as_asked_or_as_found(
    system: int, requests: list[tuple[tuple[float, float, float], tuple[str, int] | None]]
) -> None:
    name, template = SYSTEMS[system]
    kernel = Kernel(template.board, rules=template.rules, emc=template.ways, gpu_userspace="limits" not in name)

    def watch() -> None:
        if not ordered(kernel):
            pytest.fail(f"{name}: a lower limit stands above its upper one")

    kernel.watch = watch
    found = clocks(kernel)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "baseline.json"
        hardware = Hardware.probe(kernel, FakeClock(), boards=[kernel.board], baseline=place)
        for parts, trouble in requests:
            levels = axes(hardware.grid())
            wanted = FrequencyConfiguration(*(axis[int(part * len(axis))] for axis, part in zip(levels, parts, strict=True)))
            before, count = clocks(kernel), 0

            def refuse(path: str, value: str, trouble: tuple[str, int] | None = trouble) -> int:
                nonlocal count
                count += 1
                if trouble is None or count != trouble[1]:
                    return 0
                if trouble[0] == "killed":
                    raise Killed
                return errno.EIO

            kernel.refuse = refuse
            try:
                assert hardware.apply(wanted, "test").verified
                assert hardware.current() == wanted
            except DaemonError:
                assert clocks(kernel) == before
            except Killed:
                kernel.refuse = lambda path, value: 0
                hardware = Hardware.probe(kernel, FakeClock(), boards=[kernel.board], baseline=place)
                assert not hardware.restore().failed
                assert clocks(kernel) == found
            kernel.refuse = lambda path, value: 0
        report = hardware.restore()
        assert not report.failed and not report.left
        assert clocks(kernel) == found
        assert not place.exists()


if __name__ == "__main__":
    for described in FAMILY:
        for name, kernel in systems(described):
            with tempfile.TemporaryDirectory() as place:
                record(described.name, name, transitions(kernel, Path(place)))
