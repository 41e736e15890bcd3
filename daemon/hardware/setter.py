# SPDX-License-Identifier: Apache-2.0
"""Setting one clock: its writes in order, and a bounded wait until they show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...profiles.timing import Clock
from ..errors import HardwareHangs
from .clocks.domain import Write
from .clocks.driver import Driver, Reading, agrees, obeyed
from .files import Files

_SHORTEST_WAIT_S = 0.1
_WAIT_TRANSITIONS = 10
_POLL_S = 0.002


class ClockChange(NamedTuple):
    """Target of one clock: its writes in order, and the ``valid`` levels to list after a refusal."""

    driver: Driver
    level: int
    valid: tuple[int, ...]
    writes: Sequence[Write]


class Setter:
    def __init__(self, files: Files, clock: Clock) -> None:
        self.done: list[Write] = []
        self._files = files
        self._clock = clock

    def set(self, step: ClockChange) -> tuple[Reading, ...]:
        for write in step.writes:
            try:
                self._files.write_text(write.path, write.value, step.valid if write.value == str(step.level) else ())
            except HardwareHangs:
                self.done.append(write)  # it may yet take effect
                raise
            self.done.append(write)
        return self.settle(step)

    def settle(self, step: ClockChange) -> tuple[Reading, ...]:
        longest_s = max(_SHORTEST_WAIT_S, _WAIT_TRANSITIONS * step.driver.transition_ms / 1000)
        deadline = self._clock.monotonic() + longest_s
        while True:
            readings = step.driver.read()
            if all(obeyed(reading, step.level) for reading in readings) or self._clock.monotonic() >= deadline:
                return readings
            self._clock.sleep(_POLL_S)
            # The clock moves last: until then, nothing else is read.
            while self._clock.monotonic() < deadline and not all(agrees(one, step.level) for one in step.driver.measured()):
                self._clock.sleep(_POLL_S)
