# SPDX-License-Identifier: Apache-2.0
"""Unknowns of a physical model and its residual, from few observations: a Bayesian fit in log space.

An observation is ``log y = f(unknowns) + r(clocks) + noise``: unknowns have a Gaussian prior, r is a Gaussian process over log
clocks, and the noise has Student's t distribution against outliers. Levenberg and Marquardt's method finds the unknowns,
Laplace's approximation of the evidence the process's amplitude (Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2.7 and 5.4; Tipping and Lawrence 2005 on the noise).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..grid import FrequencyGrid
from ..units import AXES
from .models import ClockedLatency, LatencyModel
from .observation import RateFactor

Array = NDArray[np.float64]

# Correlation length of the residual between clocks, in natural logarithms.
_REACH = 1.0


def nearness(grid: FrequencyGrid, cells: NDArray[np.intp]) -> Array:
    places = np.unravel_index(cells, grid.shape)
    cpu, gpu, emc = (near[:, at] for near, at in zip(of_levels(grid), places, strict=True))
    product: Array = (cpu[:, None, None] * (gpu[:, None] * emc[None])).reshape(grid.size, len(cells))
    return product


def of_levels(grid: FrequencyGrid) -> list[Array]:
    """Correlation of the levels of each axis, ``(levels, levels)``: Matern's function with 3/2, which allows steps."""
    logs = [np.log(np.array(grid.levels(axis), np.float64)) for axis in AXES]
    apart = [np.sqrt(3) / _REACH * np.abs(one[:, None] - one[None, :]) for one in logs]
    return [(1 + one) * np.exp(-one) for one in apart]


_PAIRS, _SEED = 48, 0
_AT_ONCE = 16  # so that these fit into a cache
_WIDER = 1.5
_COUNTS = 1e-4  # of all weight


def sampled(
    found: Fit, at_observations: LatencyModel, everywhere: ClockedLatency, sigma: Array, observed: Array, alike: Array
) -> tuple[Array, Array]:
    """Logarithms over the grid and their variance by sampling; :meth:`.fitting.Fit.predict` is its linear case.

    Args:
        at_observations, everywhere: the model at the observations, and over the grid.
        sigma, observed: as fitted (:func:`.fitting.fit`).
        alike: as in :meth:`.fitting.Fit.predict`.
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
    # Relative to the first draw, so that squares keep their digits.
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


# Degrees of freedom of the noise: with 4, one observation at five times the expected error counts as a seventh.
_FREEDOM = 4.0
# An observation with less than this part of its weight is reported as an outlier.
OUTLIER = 0.25
_ROUNDS, _TRIES = 25, 6
_LONGEST_STEP = 1.0
_ENOUGH, _SAME_WEIGHTS = 1e-2, 0.05
# Of the amplitude's logarithm, around the expected one.
_AMPLITUDE_SIGMA = 1.0


class FittedModel(Protocol):
    def __call__(self, unknowns: Array, /) -> tuple[Array, Array]:
        """Values, shape ``(n,)``, and derivatives by each unknown, ``(n, p)``."""


class Fit(Struct, frozen=True, eq=False):
    """Result of a fit.

    Attributes:
        unknowns: most probable values, and ``covariance``.
        weights: of each observation, 1 if it agrees.
        amplitude: standard deviation of the residual.
        inverse: of the lower Cholesky factor of the observations' covariance.
        whitened, slopes: residuals and derivatives times it.
        sigma, noise: prior deviations of the unknowns, and the observations' noise.
    """

    unknowns: Array
    covariance: Array
    weights: Array
    amplitude: float
    inverse: Array
    whitened: Array
    slopes: Array
    sigma: Array
    noise: Array

    def densities(self) -> Array:
        """Log probability of each observation given the rest, up to a constant, with the unknowns' part linearised.

        It rates a model's predictions (Vehtari et al. 2017, Practical Bayesian model evaluation).
        """
        spread = self.slopes * self.sigma
        among = np.linalg.inv(np.eye(len(spread)) + spread @ spread.T) @ self.inverse
        precision = np.einsum("ij,ij->j", self.inverse, among)  # of each, the rest known
        apart = among.T @ (self.whitened + self.slopes @ self.unknowns) / precision
        # Without knowledge of it, an observation is no outlier.
        variance = 1 / precision + self.noise**2 * (1 - 1 / self.weights)
        found: Array = -(_FREEDOM + 1) / 2 * np.log1p(apart**2 / variance / _FREEDOM) - np.log(variance) / 2
        return found

    def rates(self, names: Sequence[str]) -> list[RateFactor]:
        """The first unknowns as factors, by name, without those held at 0."""
        spread = np.sqrt(np.diag(self.covariance))
        known = [(row, name) for row, name in enumerate(names) if self.sigma[row]]
        return [RateFactor(name, float(np.exp(self.unknowns[row])), float(spread[row])) for row, name in known]

    def predict(self, model: FittedModel, alike: Array) -> tuple[Array, Array, Array]:
        """Logarithms at other places, their variance, and their residual.

        Args:
            alike: correlation of each place with each observation, shape ``(n, observations)``.
        """
        values, slopes = model(self.unknowns)
        shared = (self.amplitude**2) * (alike @ self.inverse.T)
        smooth = shared @ self.whitened
        free = slopes - shared @ self.slopes
        known = np.einsum("no,no->n", shared, shared)
        variance = self.amplitude**2 - known + np.einsum("np,np->n", free @ self.covariance, free)
        return values + smooth, np.maximum(variance, 0.0), smooth

    def together(self, model: FittedModel, alike: Array, own: Array) -> Array:
        """Covariance between other places, ``(n, n)``; ``alike`` as in :meth:`predict`, ``own`` between those places."""
        _, slopes = model(self.unknowns)
        shared = (self.amplitude**2) * (alike @ self.inverse.T)
        free = slopes - shared @ self.slopes
        covariance: Array = self.amplitude**2 * own - shared @ shared.T + free @ self.covariance @ free.T
        return covariance


def fit(
    model: FittedModel,
    sigma: Array,
    observed: Array,
    noise: Array,
    alike: Array,
    amplitudes: Sequence[float],
    expected: float,
    *,
    averaged: bool = False,
) -> Fit:
    """Find the unknowns, which are 0 before any observation.

    Args:
        sigma: prior deviation of each unknown; 0 holds it at 0.
        observed, noise: logarithms, and standard deviation of each.
        alike: correlation between the observations' places, ``(n, n)``.
        amplitudes: tried for the residual; one is ``expected``.
        averaged: use the amplitudes' mean by probability: few agreeing observations prove little.
    """
    start = np.zeros(len(sigma)), np.ones(len(observed))
    found = _at(model, sigma, observed, noise, alike, expected, start)
    start = found.unknowns, found.weights

    values, slopes = model(found.unknowns)
    inverses = _whitening(np.square(amplitudes)[:, None, None] * alike, noise, found.weights)
    evidence = _evidence(sigma, found.unknowns, inverses, observed - values, slopes)
    evidence -= 0.5 * (np.log(np.divide(amplitudes, expected)) / _AMPLITUDE_SIGMA) ** 2
    if averaged:
        weights = np.exp(evidence - evidence.max())
        best = float(np.exp(weights @ np.log(amplitudes) / weights.sum()))
    else:
        best = amplitudes[int(np.argmax(evidence))]
    return found if best == expected else _at(model, sigma, observed, noise, alike, best, start)


def _evidence(sigma: Array, unknowns: Array, inverses: Array, left: Array, slopes: Array) -> Array:
    """Log evidence of each amplitude, up to a constant, with the unknowns one step from the best."""
    free = np.flatnonzero(sigma)
    precision = sigma[free] ** -2.0
    white, left = inverses @ slopes[:, free], inverses @ left
    across = white.swapaxes(1, 2)
    normal = across @ white
    np.einsum("aii->ai", normal)[:] += precision
    gradient = (across @ left[..., None])[..., 0] - precision * unknowns[free]
    factor = np.linalg.cholesky(normal)
    gained = np.linalg.solve(factor, gradient[..., None])[..., 0]
    cost = (left**2).sum(axis=1) + precision @ unknowns[free] ** 2 - (gained**2).sum(axis=1)
    evidence: Array = _log_diagonal(inverses) - _log_diagonal(factor) - 0.5 * cost
    return evidence


def _log_diagonal(matrices: NDArray[Any]) -> Array:
    logs: Array = np.log(np.einsum("aii->ai", matrices)).sum(axis=1)
    return logs


def _whitening(shared: Array, noise: Array, weights: Array) -> Array:
    covariance = shared.copy()
    np.einsum("...ii->...i", covariance)[:] += noise**2 / weights
    inverse: Array = np.linalg.inv(np.linalg.cholesky(covariance))
    return inverse


def _at(
    model: FittedModel, sigma: Array, observed: Array, noise: Array, alike: Array, amplitude: float, start: tuple[Array, Array]
) -> Fit:
    unknowns, weights = start
    free = np.flatnonzero(sigma)
    precision = sigma[free] ** -2.0
    damping = 1e-2
    shared = amplitude**2 * alike

    inverse = _whitening(shared, noise, weights)
    values, slopes = model(unknowns)
    for _ in range(_ROUNDS):
        left = inverse @ (observed - values)
        white = inverse @ slopes[:, free]
        cost = left @ left + precision @ unknowns[free] ** 2
        normal = white.T @ white
        diagonal = np.einsum("ii->i", normal)
        diagonal += precision
        undamped = diagonal.copy()
        gradient = white.T @ left - precision * unknowns[free]
        moved = False
        for _ in range(_TRIES):
            diagonal[:] = (1 + damping) * undamped
            step = np.linalg.solve(normal, gradient)
            step *= min(1.0, _LONGEST_STEP / max(np.abs(step).max(), 1e-12))
            candidate = unknowns.copy()
            candidate[free] += step
            new_values, new_slopes = model(candidate)
            new_left = inverse @ (observed - new_values)
            new_cost = new_left @ new_left + precision @ candidate[free] ** 2
            if new_cost < cost:
                moved, damping = True, max(damping / 10, 1e-9)
                break
            damping *= 10
        gained = 0.0
        if moved:
            unknowns, values, slopes, gained = candidate, new_values, new_slopes, float(cost - new_cost)
        # Apparent noise of each, without the smooth part.
        solved = inverse.T @ (inverse @ (observed - values))
        own = noise**2 / weights
        residual = own * solved
        # Its expected square includes its own uncertainty.
        doubt = own - own**2 * np.einsum("ij,ij->j", inverse, inverse)
        again = (_FREEDOM + 1) / (_FREEDOM + (residual**2 + np.maximum(doubt, 0)) / noise**2)
        changed = np.abs(again - weights).max()
        weights = again
        inverse = _whitening(shared, noise, weights)
        if gained < _ENOUGH and changed < _SAME_WEIGHTS:
            break
    left, white = inverse @ (observed - values), inverse @ slopes
    normal = white[:, free].T @ white[:, free] + np.diag(precision)
    covariance = np.zeros((len(sigma), len(sigma)))
    covariance[np.ix_(free, free)] = np.linalg.inv(normal)
    return Fit(unknowns, covariance, weights, amplitude, inverse, left, white, sigma, noise)
