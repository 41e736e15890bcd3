# SPDX-License-Identifier: Apache-2.0
"""Within what a plan is made, whatever its target, and which of equally good configurations is taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...kernels.grid import FrequencyGrid
from ...kernels.units import AXES, CLOCKS, mhz_text
from ..errors import UsageError
from .constraints import BoardConstraints
from .targets import Hours, Target

TIE = 1e-3
"""Configurations this close in what a target prefers are as good as each other; the lowest clocks among them are taken."""


@dataclass(frozen=True)
class Limits:
    """What a plan has to keep to beside its target.

    Attributes:
        cpu_khz, gpu_hz, emc_hz: the range each clock must stay in, lowest and highest included; None leaves a clock free.
        power_mw: what the board may draw in the mean; None for anything. ``because`` says why.
    """

    cpu_khz: tuple[int, int] | None = None
    gpu_hz: tuple[int, int] | None = None
    emc_hz: tuple[int, int] | None = None
    power_mw: float | None = None
    because: str = ""

    @classmethod
    def within(cls, ranges: Mapping[str, tuple[int, int]]) -> Limits:
        """The range of each clock by its axis; one that is not named is free."""
        return cls(ranges.get("cpu_khz"), ranges.get("gpu_hz"), ranges.get("emc_hz"))

    def affords(self, power_mw: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which configurations draw no more than the board may."""
        affordable: NDArray[np.bool_] = power_mw <= (np.inf if self.power_mw is None else self.power_mw)
        return affordable

    @property
    def budget(self) -> str:
        """What the board may draw, in words; empty where that is not bounded."""
        return "" if self.power_mw is None else f"{self.power_mw / 1e3:.4g} W {self.because}".rstrip()

    def permits(self, grid: FrequencyGrid) -> NDArray[np.bool_]:
        """Which configurations the clocks' ranges leave, of the grid's shape.

        Raises:
            UsageError: they leave none; the text says which clock, and its frequencies.
        """
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


def lowest_clocks(grid: FrequencyGrid, among: NDArray[np.bool_]) -> tuple[int, int, int]:
    """Of several configurations the one whose clocks are lowest, in sum of parts of each clock's top."""
    parts = [np.array(grid.levels(name)) / grid.levels(name)[-1] for name in AXES]
    height = parts[0][:, None, None] + parts[1][:, None] + parts[2]
    cpu, gpu, emc = np.unravel_index(int(np.where(among, height, np.inf).argmin()), grid.shape)
    return int(cpu), int(gpu), int(emc)


def lasting(target: Target, battery_wh: float | None, limits: Limits) -> Limits:
    """What a plan without a board keeps to: these limits, and that a battery lasts as long as its target says, if it does.

    Raises:
        UsageError: what is left in the battery is not told, or told of another target.
    """
    hours = target.limit if isinstance(target, Hours) else None
    BoardConstraints(hours=hours, battery_wh=battery_wh)
    if hours is None:
        return limits
    if battery_wh is None:
        raise UsageError(f"target {target}: expected what is left in the battery (battery_wh), such as --battery-wh 50")
    return replace(limits, power_mw=1e3 * battery_wh / hours, because=f"so that {battery_wh:g} Wh last for {hours:g} h")
