# SPDX-License-Identifier: Apache-2.0
"""Limits: permitted clocks by board, operator, other work and power budget (:func:`permitted`)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from ...kernels.units import AXES, CLOCKS, mhz_text
from ...kernels.values import PartlyCompared
from ...profiles.documents import Positive
from ..errors import UsageError
from ..leases.demand_floors import Floors
from .targets import BatteryLifeTarget, Target

if TYPE_CHECKING:  # the command line checks a configuration without NumPy
    import numpy as np
    from numpy.typing import NDArray

    from ...kernels.grid import FrequencyGrid

CEILINGS_C = (20.0, 110.0)
BATTERIES_WH = (0.1, 100_000.0)


class BoardConstraints(Struct, frozen=True):
    """Constraints on the whole board; raises UsageError.

    Attributes:
        ceiling_c: highest temperature of any zone, in degrees Celsius.
        hours: battery life from the grant of the lease.
        battery_wh: charge at the grant, if the board does not report it.
    """

    ceiling_c: float | None = None
    hours: float | None = None
    battery_wh: float | None = None

    def __post_init__(self) -> None:
        _check("ceiling_c", self.ceiling_c, CEILINGS_C, "degrees Celsius")
        _check("battery_wh", self.battery_wh, BATTERIES_WH, "watt hours")
        if self.battery_wh is not None and self.hours is None:
            raise UsageError(f"battery_wh={self.battery_wh:g}: said of a target of hours, such as hours=6")

    @property
    def anything(self) -> bool:
        return self.ceiling_c is not None or self.hours is not None


class LeaseConstraints(NamedTuple):
    lease: str
    label: str
    uid: int
    asked: BoardConstraints


def heeded(asking: Sequence[LeaseConstraints], operators: Collection[int]) -> tuple[LeaseConstraints, ...]:
    """Binding constraints: only operators may slow another user's leases."""
    users = {one.uid for one in asking}
    return tuple(one for one in asking if one.uid in operators or users <= {one.uid})


class PowerBudget(Struct, frozen=True):
    power_mw: float
    reason: str

    def __str__(self) -> str:
        return f"{self.power_mw / 1e3:.4g} W {self.reason}"


def _check(name: str, value: float | None, valid: tuple[float, float], unit: str) -> None:
    low, high = valid
    if value is not None and not (math.isfinite(value) and low <= value <= high):
        raise UsageError(f"{name}={value:g}: expected {low:g} to {high:g} {unit}")


TIE = 1e-3
"""Relative difference of a target's objective below which configurations are equal, and the lowest clocks win."""


class ClockBounds(Struct, frozen=True):
    min: Positive | None = None
    max: Positive | None = None

    def __post_init__(self) -> None:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"expected min not above max, got {self.min} > {self.max}")

    def inside(self, levels: Sequence[int]) -> tuple[int, ...]:
        low, high = self.min or 0, self.max if self.max is not None else levels[-1]
        return tuple(level for level in levels if low <= level <= high)

    def allowed(self, levels: Sequence[int]) -> tuple[int, ...]:
        """Permitted ones of ascending levels: all in bounds, else the highest up to ``max``, else the lowest."""
        below = [level for level in levels if self.max is None or level <= self.max]
        return self.inside(levels) or tuple(below[-1:]) or tuple(levels[:1])


class ClockLimits(Struct, frozen=True):
    cpu_khz: Annotated[ClockBounds, Meta(title="CPU clock, in kHz")] = ClockBounds()
    gpu_hz: Annotated[ClockBounds, Meta(title="GPU clock, in Hz")] = ClockBounds()
    emc_hz: Annotated[ClockBounds, Meta(title="memory clock, in Hz")] = ClockBounds()

    def allowed(self, clock: str, levels: Sequence[int]) -> tuple[int, ...]:
        bounds: ClockBounds = getattr(self, clock if clock in CLOCKS else "cpu_khz")
        return bounds.allowed(levels)

    def within(self, grid: FrequencyGrid) -> FrequencyGrid:
        return replace(grid, **{axis: self.allowed(axis, grid.levels(axis)) for axis in AXES})

    def missed(self, levels: Mapping[str, Sequence[int]]) -> Iterator[str]:
        """One line for each clock whose offered levels are all out of bounds; CPU clusters by cpufreq policy."""
        for clock, offered in levels.items():
            axis = clock if clock in CLOCKS else "cpu_khz"
            bounds: ClockBounds = getattr(self, axis)
            if not bounds.inside(offered):
                ends = (f"{name} {mhz_text(axis, end)} MHz" for name, end in asdict(bounds).items() if end is not None)
                (taken,) = bounds.allowed(offered)
                whose = CLOCKS[axis] if axis == clock else f"CPU ({clock})"
                none = f"limits.{axis}: no {whose} frequency that this board offers fits {' and '.join(ends)}"
                yield f"{none}; {mhz_text(axis, taken)} MHz is set instead"


class Limits(PartlyCompared, frozen=True):
    """Limits of a plan besides its target: range of each clock, mean power of the board, and reasons of other work's floors."""

    _ignored = frozenset({"demand"})
    cpu_khz: tuple[int, int] | None = None
    gpu_hz: tuple[int, int] | None = None
    emc_hz: tuple[int, int] | None = None
    power_mw: float | None = None
    because: str = ""
    demand: tuple[str, ...] = ()

    @classmethod
    def within(cls, ranges: Mapping[str, tuple[int, int]]) -> Limits:
        return cls(ranges.get("cpu_khz"), ranges.get("gpu_hz"), ranges.get("emc_hz"))

    def affords(self, power_mw: NDArray[np.float64]) -> NDArray[np.bool_]:
        affordable: NDArray[np.bool_] = power_mw <= (math.inf if self.power_mw is None else self.power_mw)
        return affordable

    @property
    def budget(self) -> str:
        return "" if self.power_mw is None else f"{self.power_mw / 1e3:.4g} W {self.because}".rstrip()

    def permits(self, grid: FrequencyGrid) -> NDArray[np.bool_]:
        import numpy as np

        masks = []
        for name in AXES:
            axis, bounds = np.array(grid.levels(name)), getattr(self, name)
            mask = np.ones(len(axis), bool) if bounds is None else (axis >= bounds[0]) & (axis <= bounds[1])
            if not mask.any():
                valid = f"{mhz_text(name, axis[0])} to {mhz_text(name, axis[-1])} MHz"
                low, high = (mhz_text(name, bound) for bound in bounds)
                raise UsageError(f"limits: no {CLOCKS[name]} frequency from {low} to {high} MHz; this board has {valid}")
            masks.append(mask)
        permitted: NDArray[np.bool_] = masks[0][:, None, None] & masks[1][:, None] & masks[2]
        return permitted


def permitted(
    offered: FrequencyGrid,
    operator: ClockLimits,
    demand: Floors | None = None,
    budget: PowerBudget | None = None,
    stuck: Mapping[str, int] | None = None,
) -> Limits:
    """Permitted clocks; the operator's bounds override the demand, and ``stuck`` axes ignore requests."""
    ranges = {}
    for axis in AXES:
        levels = operator.allowed(axis, offered.levels(axis))
        least = demand.least(axis) if demand is not None else 0
        ranges[axis] = (max(levels[0], min(least, levels[-1])), levels[-1])
        if stuck and axis in stuck:
            ranges[axis] = (stuck[axis], stuck[axis])
    limits = replace(Limits.within(ranges), demand=demand.reasons if demand is not None else ())
    return limits if budget is None else replace(limits, power_mw=budget.power_mw, because=budget.reason)


def lowest_clocks(grid: FrequencyGrid, among: NDArray[np.bool_]) -> tuple[int, int, int]:
    """The configuration with the lowest sum of clocks, each relative to its top."""
    import numpy as np

    parts = [np.array(grid.levels(name)) / grid.levels(name)[-1] for name in AXES]
    height = parts[0][:, None, None] + parts[1][:, None] + parts[2]
    cpu, gpu, emc = np.unravel_index(int(np.where(among, height, np.inf).argmin()), grid.shape)
    return int(cpu), int(gpu), int(emc)


def lasting(target: Target, battery_wh: float | None, limits: Limits) -> Limits:
    """Limits of a plan without a board, and the battery life that its target may request; raises UsageError."""
    hours = target.limit if isinstance(target, BatteryLifeTarget) else None
    BoardConstraints(hours=hours, battery_wh=battery_wh)
    if hours is None:
        return limits
    if battery_wh is None:
        raise UsageError(f"target {target}: expected the charge of the battery (battery_wh), such as --battery-wh 50")
    return replace(limits, power_mw=1e3 * battery_wh / hours, because=f"so that {battery_wh:g} Wh last for {hours:g} h")
