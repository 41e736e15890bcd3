# SPDX-License-Identifier: Apache-2.0
"""Clocks that deviate from their setting, because of nvpmodel, jetson_clocks, a person, or heat.

A clock that another program set is set again after two seconds, doubled up to five minutes until it has stayed as set for a
minute. A slow clock is reported; if it is cool and stays slow, leases are planned for its actual level. Limits that the kernel
lowers against heat are no other program's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from ...kernels.grid import FrequencyConfiguration
from ..hardware.applied_setting import AppliedSetting
from ..hardware.axes import TITLES, megahertz, title
from ..hardware.clocks.driver import Reading, agrees, effective

FIRST_WAIT_S = 2.0
LONGEST_WAIT_S = 300.0
COOLS_S = 30.0
"""Longest time in which the kernel raises limits, step by step, once the board is cool."""
CALM_S = 60.0
STUCK_AFTER_S = 2.0
"""Time a clock is slow before the leases are planned for its actual level."""
_LEFT = "clocks set by other programs are left to them"


class ClockReader(Protocol):
    def read(self) -> dict[str, tuple[Reading, ...]]: ...

    def levels(self, axis: str) -> tuple[int, ...]: ...

    def throttled(self) -> tuple[str, ...]: ...


class Deviation(NamedTuple):
    """A clock that is not as set; ``stays_at`` is the level nearest to an axis that is ``slow`` and not hot, else 0.

    ``cause`` is ``limited`` by other limits, ``taken`` by another program, ``appeared`` since, or ``slow``.
    """

    axis: str
    cause: str
    text: str
    heat: str = ""
    stays_at: int = 0


def find_deviations(board: ClockReader, applied: AppliedSetting, heat_before: str = "") -> tuple[Deviation, ...]:
    """Clocks that are not as last accepted; ``heat_before`` is the recent reason for lowered clocks."""
    found = []
    for axis, readings in board.read().items():
        held = applied.held(axis)
        if applied.leaves(axis):
            continue
        if held is None or axis in applied.waiting:
            found.append(Deviation(axis, "appeared", f"{title(axis)}: its files have come, and it is not set yet"))
            continue
        moved = next((one for one in readings if (one.accepted or 0) != held), None)
        slow = next((one for one in readings if not agrees(one.effective, held)), None)
        if moved is None and slow is None:
            continue
        levels, was = board.levels(axis), megahertz(axis, held)
        hot = "; ".join(board.throttled())
        lowered = moved is None or held > levels[-1] or 0 < (moved.accepted or 0) < held
        if hot and lowered:
            found.append(Deviation(axis, "slow", f"{title(axis)}: set to {was}, cut down: {hot}", hot))
        elif heat_before and lowered:
            text = f"set to {was}, still cut down after heat ({heat_before}); the kernel raises it step by step"
            found.append(Deviation(axis, "slow", f"{title(axis)}: {text}"))
        elif held > levels[-1]:
            text = f"limited to {megahertz(axis, levels[-1])} by another program's limit or the power mode"
            found.append(Deviation(axis, "limited", f"{title(axis)}: {text}; {was} was held"))
        elif moved is not None:
            by = (
                f"taken over ({moved.mode})"
                if moved.accepted is None
                else f"set to {megahertz(axis, moved.accepted)} by another program"
            )
            found.append(Deviation(axis, "taken", f"{title(axis)}: {by}; {was} was held"))
        elif slow is not None:
            text = f"set to {was}, measured {megahertz(axis, slow.effective)}: throttled, or stuck"
            nearest = min(levels, key=lambda level: abs(level - effective(slow)))
            found.append(Deviation(axis, "slow", f"{title(axis)}: {text}", stays_at=nearest))
    return tuple(found)


class Backoff:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._wait_s = FIRST_WAIT_S
        self._noticed_s: float | None = None
        self._set_s: float | None = None

    def due(self) -> bool:
        """True to set it now; call it at every look at which it is not as set."""
        now = self._monotonic()
        if self._noticed_s is None:
            self._noticed_s = now
            if self._set_s is None or now - self._set_s >= CALM_S:
                self._wait_s = FIRST_WAIT_S
        if now - self._noticed_s < self._wait_s:
            return False
        self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
        self._set_s, self._noticed_s = now, None
        return True

    def settle(self) -> None:
        """Note that it is as set; call it at every such look."""
        self._noticed_s = None

    @property
    def wait_s(self) -> float:
        return self._wait_s if self._noticed_s is None else self._wait_s - (self._monotonic() - self._noticed_s)


class DriftMonitor:
    """Watches the last setting.

    Attributes:
        countdown: line on the time until a taken clock is set again.
        is_hot: True if the kernel just lowered clocks against heat.
        stuck: level of each cool axis that has not followed for some seconds.
    """

    def __init__(
        self,
        board: ClockReader,
        monotonic: Callable[[], float],
        slept: Callable[[], bool],
        who_sets: Callable[[str], tuple[str, ...]] = lambda axis: (),
    ) -> None:
        self._board = board
        self._who_sets = who_sets
        self._suspects: dict[str, tuple[str, ...]] = {}
        self._monotonic = monotonic
        self._hot_s, self._heat = -COOLS_S, ""
        self._backoff = Backoff(monotonic)
        self._slept = slept
        self.is_hot = False
        self._slow_since_s: dict[str, float] = {}
        self.woken = False
        self.countdown = ""
        self.stuck: dict[str, int] = {}

    def check(
        self, applied: AppliedSetting, requested: FrequencyConfiguration, outdated: bool, changed: Callable[[], bool]
    ) -> tuple[tuple[str, ...], bool]:
        """Compare the board with its setting; return deviations, one line each, and True to set it again now.

        Args:
            outdated: True if the last setting was for other clocks.
            changed: True if the limits now allow another setting.
        """
        self.woken, self.countdown = self._slept(), ""
        now = self._monotonic()
        deviations = find_deviations(self._board, applied, self._heat if now - self._hot_s < COOLS_S else "")
        if heat := next((one.heat for one in deviations if one.heat), ""):
            self._hot_s, self._heat = now, heat
        slow = {one.axis: one.stays_at for one in deviations if one.stays_at and one.axis in TITLES}
        self._slow_since_s = {axis: self._slow_since_s.get(axis, now) for axis in slow}
        self.stuck = {axis: level for axis, level in slow.items() if now - self._slow_since_s[axis] >= STUCK_AFTER_S}
        self.is_hot = now - self._hot_s < COOLS_S
        taken = [one.axis for one in deviations if one.cause == "taken"]
        self._suspects = {axis: self._suspects.get(axis) or self._who_sets(axis) for axis in taken}
        seen = (f"{title(axis)}: {' and '.join(found)} may have set it" for axis, found in self._suspects.items() if found)
        texts = (*(one.text for one in deviations), *seen)
        if any(one.cause == "appeared" for one in deviations):
            return texts, True
        if any(one.cause == "taken" for one in deviations):
            if self.woken:
                return (f"the machine has slept: {texts[0]}", *texts[1:]), True
            again = self._backoff.due()
            self.countdown = "" if again else f"{_LEFT} for {max(1.0, self._backoff.wait_s):.0f} s more"
            return ((*texts, self.countdown) if self.countdown else texts), again
        self._backoff.settle()
        limited = any(one.cause == "limited" for one in deviations)
        again = (limited or (outdated and not any(one.cause == "slow" for one in deviations))) and changed()
        return (texts, True) if again else (texts + tuple(_short_of(applied, requested)), False)


def _short_of(applied: AppliedSetting, requested: FrequencyConfiguration) -> Iterator[str]:
    for axis in TITLES:
        level, needed = getattr(applied.requested, axis), getattr(requested, axis)
        if level != needed and not applied.leaves(axis):
            allowed = f"the limits in force allow {megahertz(axis, level)}"
            yield f"{title(axis)}: {megahertz(axis, needed)} is needed, {allowed}"
