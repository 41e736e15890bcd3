# SPDX-License-Identifier: Apache-2.0
"""Bands of the gate, from results of real boards or GPUs only.

- *As hard*: a share within a limit may be the paper's at that limit times or divided by :data:`AS_HARD`.
- *Thirteen boards*: middle 90% of results for thirteen boards of a normal population.
- *Ten networks*: likewise a count of ten networks, by the binomial distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..paper.characterization import NODES
from ..paper.difficulty import LIMITS
from ..paper.published import PAPER, WITHIN_6

AS_HARD = 1.4
"""Deviation factor of one model's error over five GPUs (sitar-lab/NeuSight).

Convolutions, products and additions: 16, 42 and 33%; together 32%.
"""
POWER_RANGE = {"vgg16": 20.0, "shufflenet_v2_x1_0": 30.0}
"""Figure 2b: range of thirteen boards' medians, in percent of their median."""
RUNTIME_UP_TO = {0.75: 10.0, 0.9: 25.0}
"""Figure 2a: largest deviation of runtimes from the median in the upper quartile and decile, in percent."""
_SPECIALISED = 3.64  # section 6.3: mean error of models of one network each, on boards they were not trained on
_MEAN_OF_NORMAL = 0.798  # of the absolute value, relative to the standard deviation
_MIDDLE = (0.05, 0.95)
_RESAMPLED = 20_000


class GateBand(NamedTuple):
    """Range of an acceptable value, and its source."""

    low: float
    high: float
    source: str


def as_hard(within: Sequence[float], limit: float, source: str) -> GateBand:
    """Band of a share of predictions within a limit in percent; ``within`` has the paper's shares."""
    low, high = (_share(within, at) for at in (limit / AS_HARD, limit * AS_HARD))
    return GateBand(low, high, source)


def _share(within: Sequence[float], limit: float) -> float:
    return float(np.interp(limit, (0.0, *LIMITS), (0.0, *within)))


def network_shapes(within: Sequence[float], source: str) -> GateBand:
    """Band of trained-on convolutions: between all and specialised models."""
    easiest = _share_of_normal(_SPECIALISED / _MEAN_OF_NORMAL, 10.0)
    return GateBand(as_hard(within, 10.0, source).low, easiest, f"{source}, section 6.3")


def random_shapes(within: Sequence[float], source: str) -> GateBand:
    whole = as_hard(within, 10.0, source)
    return GateBand(2.0 * whole.low - network_shapes(within, source).high, whole.high, f"{source}, section 6.3")


def _share_of_normal(deviation: float, limit: float) -> float:
    from math import erf, sqrt

    return 100.0 * erf(limit / deviation / sqrt(2.0))


def table_6(limit: float, names: Sequence[str] = tuple(WITHIN_6)) -> tuple[float, GateBand]:
    """The paper's mean share of configurations over networks, and its band."""
    within = np.mean([WITHIN_6[name] for name in names], axis=0)
    return _share(within.tolist(), limit), as_hard(within.tolist(), limit, "MIRAGE, Table 6")


def power_range(name: str) -> GateBand:
    low, high = _thirteen_others(lambda boards: np.ptp(boards, axis=1))
    return GateBand(POWER_RANGE[name] * low, POWER_RANGE[name] * high, "MIRAGE, Figure 2b")


def runtime_quantile(share: float) -> GateBand:
    """Band of the upper quartile for thirteen other boards, or of the decile."""
    if share == max(RUNTIME_UP_TO):
        return GateBand(min(RUNTIME_UP_TO.values()), RUNTIME_UP_TO[share], "MIRAGE, Figure 2a")
    low, high = _thirteen_others(lambda boards: np.quantile(np.abs(boards - np.median(boards, axis=1)[:, None]), share, axis=1))
    return GateBand(RUNTIME_UP_TO[share] * low, RUNTIME_UP_TO[share] * high, "MIRAGE, Figure 2a")


def _thirteen_others(statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> tuple[float, float]:
    values = statistic(np.random.default_rng(13).standard_normal((_RESAMPLED, NODES)))
    low, middle, high = np.quantile(values, (_MIDDLE[0], 0.5, _MIDDLE[1])).tolist()
    return low / middle, high / middle


def over_whole() -> tuple[int, GateBand]:
    """Networks whose kernels take longer alone in the paper, and the band."""
    real = sum(row.all_kernels > 100.0 for row in PAPER.values())
    count, share = len(PAPER), real / len(PAPER)
    summed = np.cumsum([comb(count, n) * share**n * (1.0 - share) ** (count - n) for n in range(count + 1)])
    low, high = (float(np.searchsorted(summed, edge)) for edge in _MIDDLE)
    return real, GateBand(low, high, "MIRAGE, Table 1")


def sums_apart() -> GateBand:
    shares = np.array([row.all_kernels for row in PAPER.values()])
    return GateBand(0.0, float(np.mean(np.abs(shares - np.median(shares)))), "MIRAGE, Table 1")


def of_gpus(errors: Sequence[float]) -> GateBand:
    return GateBand(min(errors), max(errors), "NeuSight, five GPUs")
