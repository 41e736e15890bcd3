# SPDX-License-Identifier: Apache-2.0
"""What observations of several networks say together of the board that they ran on: one fit, with the same rates for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..surface import Surface
from .correct import LATENCY, POWER, Correcting, Figure, latency_rates
from .fitting import Fit, Model, fit
from .models import LATENCY_UNKNOWNS
from .observation import Observation, Rate

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


def rates_together(observed: Sequence[tuple[Surface, Sequence[Observation]]]) -> tuple[Rate, ...]:
    """The rates by which the observations of all networks agree best; what each leaves unexplained is its own.

    Args:
        observed: networks' surfaces as they were predicted, over one grid, each with its observations.
    """
    each = [Correcting(surface, observations) for surface, observations in observed]
    if not each:
        return ()
    timed = [one.rows(LATENCY) for one in each]
    sigma = np.max([one.latency_sigma() for one in each], axis=0)
    times = [one.latency_model(one.cells[rows]) for one, rows in zip(each, timed, strict=True)]
    found = _fitted(each, timed, times, sigma, LATENCY)
    unknowns = np.zeros(len(LATENCY_UNKNOWNS)) if found is None else found.unknowns
    rates = [] if found is None else latency_rates(False, sigma, found)
    metered = [one.rows(POWER) for one in each]
    drawing = []
    for one in each:
        whole = one.latency_model(slice(None))
        drawing.append(one.powering(found, np.exp(whole(unknowns)[0])))
    powers = [draws.observed(one.cells[rows], one.of(rows)) for one, draws, rows in zip(each, drawing, metered, strict=True)]
    sigma = np.max([draws.sigma for draws in drawing], axis=0)
    drawn = _fitted(each, metered, powers, sigma, POWER)
    return (*rates, *(drawing[0].rates(drawn) if drawn else ()))


@dataclass(frozen=True, eq=False)
class _Stacked:
    """Several models with the same unknowns, one below the other."""

    models: tuple[Model, ...]

    def __call__(self, unknowns: Array) -> tuple[Array, Array]:
        values, slopes = zip(*(model(unknowns) for model in self.models), strict=True)
        return np.concatenate(values), np.concatenate(slopes)


def _fitted(
    each: Sequence[Correcting],
    rows: Sequence[Rows],
    models: Sequence[Model],
    sigma: Array,
    figure: Figure,
) -> Fit | None:
    """The fit of all networks' figures of one kind; None where there are none."""
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
    return fit(_Stacked(tuple(models)), sigma, seen, noise, alike, figure.residuals, figure.residual)
