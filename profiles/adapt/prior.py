# SPDX-License-Identifier: Apache-2.0
"""Profile of this board from another profile and a few observations.

Each kernel's learned distance from its bound is kept, at clocks scaled to make both boards' tops coincide; the bound is the new
board's. Five factors are fitted to whole networks (:func:`jetdvfs.kernels.correction.several_networks.rates_together`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ...kernels.correction.correct import correct, information
from ...kernels.correction.observation import Observation
from ...kernels.correction.several_networks import rates_together
from ...kernels.cost.board import BoardCost
from ...kernels.cost.model import surface
from ...kernels.cost.totals import BottleneckShares
from ...kernels.grid import FrequencyConfiguration, FrequencyGrid
from ...kernels.network import Network
from ...kernels.surface import Surface
from ...kernels.units import AXES
from ..bundle.bundle import Bundle
from ..bundle.carried_profile import CarriedFactors, CarriedOrigin
from ..device import MeasuredDevice

_LEAST_SIGMA = 0.02  # assumed least uncertainty in the search for the front


class NextObservation(Struct, frozen=True):
    """Next observation.

    Its ``uncertainty`` is the largest mean sigma of latency or energy over a network's plannable configurations.
    """

    network: int
    configuration: FrequencyConfiguration
    uncertainty: float


def next_observation(
    surfaces: Sequence[Surface],
    observed: Sequence[Sequence[Observation]],
    tried: Sequence[Collection[FrequencyConfiguration]],
    offered: FrequencyGrid,
) -> NextObservation | None:
    """Choose a network and a configuration; None if all were tried.

    Args:
        tried: configurations of each that were run, even in vain; not chosen again.
        offered: present levels.
    """
    left = [_left(surface, offered, done) for surface, done in zip(surfaces, tried, strict=True)]
    for number, seen in enumerate(observed):
        if not seen and left[number].any():
            places = np.flatnonzero(left[number])
            middle = surfaces[number].grid.at(places[len(places) // 2])
            return NextObservation(number, middle if tried[number] else offered.top, float("inf"))
    known = [number for number, seen in enumerate(observed) if seen]
    now = {number: correct(surfaces[number], observed[number]).surface for number in known}
    wanted = {number: on_front(surface) for number, surface in now.items()}
    each = {number: plan_uncertainty(surface, wanted[number]) for number, surface in now.items()}
    for number in sorted(known, key=lambda number: -each[number]):
        if left[number].any():
            gain = information(surfaces[number], observed[number], left[number], wanted[number])
            return NextObservation(number, surfaces[number].grid.at(np.argmax(gain)), max(each.values()))
    return None


def on_front(surface: Surface) -> NDArray[np.float64]:
    """Relative probability of each configuration to be Pareto-optimal in latency and energy, over the grid."""
    latency, energy = surface.latency_ms.ravel(), np.log(surface.energy_mj.ravel())
    order = np.argsort(latency, kind="stable")
    least = np.empty(len(order))
    least[order] = np.minimum.accumulate(energy[order])
    sigma = np.maximum(surface.energy_sigma.ravel(), _LEAST_SIGMA)
    likely: NDArray[np.float64] = np.exp(-0.5 * ((energy - least) / sigma) ** 2)
    return likely.reshape(surface.grid.shape)


def plan_uncertainty(surface: Surface, weights: NDArray[np.float64]) -> float:
    """Standard deviation of log latency or energy, the larger weighted mean."""
    return float(max(np.average(sigma, weights=weights) for sigma in (surface.latency_sigma, surface.energy_sigma)))


def _left(surface: Surface, offered: FrequencyGrid, tried: Collection[FrequencyConfiguration]) -> NDArray[np.bool_]:
    grid = surface.grid
    cpu, gpu, emc = (np.isin(grid.levels(axis), offered.levels(axis)) for axis in AXES)
    left: NDArray[np.bool_] = cpu[:, None, None] & gpu[None, :, None] & emc[None, None, :]
    for one in tried:
        left[grid.index(one)] = False
    return left


Observed: TypeAlias = Sequence[tuple[Network, Sequence[Observation]]]

_STRANGE = 0.3  # assumed deviation of logarithms between rates of boards of different kinds
_ALIKE = 0.15  # the same for boards of one kind, one of them simulated
_ROUNDS, _LARGEST = 3, 8.0


class Prior(Struct, frozen=True, eq=False):
    """A profile's models on a board's grid, and their origin."""

    cost: BoardCost
    carried: CarriedOrigin


def prior_of(bundle: Bundle, device: MeasuredDevice) -> Prior:
    """Profile on another board, or another one of its kind."""
    manifest, cost = bundle.manifest, bundle.cost
    theirs, ours = cost.grid, device.grid
    clocks = tuple(levels[-1] / mine[-1] for levels, mine in zip(_axes(theirs), _axes(ours), strict=True))
    carried = CarriedOrigin(manifest.name, manifest.board, (clocks[0], clocks[1], clocks[2]), CarriedFactors(), (), 0)
    spread = _ALIKE if manifest.board == device.name else _STRANGE
    shares = BottleneckShares(spread, spread, spread)
    kernels = {
        kind: replace(model, time=carried.time(model.time), power=carried.power(model.power))
        for kind, model in cost.kernels.items()
    }
    leakage_mw = None if cost.leakage_mw is None else _on_grid(cost.leakage_mw, theirs, ours, clocks)
    return Prior(
        replace(
            cost,
            grid=ours,
            chip=device.chip,
            kernels=kernels,
            idle_mw=_on_grid(cost.idle_mw, theirs, ours, clocks),
            host_active_mw=np.asarray(_near(cost.host_active_mw, theirs.cpu_khz, ours.cpu_khz, clocks[0], 0), np.float32),
            latency_shares=shares,
            energy_shares=shares,
            leakage_mw=leakage_mw,
            engines=None,  # of the other board
            observed=True,
            host=cost.host.falling(ours),
        ),
        carried,
    )


def adapted(prior: Prior, device: MeasuredDevice, observed: Observed) -> Prior:
    if not observed:
        return prior
    now, factors = prior, dict[str, float]()
    for _ in range(_ROUNDS):
        rates = rates_together([(surface(network, now.cost), each) for network, each in observed], factors)
        factors = {rate.name: min(max(rate.factor, 1 / _LARGEST), _LARGEST) for rate in rates}
        now = by_factors(prior, device, factors)
    names = tuple(network.name for network, _ in observed)
    return replace(now, carried=replace(now.carried, networks=names, observations=sum(len(each) for _, each in observed)))


def by_factors(prior: Prior, device: MeasuredDevice, more: Mapping[str, float]) -> Prior:
    factors = prior.carried.factors.times(more)
    carried = replace(prior.carried, factors=factors)
    drawn = CarriedOrigin("", "", (1.0, 1.0, 1.0), CarriedFactors(dynamic=more.get("dynamic", 1.0)), (), 0)
    cost, idle = prior.cost, np.float32(more.get("idle", 1.0))
    return Prior(
        replace(
            cost,
            chip=factors.rates(device.chip),
            kernels={kind: replace(model, power=drawn.power(model.power)) for kind, model in cost.kernels.items()},
            host=cost.host.scaled(more.get("host", 1.0)),
            idle_mw=cost.idle_mw * idle,
            host_active_mw=cost.host_active_mw * np.float32(more.get("dynamic", 1.0)),
            leakage_mw=None if cost.leakage_mw is None else cost.leakage_mw * idle,
        ),
        carried,
    )


def _axes(grid: FrequencyGrid) -> list[tuple[int, ...]]:
    return [grid.levels(axis) for axis in AXES]


def _on_grid(
    figures: NDArray[np.float32], theirs: FrequencyGrid, ours: FrequencyGrid, clocks: Sequence[float]
) -> NDArray[np.float32]:
    for axis, (levels, mine, factor) in enumerate(zip(_axes(theirs), _axes(ours), clocks, strict=True)):
        figures = _near(figures, levels, mine, factor, axis)
    return np.asarray(figures, np.float32)


def _near(
    figures: NDArray[np.float32], levels: Sequence[int], mine: Sequence[int], factor: float, axis: int
) -> NDArray[np.float32]:
    at = np.interp(np.asarray(mine) * factor, levels, np.arange(len(levels)))
    low = np.minimum(at.astype(int), max(len(levels) - 2, 0))
    high = np.minimum(low + 1, len(levels) - 1)
    shape = [1] * figures.ndim
    shape[axis] = -1
    share = (at - low).reshape(shape)
    return np.asarray(figures.take(low, axis) * (1 - share) + figures.take(high, axis) * share, np.float32)
