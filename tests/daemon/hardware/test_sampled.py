# SPDX-License-Identifier: Apache-2.0
"""Sensors that are read by a thread of their own: slow ones make nobody wait, and old values are none."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from jetdvfs.daemon.hardware.sensors.sampled import TOO_OLD_S, SampledSensors
from jetdvfs.tests.support.boards.hardware_kernel import XAVIER, Kernel
from jetdvfs.tests.support.daemons.board_daemon import eventually

ZONE = "/sys/class/thermal/thermal_zone0"
RAILS = {"GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"}


class Sampled:
    def __init__(self) -> None:
        self.kernel = Kernel(longest_s=0.5)
        self.ahead_s = 0.0
        self.sensors = SampledSensors(self.kernel, XAVIER, lambda: time.monotonic() + self.ahead_s)


@pytest.fixture
def sampled() -> Iterator[Sampled]:
    made = Sampled()
    yield made
    made.sensors.stop()


def test_what_was_read_last_is_told_without_reading(sampled: Sampled) -> None:
    assert (sampled.sensors.rails_mw(), sampled.sensors.temperatures_mc(), sampled.sensors.notes) == ({}, {}, ())
    sampled.sensors.start()
    assert eventually(lambda: set(sampled.sensors.rails_mw()) == RAILS)
    assert eventually(lambda: sampled.sensors.temperatures_mc() == {"CPU-therm": 41500})
    sampled.kernel.store[f"{ZONE}/temp"] = "50000"

    def again() -> bool:
        sampled.sensors.want()
        return sampled.sensors.temperatures_mc() == {"CPU-therm": 50000}

    assert eventually(again)


def test_what_begins_before_sensors_were_read_has_energy_to_count_from(sampled: Sampled) -> None:
    began_mj = sampled.sensors.energy_mj()
    assert began_mj == dict.fromkeys(XAVIER.energy_rails, 0.0) and began_mj
    sampled.sensors.start()
    assert eventually(lambda: all(sampled.sensors.energy_mj()[rail] > 0 for rail in began_mj))


def test_while_they_are_read_sensors_keep_their_order(sampled: Sampled) -> None:
    sampled.sensors.start()
    assert eventually(lambda: set(sampled.sensors.rails_mw()) == RAILS and sampled.sensors.temperatures_mc())
    order, seen = list(sampled.sensors.rails_mw()), list[list[str]]()
    sampled.kernel.hold_up = lambda _: seen.append(list(sampled.sensors.rails_mw()))
    sampled.sensors.want()
    assert eventually(lambda: len(seen) > len(RAILS))
    assert all(listed == order for listed in seen)


@pytest.mark.alone
def test_a_zone_that_hangs_makes_nobody_wait_and_its_value_grows_old(sampled: Sampled) -> None:
    over = threading.Event()
    sampled.sensors.start()
    assert eventually(lambda: sampled.sensors.temperatures_mc())

    def hang(path: str) -> None:
        if path == f"{ZONE}/temp":
            over.wait(5)

    sampled.kernel.hold_up = hang
    sampled.sensors.want()
    started = time.monotonic()
    while time.monotonic() - started < 1.5:
        asked = time.monotonic()
        sampled.sensors.throttled(now=True)
        assert set(sampled.sensors.rails_mw()) == RAILS
        assert time.monotonic() - asked < 0.4
        time.sleep(0.05)
    assert eventually(lambda: f"{ZONE}/temp: reading it hangs" in sampled.sensors.notes)
    sampled.ahead_s = TOO_OLD_S + 1
    assert eventually(lambda: sampled.sensors.temperatures_mc() == {})
    over.set()


def test_a_value_that_is_too_old_is_none_and_is_said_to_be(sampled: Sampled) -> None:
    sampled.sensors.start()
    assert eventually(lambda: sampled.sensors.temperatures_mc() and len(sampled.sensors.rails_mw()) == 6)
    sampled.sensors.stop()
    sampled.ahead_s = TOO_OLD_S + 1
    assert (sampled.sensors.rails_mw(), sampled.sensors.temperatures_mc()) == ({}, {})
    (note,) = sampled.sensors.notes
    assert "CPU-therm" in note and "VDDRQ" in note and "not read for 15 s" in note


def test_monitors_that_read_nothing_are_said_to_and_count_for_nothing(sampled: Sampled) -> None:
    milliamperes = {path: text for path, text in sampled.kernel.store.items() if "in_current" in path or "/curr" in path}
    sampled.kernel.store.update(dict.fromkeys(milliamperes, "0"))
    sampled.sensors.start()
    assert eventually(lambda: any("0 mW is read" in note for note in sampled.sensors.notes))
    assert not set(XAVIER.energy_rails) & set(sampled.sensors.rails_mw())
    assert not any(sampled.sensors.energy_mj().get(rail, 0.0) for rail in XAVIER.energy_rails)
    sampled.kernel.store.update(milliamperes)

    def measured() -> bool:
        sampled.sensors.want()
        return set(XAVIER.energy_rails) <= set(sampled.sensors.rails_mw()) and not sampled.sensors.notes

    assert eventually(measured)


@pytest.mark.parametrize("text", ["nan", "inf", "1e300", str(10**40), "", "-300000", "9999999", "²", "<unknown>"])
def test_figures_that_are_none_are_absent(sampled: Sampled, text: str) -> None:
    sampled.kernel.store[f"{ZONE}/temp"] = text
    for path in sampled.kernel.store:
        if "in_current" in path or "/curr" in path:
            sampled.kernel.store[path] = text
    sampled.sensors.start()
    assert eventually(lambda: sampled.sensors.trips or not sampled.sensors.rails_mw())
    time.sleep(0.2)
    assert (sampled.sensors.rails_mw(), sampled.sensors.temperatures_mc()) == ({}, {})
