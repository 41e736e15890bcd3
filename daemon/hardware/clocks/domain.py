# SPDX-License-Identifier: Apache-2.0
"""A clock domain's files and their write order.

cpufreq, devfreq and the memory controller's debugfs have one shape: a *mode* file that hands the clock to us (governor
``userspace``, rate lock ``1``), a *setpoint* for the frequency, and two limits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from ...errors import DaemonError, HardwareHangs
from ..files import Files, Reader, rate_in

_MOST_DIGITS = 20


class Write(NamedTuple):
    path: str
    value: str


class ClockDomain(Struct, frozen=True):
    """The files of one clock: without a setpoint, both limits pin it; without a mode, the setpoint alone sets it.

    Attributes:
        mode: the mode file and the value that hands the clock to us.
        setpoint: takes the frequency in our mode; a word or missing in others.
        companions: further files that must hold these values meanwhile.
        floors, ceilings: limits within which a setpoint reads back (a ceiling of 0 is none).
        readback: file that shows a write-only setpoint.
        early: the setpoint is written before the mode, which then never holds another frequency.
        choices: file that lists the modes; without one, the mode is a number.
        positive: the kernel never shows 0 as a frequency, as in cpufreq.
    """

    name: str
    mode: Write | None = None
    setpoint: str | None = None
    low: str | None = None
    high: str | None = None
    companions: tuple[Write, ...] = ()
    floors: tuple[str, ...] = ()
    ceilings: tuple[str, ...] = ()
    readback: str | None = None
    early: bool = False
    choices: str | None = None
    positive: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        named = (self.low, self.high, self.setpoint, *(c.path for c in self.companions), self.mode and self.mode.path)
        return tuple(path for path in named if path)

    def plan(self, files: Reader, level: int) -> tuple[Write, ...]:
        """The writes that set the clock to ``level``, in order, without modes and limits that are correct already.

        The setpoint is always written: it may read as a throttled value, not as the kernel's request.
        """
        value = str(level)
        if self.setpoint is None:
            assert self.low is not None and self.high is not None
            return in_safe_order(files, Write(self.low, value), Write(self.high, value))
        if self.mode is None:
            return (Write(self.setpoint, value),)
        writes = []
        if self.low is not None and level < files.read_int(self.low):
            writes.append(Write(self.low, value))
        writes += [write for write in (self.mode, *self.companions) if files.read_text(write.path) != write.value]
        setpoint = Write(self.setpoint, value)
        return (setpoint, *writes) if self.early else (*writes, setpoint)

    def restore(
        self,
        files: Files,
        values: Mapping[str, str],
        touch: Collection[str],
        *,
        strict: bool = False,
        current: Mapping[str, str | None] | None = None,
    ) -> tuple[Write, ...]:
        """Writes, in order, that restore the files in ``touch`` to ``values``; none for those right in ``current``, as read.

        Limits first, then the setpoint in our mode, and the mode last; reversed if the setpoint comes early. A setpoint saved
        as a word (``<unsupported>``) had no value. A lower limit is restored even above an upper one that is not ours: the
        kernel keeps the request. One that refuses that (``strict``, Linux 4.9) gets the upper one.
        """
        numbers = (self.low, self.high, self.setpoint)
        touch = {path for path in touch if path in values and (path not in numbers or values[path].isdecimal())}
        writes = self._limits(files, values, touch, strict) if touch.intersection(numbers[:2]) else []
        rest = (self.setpoint, *(c.path for c in self.companions), self.mode and self.mode.path)
        for path in reversed(rest) if self.early else rest:
            if path is not None and path in touch and ((current or {}).get(path) or files.find_text(path)) != values[path]:
                writes.append(Write(path, values[path]))
        return tuple(writes)

    def _limits(self, files: Files, values: Mapping[str, str], touch: Collection[str], strict: bool) -> list[Write]:
        assert self.low is not None and self.high is not None
        low_now, high_now = files.find_int(self.low), files.find_int(self.high)
        if low_now is None or high_now is None:
            return [Write(path, values[path]) for path in (self.high, self.low) if path in touch]
        low = int(values[self.low]) if self.low in touch else low_now
        high = int(values[self.high]) if self.high in touch else high_now
        # Another program's limit remains; ours gives way if the kernel would not do so itself. An upper one of 0 is none.
        if low > high > 0 and self.low not in touch:
            high = low
        elif low > high > 0 and strict:
            low = high
        pair = in_safe_order(files, Write(self.low, str(low)), Write(self.high, str(high)))
        now = {self.low: str(low_now), self.high: str(high_now)}
        return [write for write in pair if write.path in touch and write.value != now[write.path]]

    def bounds(self, files: Files) -> tuple[int, int | None]:
        floors = [value for path in self.floors if (value := files.find_int(path))]
        ceilings = [value for path in self.ceilings if (value := files.find_int(path))]
        return max(floors, default=0), min(ceilings, default=None)

    def request(self, files: Files) -> tuple[str | None, int | None]:
        """The mode in force, and the frequency held for us (None while a governor or the firmware decides)."""
        if self.setpoint is not None:
            mode = _text(files, self.mode.path) if self.mode else None
            ours = self.mode is None or mode == self.mode.value
            return mode, rate_in(_text(files, self.readback or self.setpoint)) if ours else None
        low = rate_in(_text(files, self.low)) if self.low else None
        return None, low if low and self.high and low == rate_in(_text(files, self.high)) else None

    def could_hold(self, files: Files, path: str, text: str) -> bool:
        """True if one of its files can hold such a text; else it was misread."""
        if path in (self.low, self.high, self.setpoint):
            number = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
            return number and not (self.positive and int(text) == 0)
        if self.mode is None or path != self.mode.path or self.mode.value.isdecimal():
            return text in ("0", "1")
        if self.choices is None:
            return text.isidentifier()
        return text in (files.find_text(self.choices) or "").split()


def _text(files: Files, path: str) -> str | None:
    try:
        return files.read_text(path)
    except HardwareHangs:
        raise
    except DaemonError:
        return None


def in_safe_order(files: Reader, low: Write, high: Write) -> tuple[Write, Write]:
    """Both limits in the order in which the lower never exceeds the upper.

    Kernel 4.9 refuses the other order with EINVAL; 5.10 and later cut the value silently.
    """
    return (high, low) if int(high.value) >= files.read_int(high.path) else (low, high)


def write_each(files: Files, writes: Iterable[Write]) -> tuple[list[Write], list[str]]:
    done, failed = [], []
    for write in writes:
        try:
            files.write_text(write.path, write.value)
            done.append(write)
        except DaemonError as error:
            failed.append(str(error))
    return done, failed


def clamp(level: int, bounds: tuple[int, int | None]) -> int:
    """A level cut to limits; if they contradict each other, the upper one wins, as in the kernel."""
    low, high = bounds
    return max(level, low) if high is None else min(max(level, low), high)
