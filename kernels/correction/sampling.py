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
from .models import LatencyModel

Array = NDArray[np.float64]

_PAIRS, _SEED = 48, 0
_WIDER = 1.5
_COUNTS = 1e-4  # of all weight


def sampled(
    found: Fit, at_observations: LatencyModel, everywhere: LatencyModel, sigma: Array, observed: Array, alike: Array
) -> tuple[Array, Array]:
    """Logarithms at other places and their variance, as :meth:`.fitting.Fit.predict` has them where all is linear.

    Args:
        found: what observations say.
        at_observations, everywhere: the model at the observations, and at those places.
        sigma, observed: what was fitted to, as of :func:`.fitting.fit`.
        alike: as of :meth:`.fitting.Fit.predict`.
    """
    free = np.flatnonzero(sigma)
    factor = _WIDER * np.linalg.cholesky(found.covariance[np.ix_(free, free)])
    half = np.random.default_rng(_SEED).standard_normal((_PAIRS, len(free)))
    drawn = np.vstack([np.zeros(len(free)), half, -half])
    unknowns = np.tile(found.unknowns, (len(drawn), 1))
    unknowns[:, free] += drawn @ factor.T
    left = np.stack([found.inverse @ (observed - at_observations.values(one)) for one in unknowns])
    before = unknowns[:, free] / sigma[free]
    log_weight = 0.5 * ((drawn**2).sum(axis=1) - (left**2).sum(axis=1) - (before**2).sum(axis=1))
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    shared = found.amplitude**2 * (alike @ found.inverse.T)
    mean, square = np.zeros(len(alike)), np.zeros(len(alike))
    counting = np.flatnonzero(weight > _COUNTS)
    for number in counting:
        value = everywhere.values(unknowns[number]) + shared @ left[number]
        mean += weight[number] * value
        square += weight[number] * value**2
    whole = weight[counting].sum()
    mean, square = mean / whole, square / whole
    unexplained = np.maximum(found.amplitude**2 - np.einsum("no,no->n", shared, shared), 0.0)
    return mean, np.maximum(square - mean**2, 0.0) + unexplained
