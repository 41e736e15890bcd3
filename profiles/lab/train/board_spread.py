# SPDX-License-Identifier: Apache-2.0
"""Spread over the boards of a merged record."""

from __future__ import annotations

import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from ....kernels.cost.board import BoardCost
from ....kernels.cost.model import surface
from ....kernels.cost.totals import NO_SHARES, BottleneckShares
from ....kernels.grid import FrequencyGrid
from ...adapt.measurements import Measurements
from ...bundle.manifest import FleetEntry
from .assembly import whole_network
from .common_error import ObservedErrors, fit_shares, squared_parts
from .host_fit import clocks_mhz

LEAST_BOARDS = 5
_NOISE = {"latency": 0.008, "energy": 0.02}  # of a measurement's logarithm


def fleet_of(cost: BoardCost, record: Measurements) -> FleetEntry | None:
    """Spread of the boards about their mean, by networks measured as a whole; None for few boards.

    The mean of the boards' errors over the clocks is the profile's own, and left out.
    """
    if len(record.nodes) < LEAST_BOARDS:
        return None
    found: dict[str, list[ObservedErrors]] = {"latency": [], "energy": []}
    for network in record.networks:
        predicted, parts = surface(network, cost), squared_parts(network, cost)
        items = [item for item in whole_network(record, record.networks, network, record.nodes) if len(item.index)]
        for figure, of_figure, own in (
            ("latency", parts[0], [(item.index, item.latency_ms, predicted.latency_ms) for item in items]),
            ("energy", parts[1], [(i.index, i.energy_mj, predicted.energy_mj) for i in items if i.energy_mj is not None]),
        ):
            if own:
                index = np.concatenate([at for at, _, _ in own])
                error = np.concatenate([np.log(value / expected.ravel()[at]) for at, value, expected in own])
                found[figure].append(_about_mean(error, of_figure[:, index], index, cost.grid, _NOISE[figure]))
    latency, energy = (fit_shares(one) if one else NO_SHARES for one in found.values())
    learned = len(set(record.nodes) - set(record.tables["host_us"].node.tolist()))
    return FleetEntry(len(record.nodes), learned, latency, energy)


def widest(one: BottleneckShares, other: BottleneckShares) -> BottleneckShares:
    """Larger share of each component: corrections of a new board start with at least the spread of the boards."""
    return BottleneckShares(*(max(pair) for pair in zip(astuple(one), astuple(other), strict=True)))


def _about_mean(
    error: NDArray[np.float64], parts: NDArray[np.float64], index: NDArray[np.int64], grid: FrequencyGrid, noise: float
) -> ObservedErrors:
    clocks = np.log(np.stack(clocks_mhz(index, grid)))
    common = np.vstack([np.sqrt(np.maximum(parts, 0.0)), np.ones(len(index)), clocks, clocks**2]).T
    left = error - common @ np.linalg.lstsq(common, error, rcond=None)[0]
    return ObservedErrors(left, np.full(len(index), noise**2), parts)
