# SPDX-License-Identifier: Apache-2.0
"""What was observed of frames, and what it changed about a surface."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import CostModelError
from ..grid import FrequencyConfiguration
from ..surface import Surface

_ALL_BUT = 0.9  # of what a fit of the observations alone counts less than the rest of, nothing is said


@dataclass(frozen=True)
class Observation:
    """What was observed of some frames at one configuration.

    Attributes:
        configuration: the clocks they ran at, one of the surface's grid.
        latency_ms: the typical one (the median of several); None where nobody told.
        power_mw: mean power of the energy rails, None where they were not read: during the inferences, or, with ``period_ms``,
            from one frame's start to the next one's.
        frames: how many frames it is of.
        age_s: how long ago that was.
        period_ms: from one frame's start to the next one's; None where frames follow each other without a break.
        temperature_c: the die's; None where nobody knows.
        doubt: standard deviation of what may besides be wrong with it, as a logarithm: where it was not seen, but follows from
            what was.
        disturbed: whether something is known that makes it untypical: the first frame after idling or after a change of clocks,
            throttling, an over-current event. It counts little.

    Raises:
        CostModelError: a figure is not a positive number, or neither latency nor power was observed.
    """

    configuration: FrequencyConfiguration
    latency_ms: float | None = None
    power_mw: float | None = None
    frames: int = 1
    age_s: float = 0.0
    period_ms: float | None = None
    temperature_c: float | None = None
    doubt: float = 0.0
    disturbed: bool = False

    def __post_init__(self) -> None:
        for name in ("latency_ms", "power_mw", "period_ms"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise CostModelError(f"observation: {name} is {value}, expected a positive number")
        if self.latency_ms is None and self.power_mw is None:
            raise CostModelError("observation: expected latency_ms, power_mw or both")
        if self.frames < 1 or not 0 <= self.age_s < math.inf:
            raise CostModelError(
                f"observation: expected at least one frame and an age of at least 0 s, got {self.frames}, {self.age_s}"
            )


@dataclass(frozen=True)
class Rate:
    """One unknown: by which factor what is predicted of it was too low, and how sure that is.

    Attributes:
        name: ``compute``, ``memory``, ``host``, ``all`` (all three alike), ``idle`` or ``dynamic``.
        factor: 1 where nothing is to be corrected.
        sigma: the standard deviation of the factor's logarithm.
    """

    name: str
    factor: float
    sigma: float

    def __str__(self) -> str:
        return f"{self.name} x{self.factor:.3g}±{self.sigma:.0%}"


@dataclass(frozen=True)
class Correction:
    """How much observations changed a surface, and why. ``str()`` is one line.

    Attributes:
        observations: how many there were, of ``configurations`` different configurations.
        rates: what they say of each unknown.
        left_out: which of the observations are outliers and were all but left out, by position.
        latency_error, power_error: mean |log(observed / predicted)|, before and after.
        residual_latency, residual_power: standard deviation of what the rates do not explain.
        prediction_counts: how much the prediction counts, of latency and of power, beside a fit of the observations alone, in
            the mean over the grid.
    """

    observations: int
    configurations: int
    rates: tuple[Rate, ...]
    left_out: tuple[int, ...]
    latency_error: tuple[float, float]
    power_error: tuple[float, float]
    residual_latency: float
    residual_power: float
    prediction_counts: tuple[float, float] = (1.0, 1.0)

    def __str__(self) -> str:
        rates = ", ".join(map(str, self.rates))
        out = f"; {len(self.left_out)} left out" if self.left_out else ""
        before, after = self.latency_error
        cold, warm = self.power_error
        counts = [f"{share:.0%} of {name}" for name, share in zip(("latency", "power"), self.prediction_counts, strict=True)]
        beside = f"; the prediction counts {' and '.join(counts)}" if min(self.prediction_counts) < _ALL_BUT else ""
        return (
            f"{self.observations} observations of {self.configurations} configurations{out}: {rates}; "
            f"error of latency {before:.1%} -> {after:.1%}, of power {cold:.1%} -> {warm:.1%}{beside}"
        )


@dataclass(frozen=True, eq=False)
class Corrected:
    """A surface as observations leave it, and what they changed."""

    surface: Surface
    correction: Correction
