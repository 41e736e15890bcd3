# SPDX-License-Identifier: Apache-2.0
"""The drivers on a simulated board's files, through FUSE and as a plain folder."""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.daemon.errors import HardwareBusy, HardwareRefused
from jetdvfs.daemon.hardware.files import Files
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.timing import SystemClock
from jetdvfs.profiles.twin.serve import serve
from jetdvfs.profiles.twin.simulated_board import SimulatedBoard, simulated_board
from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.tests.support.boards.hardware_kernel import CPU, EMC, GPU, XAVIER, FakeClock, Kernel

TOP = XAVIER.grid.top
BOTTOM = FrequencyConfiguration(115200, 114750000, 204000000)
MIDDLE = FrequencyConfiguration(1190400, 675750000, 1331200000)
MIXED = FrequencyConfiguration(345600, 1377000000, 800000000)
SETTINGS = (
    *(f"{CPU}/{name}" for name in ("scaling_governor", "scaling_min_freq", "scaling_max_freq")),
    *(f"{GPU}/{name}" for name in ("governor", "min_freq", "max_freq")),
    f"{EMC}/mrq_rate_locked",
    f"{EMC}/state",
)


class Served:
    """A simulated board, its files, and what was written to them."""

    def __init__(self, board: SimulatedBoard, mount: Path, folder: Path) -> None:
        self.board = board
        self.mount = mount
        self.baseline = folder / "baseline.json"
        self.written: list[tuple[str, str]] = []

    def start(self) -> Hardware:
        files = Files(self.mount, lambda path, value: self.written.append((path, value)))
        return Hardware.probe(files, SystemClock(), baseline=self.baseline)

    def settings(self) -> dict[str, str]:
        return {path: Files(self.mount).read_text(path) for path in SETTINGS}

    def set_by_somebody(self, path: str, value: str) -> None:
        Files(self.mount).write_text(path, value)


def serving(tmp_path: Path, backend: str) -> Iterator[Served]:
    board = simulated_board("agx-xavier", node=3)
    with serve(board, tmp_path / "mount", backend) as running:
        yield Served(board, running.mount, tmp_path)


@pytest.fixture
def twin(tmp_path: Path) -> Iterator[Served]:
    if obstacle := fuse.missing():
        pytest.skip(f"needs FUSE: {obstacle}")
    yield from serving(tmp_path, "fuse")


@pytest.fixture(params=["fuse", "folder"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    """A twin by either backend."""
    if request.param == "fuse" and (obstacle := fuse.missing()):
        pytest.skip(f"needs FUSE: {obstacle}")
    yield from serving(tmp_path, request.param)


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether something comes true within two seconds; a plain folder follows a little later."""
    deadline = time.monotonic() + 2
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_simulated_board_obeys_and_is_given_back(either: Served) -> None:
    found = either.settings()
    hardware = either.start()
    for configuration in (MIDDLE, TOP, BOTTOM, MIXED):
        applied = hardware.apply(configuration, "test")
        assert applied.verified, applied.notes
        assert applied.accepted == either.board.configuration == configuration
    assert hardware.restore().failed == ()
    assert eventually(lambda: either.settings() == found)
    assert not either.baseline.exists()


def test_the_writes_are_those_of_the_kernel_in_memory(twin: Served, tmp_path: Path) -> None:
    kernel = Kernel()
    for path in SETTINGS:
        kernel.take(path, twin.settings()[path])
    kernel.store[f"{EMC}/rate"] = Files(twin.mount).read_text(f"{EMC}/rate")
    other = Hardware.probe(kernel, FakeClock(), baseline=tmp_path / "other.json")
    hardware = twin.start()
    for configuration in (MIDDLE, TOP, BOTTOM, MIXED):
        hardware.apply(configuration, "test")
        other.apply(configuration, "test")
    hardware.restore()
    other.restore()
    assert [w for w in twin.written if w[0] != f"{EMC}/rate"] == [w for w in kernel.written if w[0] != f"{EMC}/rate"]
    assert len(twin.written) > 15


def test_a_process_that_was_killed_is_cleaned_up_after_and_somebody_elses_clock_is_left(twin: Served) -> None:
    found = twin.settings()
    twin.start().apply(MIXED, "test")
    twin.set_by_somebody(f"{GPU}/min_freq", "318750000")
    twin.set_by_somebody(f"{CPU}/scaling_governor", "performance")
    again = twin.start()
    assert again.touched
    report = again.restore()
    left = {f"{GPU}/min_freq": "318750000", f"{CPU}/scaling_governor": "performance"}
    # We never wrote the GPU's limit; it was another one when the clock was taken.
    assert {text.split(":")[0] for text in report.left} == left.keys() and set(report.clocks) == {"CPU clock", "GPU clock"}
    assert twin.settings() == {**found, **left}


@pytest.mark.parametrize("path", [f"{EMC}/rate", f"{GPU}/userspace/set_freq", f"{CPU}/scaling_setspeed"])
def test_a_refusal_by_the_board_puts_everything_back(twin: Served, path: str) -> None:
    found = twin.settings()
    hardware = twin.start()
    twin.board.faults.refuse(twin.board.tree.resolve(path), errno.EINVAL)
    with pytest.raises(HardwareRefused, match=rf"{path}: writing .* EINVAL .*; valid: .*; all clocks were put back"):
        hardware.apply(MIDDLE, "test")
    assert twin.settings() == found
    assert not twin.baseline.exists()


def test_a_stuck_clock_is_told_apart_from_an_accepted_one(twin: Served) -> None:
    hardware = twin.start()
    twin.board.faults.stick("gpu", 318750000)
    applied = hardware.apply(MIDDLE, "test")
    assert not applied.verified
    assert applied.accepted == MIDDLE
    assert applied.effective.gpu_hz == 318750000
    assert applied.notes == ("GPU clock: set to 675.75 MHz, measured 318.75 MHz: throttled, or stuck",)


def test_the_memory_cap_of_the_power_mode_binds(twin: Served) -> None:
    twin.set_by_somebody(XAVIER.section("emc")["cap"], "1331200000")
    hardware = twin.start()
    assert hardware.grid().emc_hz[-1] == 1331200000
    with pytest.raises(HardwareRefused, match="emc_hz=2133000000 is not offered now"):
        hardware.apply(TOP, "test")


def test_under_the_lock_the_memory_clock_may_stay_below_the_floor_that_comes_with_the_cpu_clock(twin: Served) -> None:
    floors = twin.board.description.section("cpu")["emc_floors"]
    low_memory = TOP._replace(emc_hz=204000000)
    assert floors[0][0] <= low_memory.cpu_khz and floors[0][1] > low_memory.emc_hz  # what the kernel asks for there
    hardware = twin.start()
    applied = hardware.apply(low_memory, "test")
    assert applied.verified and applied.accepted == low_memory
    hardware.restore()


def test_a_gpu_that_has_not_appeared_is_fixed_until_it_does(twin: Served) -> None:
    twin.board.faults.vanish(twin.board.tree.resolve(GPU.rpartition("/devfreq/")[0]))
    hardware = twin.start()
    assert len(hardware.grid().gpu_hz) == 1
    assert "GPU clock is taken to be at" in hardware.notes[0]
    twin.board.faults.clear()
    assert len(hardware.grid().gpu_hz) == 14
    assert hardware.apply(MIDDLE, "test").verified


def test_a_gpu_that_vanishes_during_a_hold_is_given_back_when_it_returns(twin: Served) -> None:
    hardware = twin.start()
    hardware.apply(MIDDLE, "test")
    twin.board.faults.vanish(twin.board.tree.resolve(GPU))
    with pytest.raises(HardwareBusy, match="ENOENT"):
        hardware.apply(TOP, "test")
    report = hardware.restore()
    assert [text.split(":")[0] for text in report.failed] == [f"{GPU}/governor"]
    assert Files(twin.mount).read_text(f"{EMC}/mrq_rate_locked") == "0"
    assert Files(twin.mount).read_text(f"{CPU}/scaling_governor") == XAVIER.section("cpu")["governor"]
    twin.board.faults.clear()
    assert hardware.restore().failed == ()
    assert Files(twin.mount).read_text(f"{GPU}/governor") == XAVIER.section("gpu")["governor"]


def test_rails_and_zones_are_those_of_the_description(twin: Served) -> None:
    hardware = twin.start()
    rails_mw = hardware.sensors.rails_mw()
    assert set(rails_mw) == {rail for monitor in XAVIER.monitors for rail in monitor.channels}
    assert 0 < sum(rails_mw[rail] for rail in XAVIER.energy_rails) < 60_000
    assert set(hardware.sensors.temperatures_mc()) == set(XAVIER.section("thermal")["zones"])


def test_board_shows_the_simulated_board(twin: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "--root", str(twin.mount), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["board"], shown["configurations"], shown["l4t"], shown["notes"]) == ("agx-xavier", 3654, "35.3.1", [])


def test_the_memory_is_not_locked_where_the_kernel_keeps_it_at_the_level_by_itself(twin: Served) -> None:
    found = twin.settings()
    hardware = twin.start()
    assert hardware.apply(TOP, "top").verified
    assert hardware.current().emc_hz == pytest.approx(TOP.emc_hz, rel=0.01)
    assert not [path for path, _ in twin.written if path.startswith(EMC)]
    # Below, it would follow the load.
    assert hardware.apply(TOP._replace(cpu_khz=1190400), "slower CPU").verified
    assert (f"{EMC}/mrq_rate_locked", "1") in twin.written
    assert hardware.current().emc_hz == pytest.approx(TOP.emc_hz, rel=0.01)
    assert not hardware.restore().failed
    assert twin.settings() == found
