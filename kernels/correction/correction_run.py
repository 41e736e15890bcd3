# SPDX-License-Identifier: Apache-2.0
"""One correction of a surface by observations: physical rates first, then a smooth residual.

The rates of latency and power differ between boards and networks. The residual is smooth over the clocks as far as observations
show, and vanishes away from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ..surface import Surface, Terms
from ..units import AXES
from .corrected_power import CorrectedPower
from .fitting import OUTLIER, Fit, FittedModel, fit, nearness, of_levels, sampled
from .models import LATENCY_UNKNOWNS, NOTHING, ClockedLatency, LatencyModel
from .observation import CorrectedSurface, Correction, Observation

Array = NDArray[np.float64]

MOST_OBSERVATIONS = 32
"""Number of observations used: the latest of each configuration, then the latest of all."""

# Standard deviations of logarithms: of a single frame, of an untypical one, and of the drift within an hour (square root of
# time).
_FRAME, _DISTURBED, _DRIFT_PER_HOUR = 0.02, 0.5, 0.02
# Of the constant's and the overlap's logarithms; a predicted surface's constant is a part of its host's.
_CONSTANT_SIGMA, _OVERLAP_SIGMA, _PREDICTED_CONSTANT_SIGMA = 1.2, 0.75, 0.3
# Part of its variance that is a configuration's own: dependent clocks change by steps.
_OWN = 0.15
# Possible error of an unpredicted program's model, as a logarithm: per factor e between a clock and all observed ones, beyond
# about the next level. On an AGX Orin fits by overlap were 25% off half of that away.
_WRONG, _NEXT = 0.2, 0.15
# Observations of this many frames, off by more standard deviations than that, refute the prediction.
_TELLING, _SURPRISING = 3, 2.5
_UNEVEN = 0.25  # of that
_ALL_TIMES = LATENCY_UNKNOWNS.index("all")
_NO_RESIDUAL = 1e-4  # if only rates are learned


class ObservedFigure(Struct, frozen=True):
    """A figure of observations.

    Attributes:
        systematic: standard deviation of its logarithm common to many frames.
        residuals, residual: amplitudes tried for the residual, and the expected one.
    """

    name: str
    systematic: float
    residuals: tuple[float, ...]
    residual: float


LATENCY = ObservedFigure("latency_ms", 0.005, (0.01, 0.025, 0.06, 0.12), 0.025)
POWER = ObservedFigure("power_mw", 0.01, (0.015, 0.04, 0.08, 0.15), 0.04)


class Evidence(Struct, frozen=True, eq=False):
    """Evidence from the observations of a figure.

    Attributes:
        value, variance: the figure and its logarithm's variance, of the grid's shape.
        cells, left: observed places, and the remaining error of each, as a logarithm, ``(n,)``.
        densities: log probability of each given the rest, ``(n,)``.
    """

    value: Array
    variance: Array
    cells: NDArray[np.intp]
    left: Array
    densities: Array


class CorrectionResult(CorrectedSurface, frozen=True, eq=False):
    latency: Evidence
    power: Evidence


class CorrectionRun:
    def __init__(
        self, surface: Surface, observations: Sequence[Observation], *, smooth: bool = True, powered: bool = True
    ) -> None:
        self._smooth, self._powered = smooth, powered
        self.surface, self.grid = surface, surface.grid
        self.terms = surface.terms or _all_in_one(surface)
        self.given = len(observations)
        self.numbers = _latest(observations)
        self.observations = [observations[number] for number in self.numbers]
        places = [self.grid.index(one.configuration) for one in self.observations]
        self.cells = np.ravel_multi_index(np.array(places).T, self.grid.shape)
        self.places = np.array(places)
        self._near = of_levels(self.grid)
        self._load = False

    def timing(self) -> tuple[NDArray[np.intp], Fit | None]:
        rows = self.rows(LATENCY)
        if not len(rows):
            return rows, None
        model, sigma = self.latency_model(self.cells[rows]), self.latency_sigma()
        surprise = self._surprise(rows, LATENCY, model, sigma)
        if surprise:
            sigma[_ALL_TIMES] = max(sigma[_ALL_TIMES], surprise)
            self._load, model = True, replace(model, load=True)
        return rows, self._fit(rows, LATENCY, model, sigma, surprise)

    def drawing(self, powering: CorrectedPower) -> tuple[NDArray[np.intp], Fit | None]:
        rows = self.rows(POWER)
        if not len(rows) or not self._powered:
            return rows[:0], None
        model, sigma = powering.observed(self.cells[rows], self.of(rows)), powering.sigma.copy()
        surprise = self._surprise(rows, POWER, model, sigma)
        sigma[-1] = max(sigma[-1], surprise)
        return rows, self._fit(rows, POWER, model, sigma, surprise)

    def _fit(self, rows: NDArray[np.intp], figure: ObservedFigure, model: FittedModel, sigma: Array, surprise: float) -> Fit:
        seen, noise = self.seen(rows, figure), self.noise(rows, figure)
        alike, residuals = self.alike(self.places[rows], self.places[rows]), self._residuals(figure, surprise)
        return fit(model, sigma, seen, noise, alike, *residuals, averaged=self.terms.unpredicted)

    def _surprise(self, rows: NDArray[np.intp], figure: ObservedFigure, model: FittedModel, sigma: Array) -> float:
        """Distance of the observations from the prediction, as a logarithm, if its errors do not explain them; else 0.

        Then they are no outliers, but another load or an entirely wrong prediction.
        """
        telling = np.array([one.frames >= _TELLING and not one.disturbed and not one.doubt for one in self.of(rows)])
        if self.terms.unpredicted or not telling.any():
            return 0.0
        predicted, slopes = model(np.zeros(len(sigma)))
        apart = abs(float(np.median((self.seen(rows, figure) - predicted)[telling])))
        expected = np.sqrt((slopes**2 @ sigma**2 + figure.residual**2)[telling])
        return apart if apart > _SURPRISING * float(np.median(expected)) else 0.0

    def powering(self, unknowns: Array | None, latency_ms: Array) -> CorrectedPower:
        if unknowns is None:
            unknowns = np.zeros(len(LATENCY_UNKNOWNS))
        return CorrectedPower(self.surface, self.terms, self._everywhere.busy(unknowns, np.log(latency_ms)), latency_ms)

    def latency(self, rows: NDArray[np.intp], found: Fit | None) -> tuple[Array, Array]:
        if found is None:
            return np.log(self.surface.latency_ms).ravel(), self.surface.latency_sigma.ravel() ** 2
        alike = self._alike_everywhere(rows)
        if not self.terms.unpredicted:
            log_ms, variance, _ = found.predict(self._everywhere, alike)
            return log_ms, variance
        observed, seen = self.latency_model(self.cells[rows]), self.seen(rows, LATENCY)
        log_ms, variance = sampled(found, observed, self._clocked(), self.latency_sigma(), seen, alike)
        return log_ms, variance + (_WRONG * np.maximum(self._away(rows) - _NEXT, 0.0)) ** 2

    def result(self) -> CorrectionResult:
        surface, shape = self.surface, self.grid.shape
        timed, timing = self.timing()
        log_ms, variance = self.latency(timed, timing)
        stands = self._smooth and self.terms.unpredicted
        if stands and timing is not None:
            self._know(timed, LATENCY, self.seen(timed, LATENCY) - log_ms[self.cells[timed]], log_ms, variance)
        latency_ms = np.exp(log_ms)
        powering = self.powering(None if timing is None else timing.unknowns, latency_ms)
        metered, drawing = self.drawing(powering)
        everywhere = powering.model(slice(None))
        unknowns = np.zeros(len(powering.sigma)) if drawing is None else drawing.unknowns
        if drawing is None:
            log_mw, smooth = everywhere(unknowns)[0], np.zeros(self.grid.size)
            power_variance = np.maximum(surface.energy_sigma.ravel() ** 2 - variance, 0.0)
        else:
            log_mw, power_variance, smooth = drawing.predict(everywhere, self._alike_everywhere(metered))
            if stands:
                at_observations = powering.observed(self.cells[metered], self.of(metered))(unknowns)[0]
                left = self.seen(metered, POWER) - at_observations - smooth[self.cells[metered]]
                self._know(metered, POWER, left, log_mw, power_variance)
        idle_mw = np.exp(everywhere.of(powering.idle, unknowns) + smooth)
        power_mw = np.exp(log_mw)
        figures = {
            "latency_ms": latency_ms,
            "power_mw": power_mw,
            "energy_mj": power_mw * latency_ms / 1e3,
            "idle_mw": idle_mw,
            "leakage_mw": idle_mw * (surface.leakage_mw / np.maximum(surface.idle_mw, 1e-9)).ravel(),
            "latency_sigma": np.sqrt(variance),
            "energy_sigma": np.sqrt(power_variance + variance),
        }
        shaped: dict[str, Any] = {name: array.reshape(shape) for name, array in figures.items()}
        corrected = replace(surface, terms=None, **shaped)
        seen_ms, was_ms = self.seen(timed, LATENCY), np.log(surface.latency_ms.ravel()[self.cells[timed]])
        seen_mw, observed = self.seen(metered, POWER), powering.observed(self.cells[metered], self.of(metered))
        latency_left = seen_ms - log_ms[self.cells[timed]]
        power_left = seen_mw - observed(unknowns)[0] - smooth[self.cells[metered]]
        out = {int(rows[one]) for rows, fit in ((timed, timing), (metered, drawing)) if fit for one in _outliers(fit)}
        correction = Correction(
            observations=self.given,
            configurations=len(np.unique(self.cells)),
            rates=(
                *(timing.rates(LATENCY_UNKNOWNS[: 3 if self.terms.unpredicted else 4]) if timing else ()),
                *(drawing.rates(powering.names) if drawing else ()),
            ),
            left_out=tuple(sorted(self.numbers[row] for row in out)),
            latency_error=(mean_error(seen_ms - was_ms), mean_error(latency_left)),
            power_error=(mean_error(seen_mw - observed(np.zeros(len(unknowns)))[0]), mean_error(power_left)),
            residual_latency=timing.amplitude if timing else 0.0,
            residual_power=drawing.amplitude if drawing else 0.0,
        )
        return CorrectionResult(
            corrected,
            correction,
            self._evidence(corrected.latency_ms, variance, timed, latency_left, timing),
            self._evidence(corrected.power_mw, power_variance, metered, power_left, drawing),
        )

    def _evidence(self, value: Array, variance: Array, rows: NDArray[np.intp], left: Array, found: Fit | None) -> Evidence:
        densities = found.densities() if found else np.zeros(0)
        return Evidence(value, variance.reshape(self.grid.shape), self.cells[rows], left, densities)

    def _know(self, rows: NDArray[np.intp], figure: ObservedFigure, left: Array, logs: Array, variance: Array) -> None:
        """Let an observed configuration stand for itself, even as an outlier."""
        noise = self.noise(rows, figure)
        shift, precision = np.zeros(self.grid.size), np.zeros(self.grid.size)
        undisturbed = np.flatnonzero(noise < _DISTURBED)
        cells, weight = self.cells[rows][undisturbed], noise[undisturbed] ** -2
        np.add.at(shift, cells, weight * left[undisturbed])
        np.add.at(precision, cells, weight)
        known = precision > 0
        logs[known] += shift[known] / precision[known]
        variance[known] = 1 / precision[known]

    @cached_property
    def _everywhere(self) -> LatencyModel:
        return self.latency_model(slice(None))

    def latency_model(self, cells: slice | NDArray[np.intp]) -> LatencyModel:
        terms = np.stack([array.ravel()[cells] for array in self.terms.arrays.values()]).astype(np.float64)
        predicted = self.surface.latency_ms.ravel()[cells]
        return LatencyModel(
            terms=np.log(np.maximum(terms, np.exp(NOTHING))),
            predicted=None if self.terms.unpredicted else np.log(predicted),
            top=self._top,
            load=self._load,
        )

    def _clocked(self) -> ClockedLatency:
        terms = self.terms.host_ms[:, 0, 0], self.terms.compute_ms[0, :, 0], self.terms.memory_ms[0, 0]
        cpu, gpu, emc = (np.log(np.maximum(one, np.exp(NOTHING), dtype=np.float64)) for one in terms)
        return ClockedLatency(cpu, gpu, emc, self._top)

    @property
    def _top(self) -> float:
        return float(np.log(self.surface.latency_ms.ravel()[-1]))

    def _residuals(self, figure: ObservedFigure, surprise: float) -> tuple[tuple[float, ...], float]:
        if not self._smooth:
            return (_NO_RESIDUAL,), _NO_RESIDUAL
        here_and_there = max(figure.residual, _UNEVEN * surprise)
        return figure.residuals, min(figure.residuals, key=lambda one: abs(np.log(one / here_and_there)))

    def latency_sigma(self) -> Array:
        terms = self.terms
        there = [float(array.max() > 0) for array in terms.arrays.values()]
        rates = np.array([terms.compute_sigma, terms.memory_sigma, terms.host_sigma]) * there
        flat = terms.unpredicted
        constant = _CONSTANT_SIGMA if flat else _PREDICTED_CONSTANT_SIGMA
        return np.array([*rates, terms.all_sigma, constant, _OVERLAP_SIGMA if flat else 0.0])

    def rows(self, figure: ObservedFigure) -> NDArray[np.intp]:
        return np.array([row for row, one in enumerate(self.observations) if getattr(one, figure.name) is not None], np.intp)

    def of(self, rows: NDArray[np.intp]) -> list[Observation]:
        return [self.observations[row] for row in rows]

    def seen(self, rows: NDArray[np.intp], figure: ObservedFigure) -> Array:
        return np.log(np.array([getattr(one, figure.name) for one in self.of(rows)], np.float64))

    def noise(self, rows: NDArray[np.intp], figure: ObservedFigure) -> Array:
        chosen = self.of(rows)
        frames, age_s, doubt = (
            np.array([getattr(one, name) for one in chosen], np.float64) for name in ("frames", "age_s", "doubt")
        )
        disturbed = np.array([one.disturbed for one in chosen])
        # The common error of repeated observations of one configuration does not fall with repetition.
        _, which, often = np.unique(self.cells[rows], return_inverse=True, return_counts=True)
        variance = often[which] * figure.systematic**2 + _FRAME**2 / frames + _DRIFT_PER_HOUR**2 * age_s / 3600
        return np.sqrt(variance + doubt**2 + disturbed * _DISTURBED**2)

    def alike(self, places: NDArray[np.intp], others: NDArray[np.intp]) -> Array:
        """Correlation of the residual between places, by their grid indices."""
        product = np.ones((len(places), len(others)))
        for axis, near in enumerate(self._near):
            product *= near[places[:, axis][:, None], others[:, axis][None, :]]
        alike: Array = (1 - _OWN) * product + _OWN * (places[:, None, :] == others[None, :, :]).all(axis=2)
        return alike

    @cached_property
    def _alike_all(self) -> Array:
        alike: Array = (1 - _OWN) * nearness(self.grid, self.cells)
        alike[self.cells, np.arange(len(self.cells))] += _OWN
        return alike

    def _away(self, rows: NDArray[np.intp]) -> Array:
        logs = [np.log(np.array(self.grid.levels(axis), np.float64)) for axis in AXES]
        cpu, gpu, emc = (np.abs(one[:, None] - one[self.places[rows, axis]]) for axis, one in enumerate(logs))
        farthest = np.maximum(np.maximum(cpu[:, None, None], gpu[:, None]), emc[None])
        nearest: Array = farthest.min(axis=3).ravel()
        return nearest

    def _alike_everywhere(self, rows: NDArray[np.intp]) -> Array:
        return self._alike_all if len(rows) == len(self.observations) else self._alike_all[:, rows]


def _all_in_one(surface: Surface) -> Terms:
    nothing = np.zeros(surface.grid.shape, np.float32)
    latency, energy = (max(float(sigma.mean()), 0.03) for sigma in (surface.latency_sigma, surface.energy_sigma))
    whole_ms = surface.latency_ms.astype(np.float32)
    return Terms(0.0, 0.0, 0.0, latency, energy, energy, compute_ms=whole_ms, memory_ms=nothing, host_ms=nothing)


def _latest(observations: Sequence[Observation]) -> list[int]:
    order = sorted(range(len(observations)), key=lambda number: observations[number].age_s)
    seen: set[object] = set()
    first: list[int] = []
    rest: list[int] = []
    for number in order:
        key = observations[number].configuration
        (rest if key in seen else first).append(number)
        seen.add(key)
    return sorted([*first, *rest][:MOST_OBSERVATIONS])


def _outliers(found: Fit) -> NDArray[np.intp]:
    return np.flatnonzero(found.weights < OUTLIER)


def mean_error(left: Array) -> float:
    return float(np.abs(left).mean()) if len(left) else 0.0
