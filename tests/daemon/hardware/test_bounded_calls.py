# SPDX-License-Identifier: Apache-2.0
"""Files that do not answer: they are named, and hold nobody up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jetdvfs.daemon.errors import HardwareHangs
from jetdvfs.daemon.hardware.bounded_calls import BoundedCalls
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.support.boards.hardware_kernel import EMC, GPU, FakeClock, Kernel

MIDDLE = FrequencyConfiguration(1190400, 675750000, 1331200000)


class Stuck:
    """Files whose names end like this do not answer until ``answer`` is called."""

    def __init__(self, kernel: Kernel, end: str) -> None:
        self._answers, self._end = threading.Event(), end
        kernel.hold_up = self._hold_up

    def _hold_up(self, path: str) -> None:
        if path.endswith(self._end):
            self._answers.wait(30)

    def answer(self) -> None:
        self._answers.set()


def soon(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return bool(condition())


@pytest.fixture
def patient() -> Kernel:
    return Kernel(longest_s=0.05)


def test_a_sensor_that_hangs_takes_nobody_with_it(patient: Kernel, clock: FakeClock) -> None:
    hardware = Hardware.probe(patient, clock)
    stuck = Stuck(patient, "curr2_input")
    started = time.monotonic()
    assert len(hardware.sensors.rails_mw()) < 6
    hardware.sensors.rails_mw()
    assert time.monotonic() - started < 2
    assert [note for note in hardware.notes if note.endswith("curr2_input: reading it hangs")]
    assert hardware.sensors.temperatures_mc() == {"CPU-therm": 41500}
    stuck.answer()
    assert soon(lambda: len(hardware.sensors.rails_mw()) == 6)
    assert not [note for note in hardware.notes if "hangs" in note]


def test_a_clock_that_hangs_is_named_and_holds_nobody_up(patient: Kernel, clock: FakeClock, tmp_path: Path) -> None:
    hardware = Hardware.probe(patient, clock, baseline=tmp_path / "baseline.json")
    hardware.apply(MIDDLE, "test")
    stuck = Stuck(patient, "pto_counter")
    started = time.monotonic()
    hardware.read()
    for _ in range(20):
        with pytest.raises(HardwareHangs, match="pto_counter: reading it hangs"):
            hardware.read()
    with pytest.raises(HardwareHangs, match="pto_counter: reading it hangs"):
        hardware.apply(MIDDLE._replace(gpu_hz=318750000), "test")
    assert time.monotonic() - started < 2
    assert f"{EMC}/pto_counter: reading it hangs" in hardware.notes
    assert patient.store[f"{GPU}/userspace/set_freq"] == str(MIDDLE.gpu_hz)
    stuck.answer()
    assert soon(lambda: not [note for note in hardware.notes if "hangs" in note])
    assert hardware.current() == MIDDLE


def test_a_write_that_hangs_is_put_back_when_it_has_taken_effect_after_all(
    patient: Kernel, clock: FakeClock, tmp_path: Path
) -> None:
    hardware = Hardware.probe(patient, clock, baseline=tmp_path / "baseline.json")
    found = dict(patient.store)
    stuck = Stuck(patient, "emc/rate=")
    with pytest.raises(HardwareHangs, match=r"emc/rate: writing '1331200000' hangs; not everything could be put back"):
        hardware.apply(MIDDLE, "test")
    touched = hardware.touched
    assert touched
    stuck.answer()
    assert soon(lambda: not hardware.restore().failed)
    assert not hardware.touched
    assert patient.store[f"{GPU}/governor"] == found[f"{GPU}/governor"]
    assert patient.store[f"{EMC}/mrq_rate_locked"] == "0"


def test_a_slow_file_that_is_read_with_more_does_not_count_as_hanging() -> None:
    calls = BoundedCalls(1.0)

    def read(path: str) -> str:
        time.sleep(0.9 if path == "/slow/zone" else 0.2)
        return path

    paths = ("/one/zone", "/two/zone", "/slow/zone", "/last/zone")
    try:
        assert calls.call_each(paths, "reading it", read, 0.5) == {path: path for path in paths[:3]}
        assert calls.hanging == ()
    finally:
        calls.end()
