# SPDX-License-Identifier: Apache-2.0
"""Errors of surfaces at random configurations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from ....kernels.cost.board import BoardCost
from ....kernels.cost.model import surface
from ....kernels.grid import FrequencyGrid
from ....kernels.network import Network
from ....kernels.surface import Surface
from ....kernels.units import METHODS, Method
from ...adapt.network_errors import NetworkError, NetworkMeasurement, compare, summary
from ...twin.silicon.chip import AMBIENT_DIE_C, Array, Clocks
from ...twin.silicon.silicon import Silicon, execute
from ..measure.meters.meter import Meter
from ..measure.meters.simulated import TwinMeter


def true_surface(
    network: Network, silicon: Silicon, grid: FrequencyGrid, rails: Sequence[str], temperature_c: float = AMBIENT_DIE_C
) -> Surface:
    """Latency, power and energy over the grid. Raises TwinError."""
    clocks = Clocks.of(list(grid))
    run = execute(network, silicon, clocks, temperature_c)
    energy_mj = 1e3 * _together(silicon.sensed(run.rail_energy_j), rails).reshape(grid.shape)
    latency_ms = 1e3 * run.latency_s.reshape(grid.shape)
    idle_mw = 1e3 * _together(silicon.sensed(silicon.idle_rails_w(clocks, temperature_c)), rails).reshape(grid.shape)
    return _certain(grid, latency_ms, energy_mj, idle_mw, "true")


def mean_surface(surfaces: Sequence[Surface]) -> Surface:
    latency_ms, energy_mj, idle_mw = (
        np.mean([getattr(one, figure) for one in surfaces], axis=0) for figure in ("latency_ms", "energy_mj", "idle_mw")
    )
    return _certain(surfaces[0].grid, latency_ms, energy_mj, idle_mw, "floor")


def _certain(grid: FrequencyGrid, latency_ms: Array, energy_mj: Array, idle_mw: Array, method: str) -> Surface:
    nothing = np.zeros(grid.shape)
    return Surface(grid, latency_ms, energy_mj / latency_ms * 1e3, energy_mj, idle_mw, nothing, nothing, method)


def _together(figures: dict[str, Array], rails: Sequence[str]) -> Array:
    return np.asarray(np.sum([figures[rail] for rail in rails], axis=0))


FRAMES = 50
"""Frames per configuration for fitting and testing bounds."""


def measure_network(
    network: Network, grid: FrequencyGrid, rails: Sequence[str], meter: Meter, configurations: int, seed: int
) -> NetworkMeasurement:
    """Latency and energy of a network at distinct random configurations."""
    index = np.random.default_rng(seed).choice(grid.size, min(configurations, grid.size), replace=False)
    chosen = [grid.at(position) for position in index]
    latency_ms = np.asarray(meter.network_latency_ms(network, chosen), np.float64)
    measured = meter.network_rails_mw(network, chosen)
    power_mw = sum((np.asarray(measured[rail], np.float64) for rail in rails), np.zeros(len(index)))
    return NetworkMeasurement(network, index, latency_ms, power_mw * latency_ms / 1e3)


def with_frames(
    measured: NetworkMeasurement, grid: FrequencyGrid, meter: TwinMeter, frames: int = FRAMES
) -> NetworkMeasurement:
    chosen = [grid.at(position) for position in measured.index]
    return replace(measured, frames_ms=np.asarray(meter.network_frames_ms(measured.network, chosen, frames), np.float64))


def evaluate(
    cost: BoardCost, measured: Iterable[NetworkMeasurement], methods: Sequence[Method] = METHODS
) -> list[NetworkError]:
    errors = []
    by_network: dict[str, list[NetworkMeasurement]] = {}
    for item in measured:
        by_network.setdefault(item.network.digest, []).append(item)
    for items in by_network.values():
        for method in methods:
            predicted = surface(items[0].network, cost, method)
            errors += [compare(predicted, item) for item in items]
    return errors


def table(errors: Sequence[NetworkError]) -> str:
    """Text table: a line per network, methods side by side, means below."""
    methods = list(dict.fromkeys(error.method for error in errors))
    networks = list(dict.fromkeys(error.network for error in errors))
    lines = [
        (" " * 24 + "".join(f"{method:^28}    " for method in methods)).rstrip(),
        f"{'network':24}" + "".join(f"{'latency':>14}{'energy':>14}    " for _ in methods).rstrip(),
    ]
    for name in [*networks, "mean"]:
        means = summary([error for error in errors if name in (error.network, "mean")])
        cells = (f"{means[m]['latency_percent']:>13.1f}%{means[m].get('energy_percent', np.nan):>13.1f}%    " for m in methods)
        lines.append(f"{name:24}{''.join(cells)}".rstrip())
    return "\n".join(lines)


def evaluated(errors: Sequence[NetworkError], nodes: Sequence[int] = ()) -> dict[str, Any]:
    where = {"nodes": list(nodes)} if nodes else {}
    return {**where, "mean": summary(errors), "networks": [error.to_json() for error in errors]}


def coverage(errors: Sequence[NetworkError]) -> str:
    own = [error for error in errors if error.method == METHODS[0]]
    lines = []
    for figure in ("latency", "energy"):
        by_network: dict[str, list[float]] = {}
        for error in own:
            by_network.setdefault(error.network, []).append(getattr(error, f"{figure}_covered"))
        worst = min(by_network, key=lambda name: float(np.mean(by_network[name])))
        pooled = np.average([getattr(error, f"{figure}_covered") for error in own], weights=[e.configurations for e in own])
        high = np.median([getattr(error, f"{figure}_high") for error in own])
        lines.append(
            f"95% {figure} surface ({METHODS[0]}): covers {pooled:.1%} of all, {np.mean(by_network[worst]):.1%} of {worst}, "
            f"the least; {high:.2f} times the prediction in the median"
        )
    return "\n".join(lines)
