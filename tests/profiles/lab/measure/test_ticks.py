# SPDX-License-Identifier: Apache-2.0
"""Energy between the ticks of a counter that moves each 100 ms, as NVML's was recorded to."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from jetdvfs.profiles.errors import MeasurementError
from jetdvfs.profiles.lab.measure.meters.ticks import CounterReader


class Ticking:
    """A counter that shows every 100 ms what was drawn until then: 400 W while something runs, else 100 W."""

    rails = ("gpu",)

    def __init__(self, fails_after: int = 10**9) -> None:
        self.power_w, self._energy_uj, self._since_s, self._shown_uj, self._tick = 100.0, 0.0, time.monotonic(), 0, 0
        self._fails_after, self._began_s = fails_after, time.monotonic()

    def run_at(self, power_w: float) -> None:
        self._count()
        self.power_w = power_w

    def _count(self) -> None:
        now_s = time.monotonic()
        while (at_s := self._began_s + 0.1 * (self._tick + 1)) <= now_s:
            self._energy_uj += 1e6 * self.power_w * (at_s - self._since_s)
            self._since_s, self._tick, self._shown_uj = at_s, self._tick + 1, round(self._energy_uj)
        self._energy_uj += 1e6 * self.power_w * (now_s - self._since_s)
        self._since_s = now_s

    def read_uj(self) -> dict[str, int]:
        self._fails_after -= 1
        if self._fails_after < 0:
            raise MeasurementError("meter: NVML, energy: GPU is lost")
        self._count()
        return {"gpu": self._shown_uj}

    def since_mj(self, before: Mapping[str, int]) -> dict[str, float]:
        return {"gpu": (self.read_uj()["gpu"] - before["gpu"]) / 1e3}


@pytest.mark.alone
def test_power_of_a_run_is_that_between_its_ticks_whenever_it_begins() -> None:
    counter = Ticking()
    ticks = CounterReader(counter)
    for rest_s in (0.03, 0.05, 0.09):
        counter.run_at(100.0)
        time.sleep(rest_s)
        counter.run_at(400.0)
        before, began_s = ticks.read_uj(), time.monotonic()
        time.sleep(0.35)
        energy_mj = ticks.since_mj(before)["gpu"]
        assert ticks.seen >= 3
        assert energy_mj / (time.monotonic() - began_s) == pytest.approx(400e3, rel=0.05)


def test_a_run_shorter_than_two_ticks_is_read_as_it_stands() -> None:
    counter = Ticking()
    ticks = CounterReader(counter)
    before = ticks.read_uj()
    assert ticks.since_mj(before)["gpu"] >= 0 and ticks.seen < 2


def test_a_gpu_that_is_lost_meanwhile_is_told_where_the_energy_is_asked_for() -> None:
    ticks = CounterReader(Ticking(fails_after=4))
    before = ticks.read_uj()
    time.sleep(0.1)
    with pytest.raises(MeasurementError, match="GPU is lost"):
        ticks.since_mj(before)
