# SPDX-License-Identifier: Apache-2.0
"""What a fit says of other places where its model is not linear in what is not known.

A term that another one hides at the clocks observed comes to light at others, and no term can make a frame more than so many
times as long as its clock is lower: derivatives at the most probable unknowns say neither. So unknowns are drawn from the
normal distribution about them, made wider, and count as much as they are probable beside how often they are drawn (importance
sampling; Bishop, Pattern Recognition and Machine Learning, 11.1.4).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .fitting import Fit
from .models import ClockedLatency, LatencyModel

Array = NDArray[np.float64]

_PAIRS, _SEED = 48, 0
_AT_ONCE = 16  # so that these fit into a cache
_WIDER = 1.5
_COUNTS = 1e-4  # of all weight


def sampled(
    found: Fit, at_observations: LatencyModel, everywhere: ClockedLatency, sigma: Array, observed: Array, alike: Array
) -> tuple[Array, Array]:
    """Logarithms over the grid and their variance, as :meth:`.fitting.Fit.predict` has them where all is linear.

    Args:
        found: what observations say.
        at_observations, everywhere: the model at the observations, and over the grid.
        sigma, observed: what was fitted to, as of :func:`.fitting.fit`.
        alike: as of :meth:`.fitting.Fit.predict`.
    """
    free = np.flatnonzero(sigma)
    factor = _WIDER * np.linalg.cholesky(found.covariance[np.ix_(free, free)])
    half = np.random.default_rng(_SEED).standard_normal((_PAIRS, len(free)))
    drawn = np.vstack([np.zeros(len(free)), half, -half])
    unknowns = np.tile(found.unknowns, (len(drawn), 1))
    unknowns[:, free] += drawn @ factor.T
    left = (observed - at_observations.drawn(unknowns)) @ found.inverse.T
    before = unknowns[:, free] / sigma[free]
    log_weight = 0.5 * ((drawn**2).sum(axis=1) - (left**2).sum(axis=1) - (before**2).sum(axis=1))
    weight = np.exp(log_weight - log_weight.max())
    counting = np.flatnonzero(weight > _COUNTS * weight.sum())
    weight = weight[counting] / weight[counting].sum()
    shared = _single(alike) @ _single(found.amplitude**2 * found.inverse.T)
    smooth, part = _single(left[counting]) @ shared.T, _single(weight)
    # About the first draw, so that squares keep their digits.
    about = everywhere.drawn(unknowns[counting[:1]])[0] + smooth[0]
    smooth -= about
    mean, square = np.zeros_like(about), np.zeros_like(about)
    for start in range(0, len(counting), _AT_ONCE):
        these = slice(start, start + _AT_ONCE)
        value = everywhere.drawn(unknowns[counting[these]])
        value += smooth[these]
        mean += part[these] @ value
        square += part[these] @ np.square(value, out=value)
    unexplained = np.maximum(found.amplitude**2 - np.einsum("no,no->n", shared, shared), 0.0)
    return (about + mean).astype(np.float64), (np.maximum(square - mean**2, 0.0) + unexplained).astype(np.float64)


def _single(array: Array) -> NDArray[np.float32]:
    return array.astype(np.float32)
