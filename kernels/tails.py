# SPDX-License-Identifier: Apache-2.0
"""How far what is observed lies above what was predicted, and how often: quantiles in units of a prediction's own uncertainty.

Up to the 95th percentile they are those that were observed. Beyond it what exceeds is taken to follow a generalised Pareto
distribution, as peaks over a threshold do (Coles, An Introduction to Statistical Modeling of Extreme Values, 2001, chapter 4):
frames that something delays are rarer than one in twenty and much later than a normal distribution has them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""At which probabilities quantiles are kept."""

_NORMAL = NormalDist()


@dataclass(frozen=True)
class Tail:
    """How a figure exceeds its prediction.

    Attributes:
        quantiles: of log(observed / predicted) over its standard deviation, at :data:`LEVELS`; not negative, and not falling.
        shape, scale: of the generalised Pareto distribution of what exceeds the last of them.

    Raises:
        ValueError: they are not of that form.
    """

    quantiles: tuple[float, ...]
    shape: float
    scale: float

    def __post_init__(self) -> None:
        if len(self.quantiles) != len(LEVELS) or list(self.quantiles) != sorted(self.quantiles) or min(self.quantiles) < 0:
            raise ValueError(f"expected {len(LEVELS)} quantiles that are not negative and do not fall, got {self.quantiles}")
        if not (0 <= self.shape < 1 and 0 < self.scale < math.inf):
            raise ValueError(f"expected a shape from 0 to below 1 and a positive scale, got {self.shape:g} and {self.scale:g}")

    def quantile(self, probability: float) -> float:
        """What is not exceeded with a probability between 0 and 1, in standard deviations; below one half as of a normal."""
        if probability <= LEVELS[0]:
            return self.quantiles[0] + _NORMAL.inv_cdf(probability)
        if probability > LEVELS[-1]:
            rarer = (1 - probability) / (1 - LEVELS[-1])
            excess = -math.log(rarer) if self.shape == 0 else (rarer**-self.shape - 1) / self.shape
            return self.quantiles[-1] + self.scale * excess
        upper = next(number for number, level in enumerate(LEVELS) if level >= probability)
        low, here, high = (_NORMAL.inv_cdf(level) for level in (LEVELS[upper - 1], probability, LEVELS[upper]))
        before, after = self.quantiles[upper - 1], self.quantiles[upper]
        return before + (after - before) * (here - low) / (high - low)


@dataclass(frozen=True)
class Tails:
    """How latencies and energies exceed what is predicted."""

    latency: Tail
    energy: Tail
