# SPDX-License-Identifier: Apache-2.0
"""Observations of frames, and the corrections that follow from them."""

from __future__ import annotations

import math

from msgspec import Struct

from ..errors import CostModelError
from ..grid import FrequencyConfiguration
from ..surface import Surface

_ALL_BUT = 0.9  # a prediction of at least this weight is not mentioned


class Observation(Struct, frozen=True):
    """Observation of frames at one configuration; raises CostModelError.

    Attributes:
        latency_ms: typical latency (the median of several).
        power_mw: mean power of the energy rails during inferences, or over the period, if given.
        period_ms: time between starts of frames; None if they follow without a break.
        doubt: standard deviation of further errors, as a logarithm, if inferred from other observations.
        disturbed: untypical, so it counts little: the first frame after idling or a clock change, throttling, over-current.
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


class RateFactor(Struct, frozen=True):
    """One unknown: the factor by which its prediction was too low, and the deviation of its logarithm.

    ``name`` is ``compute``, ``memory``, ``host``, ``all`` (all three alike), ``idle`` or ``dynamic``.
    """

    name: str
    factor: float
    sigma: float

    def __str__(self) -> str:
        return f"{self.name} x{self.factor:.3g}±{self.sigma:.0%}"


class Correction(Struct, frozen=True):
    """Effect of observations on a surface. ``str()`` is one line.

    Attributes:
        left_out: positions of outliers, which hardly count.
        latency_error, power_error: mean |log(observed / predicted)|, before and after.
        residual_latency, residual_power: standard deviation of the residual.
        prediction_counts: mean weight of the predicted latency and power, against a fit of the observations alone.
    """

    observations: int
    configurations: int
    rates: tuple[RateFactor, ...]
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
        note = f"; the prediction counts {' and '.join(counts)}" if min(self.prediction_counts) < _ALL_BUT else ""
        return (
            f"{self.observations} observations of {self.configurations} configurations{out}: {rates}; "
            f"error of latency {before:.1%} -> {after:.1%}, of power {cold:.1%} -> {warm:.1%}{note}"
        )


class CorrectedSurface(Struct, frozen=True, eq=False):
    surface: Surface
    correction: Correction
