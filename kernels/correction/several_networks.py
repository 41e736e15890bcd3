# SPDX-License-Identifier: Apache-2.0
"""Rates of a board from observations of several networks.

A network's rates are the board's times its own, and both are unknown, so that many networks say more about the board than few,
however often observed (a hierarchical prior; Gelman et al., Bayesian Data Analysis, chapter 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..surface import Surface
from .correction_run import LATENCY, POWER, CorrectionRun, ObservedFigure
from .fitting import Fit, FittedModel, fit
from .models import LATENCY_UNKNOWNS
from .observation import Observation, RateFactor

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

OF_LATENCY, OF_POWER = LATENCY_UNKNOWNS[:3], ("idle", "dynamic")
# Standard deviations of the logarithms of a network's own rates of latency and power, in addition to the board's.
_OWN_LATENCY, _OWN_POWER = 0.2, 0.1
_DRAWN_BY_THE_BOARD = OF_POWER.index("idle")


def rates_together(
    observed: Sequence[tuple[Surface, Sequence[Observation]]], before: Mapping[str, float] | None = None
) -> tuple[RateFactor, ...]:
    """The board's rates that agree best with the observations of all networks, over one grid.

    Args:
        before: rates already in the surfaces' predictions, by name, which the result includes.
    """
    each = [CorrectionRun(surface, observations) for surface, observations in observed]
    if not each:
        return ()
    timed, metered = ([one.rows(figure) for one in each] for figure in (LATENCY, POWER))
    times = [one.latency_model(one.cells[rows]) for one, rows in zip(each, timed, strict=True)]
    sigma = np.array([one.latency_sigma() for one in each]).max(axis=0)
    board, own = sigma.copy(), sigma.copy()
    board[len(OF_LATENCY) :] = 0.0  # an overall latency rate is a network's
    own[: len(OF_LATENCY)] = _OWN_LATENCY * (sigma[: len(OF_LATENCY)] > 0)
    started = _logs(before, OF_LATENCY, len(sigma))
    timing = _fitted(each, timed, times, (board, own), started, LATENCY)
    drawing = []
    for number, one in enumerate(each):
        unknowns = np.zeros(len(sigma)) if timing is None else _of_network(timing.unknowns, number, started)
        drawing.append(one.powering(unknowns, np.exp(one.latency_model(slice(None))(unknowns)[0])))
    powers = [draws.observed(one.cells[rows], one.of(rows)) for one, draws, rows in zip(each, drawing, metered, strict=True)]
    board = np.array([draws.sigma for draws in drawing]).max(axis=0)
    own = _OWN_POWER * (board > 0).astype(np.float64)
    own[_DRAWN_BY_THE_BOARD] = 0.0
    drawn = _fitted(each, metered, powers, (board, own), _logs(before, OF_POWER, len(board)), POWER)
    return (*(timing.rates(OF_LATENCY) if timing else ()), *(drawn.rates(OF_POWER) if drawn else ()))


class _StackedModels(Struct, frozen=True, eq=False):
    """Several networks' models stacked; unknowns are the board's (now ``before``), then each network's own."""

    models: tuple[FittedModel, ...]
    before: Array

    def __call__(self, unknowns: Array) -> tuple[Array, Array]:
        values, slopes = [], []
        width = len(self.before)
        for number, model in enumerate(self.models):
            value, slope = model(_of_network(unknowns, number, self.before))
            wide = np.zeros((len(value), len(unknowns)))
            wide[:, :width] = wide[:, (number + 1) * width : (number + 2) * width] = slope
            values.append(value)
            slopes.append(wide)
        return np.concatenate(values), np.concatenate(slopes)


def _of_network(unknowns: Array, number: int, before: Array) -> Array:
    width = len(before)
    found: Array = unknowns[:width] - before + unknowns[(number + 1) * width : (number + 2) * width]
    return found


def _logs(rates: Mapping[str, float] | None, names: Sequence[str], count: int) -> Array:
    logs = np.zeros(count)
    logs[: len(names)] = [np.log((rates or {}).get(name, 1.0)) for name in names]
    return logs


def _fitted(
    each: Sequence[CorrectionRun],
    rows: Sequence[Rows],
    models: Sequence[FittedModel],
    sigmas: tuple[Array, Array],
    before: Array,
    figure: ObservedFigure,
) -> Fit | None:
    count = sum(map(len, rows))
    if not count:
        return None
    alike, start = np.zeros((count, count)), 0
    for one, mine in zip(each, rows, strict=True):
        end = start + len(mine)
        alike[start:end, start:end] = one.alike(one.places[mine], one.places[mine])
        start = end
    seen = np.concatenate([one.seen(mine, figure) for one, mine in zip(each, rows, strict=True)])
    noise = np.concatenate([one.noise(mine, figure) for one, mine in zip(each, rows, strict=True)])
    model = _StackedModels(tuple(models), before)
    sigma = np.concatenate([sigmas[0], *[sigmas[1]] * len(each)])
    return fit(model, sigma, seen, noise, alike, figure.residuals, figure.residual)
