# SPDX-License-Identifier: Apache-2.0
"""Engine costs for a finished bundle, without new models.

The simulated engine runs networks decomposed as engines (``decompose --as engine``); factors absorb the differences.
TensorRT merges parallel convolutions, the simulated engine does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ....kernels.cost.board import UNSCALED, BoardCost
from ....kernels.cost.engines import (
    ADDED,
    SORTS,
    EngineCosts,
    EngineRates,
    Sort,
    power_in_engine,
    sort_of,
    time_in_engine,
    transfers_ms,
)
from ....kernels.cost.execution import host_times
from ....kernels.cost.host import HostModel, handing
from ....kernels.cost.model import kernel_costs, play, used_memory
from ....kernels.cost.totals import NO_SHARES
from ....kernels.engine.fusing import ENGINE_TYPES
from ....kernels.execution import Execution
from ....kernels.grid import FrequencyGrid
from ....kernels.network import Network
from ...adapt.measurements import MeasurementRows
from ...adapt.network_errors import NetworkMeasurement
from ...bundle.bundle import Bundle, load_bundle
from ...bundle.manifest import BoundsEntry, EnginesEntry
from ...bundle.writing import write_manifest
from ...errors import MeasurementError
from ...reference import reference_names, reference_network
from ...twin.silicon.silicon import check_version
from ..measure.meters.simulated import engines_of, listed, twin_meter
from .error_bounds import NODES, fit_bounds
from .evaluation import FRAMES, evaluated, measure_network, with_frames
from .host_fit import clocks_mhz, fit_issue_time
from .listed_networks import calibrating_networks, left_out_networks, trained_networks
from .making import copy_bundle, write_with_host
from .production import EVALUATION_NODES, evaluate_simulated

_ENGINE: Execution = "engine"
_ROUNDS = 8
_LEAST, _MOST = 0.02, 4.0  # of a factor: a listed kernel is not free
_TIMES = ("floor", *SORTS, *ADDED)
_POWERS = ("product_power", "other_power")


def fit_start(host: HostModel, us: MeasurementRows, launches: NDArray[np.int64], grid: FrequencyGrid) -> HostModel:
    """Host model with the time in us to start an engine, and to issue each of its ``launches``. Raises MeasurementError."""
    if len(set(launches.tolist())) < 2:
        raise MeasurementError(f"engines: starts of {len(set(launches.tolist()))} sizes were measured; expected 2 or more")
    start, each = fit_issue_time(us, launches, grid)
    return replace(host, calls={**host.calls, _ENGINE: start, handing(_ENGINE): each})


def fit_rates(
    cost: BoardCost, measured: Sequence[NetworkMeasurement], known: Mapping[str, EngineRates] | None = None
) -> EngineRates:
    """Factors of one element type's kernels by latencies and energies of engines. Raises MeasurementError.

    Least squares of relative errors, factors between :data:`_LEAST` and :data:`_MOST`, 1 without data. Types in ``known``
    keep theirs.
    """
    if not measured:
        raise MeasurementError("engines: no network was measured")
    framework = replace(cost, in_engine=True, engines=unchanged())
    seen = [_MeasuredEngine.of(framework, item, known or {}) for item in measured]
    latency_ms, energy_mj = (np.concatenate([getattr(one, name) for one in seen]) for name in ("latency_ms", "energy_mj"))
    columns = np.concatenate([one.time_columns() for one in seen])
    rates = EngineRates()
    for _ in range(_ROUNDS):
        fixed_ms = np.concatenate([one.latency_at(rates) - one.time_columns() @ _factors(rates, _TIMES) for one in seen])
        rates = replace(rates, **_fitted(_TIMES, columns, latency_ms - fixed_ms, latency_ms))
    drawn = np.concatenate([one.power_columns(rates) for one in seen])
    rest_mj = np.concatenate([one.rest_mj() for one in seen])
    return replace(rates, **_fitted(_POWERS, drawn, energy_mj - rest_mj, energy_mj))


def unchanged() -> EngineCosts:
    """Engines with framework costs, without product bias and uncertainty."""
    return EngineCosts({"": EngineRates()}, UNSCALED, NO_SHARES, NO_SHARES, 0.0, 0.0, None)


def _factors(rates: EngineRates, names: Sequence[str]) -> NDArray[np.float64]:
    return np.array([getattr(rates, name) for name in names], np.float64)


def _fitted(
    names: Sequence[str], columns: NDArray[np.float64], goal: NDArray[np.float64], scale: NDArray[np.float64]
) -> dict[str, float]:
    from scipy.optimize import lsq_linear

    there = [place for place, column in enumerate(columns.T) if column.any()]
    named = [names[place] for place in there]
    least = [0.0 if name in ADDED else _LEAST for name in named]
    found = lsq_linear(columns[:, there] / scale[:, None], goal / scale, (least, _MOST)).x
    return {name: round(float(factor), 4) for name, factor in zip(named, found, strict=True)}


class _MeasuredEngine(Struct, frozen=True, eq=False):
    """One network of k kernels at its n measured configurations.

    Attributes:
        fixed: factors that are not fitted, or None.
        order, issued_ms: kernel of each launch, (launches,), and end of issuing each, then all, (launches + 1, n).
        gpu_ms, dynamic_mw, transfers_ms: under the framework, (k, n); for weights and activations, (k, 2, n).
        idle_mw, host_mw, once_ms: idle, the host's above it while issuing, its further time, (n,).
    """

    sorts: tuple[Sort, ...]
    fixed: tuple[EngineRates | None, ...]
    order: NDArray[np.intp]
    gpu_ms: NDArray[np.float64]
    dynamic_mw: NDArray[np.float64]
    floor_ms: NDArray[np.float64]
    transfers_ms: NDArray[np.float64]
    issued_ms: NDArray[np.float64]
    once_ms: NDArray[np.float64]
    idle_mw: NDArray[np.float64]
    host_mw: NDArray[np.float64]
    latency_ms: NDArray[np.float64]
    energy_mj: NDArray[np.float64]

    @classmethod
    def of(cls, cost: BoardCost, item: NetworkMeasurement, known: Mapping[str, EngineRates]) -> _MeasuredEngine:
        """Measurement with the framework models' predictions. Raises MeasurementError without power."""
        if item.energy_mj is None:
            raise MeasurementError(f"engines: power of network {item.network.name} was not measured")
        costs, at = kernel_costs(item.network, cost), item.index
        _, gpu_mhz, emc_mhz = clocks_mhz(at, cost.grid)
        cpu, _, emc = np.unravel_index(at, cost.grid.shape)
        host = host_times(item.network, cost, _ENGINE, used_memory(costs, cost))
        return cls(
            sorts=tuple(map(sort_of, costs.kernels)),
            fixed=tuple(known.get(kernel.dtype) for kernel in costs.kernels),
            order=costs.order,
            gpu_ms=costs.gpu_ms.reshape(len(costs.kernels), -1)[:, at].astype(np.float64),
            dynamic_mw=costs.dynamic_mw.reshape(len(costs.kernels), -1)[:, at].astype(np.float64),
            floor_ms=cost.floor.ms(gpu_mhz),
            transfers_ms=np.array([transfers_ms(kernel, emc_mhz, cost.chip) for kernel in costs.kernels]),
            issued_ms=host.issued_ms[:, cpu, emc],
            once_ms=host.once_ms[cpu, emc],
            idle_mw=cost.idle_mw.ravel()[at].astype(np.float64),
            host_mw=cost.host_active_mw[cpu].astype(np.float64),
            latency_ms=item.latency_ms,
            energy_mj=item.energy_mj,
        )

    @property
    def launches(self) -> NDArray[np.int64]:
        return np.bincount(self.order, minlength=len(self.sorts))

    @property
    def fitted(self) -> NDArray[np.bool_]:
        return np.array([own is None for own in self.fixed])

    def times_ms(self, rates: EngineRates) -> NDArray[np.float64]:
        kernels = zip(self.gpu_ms, self.transfers_ms, self.sorts, self.fixed, strict=True)
        return np.array([time_in_engine(ms, self.floor_ms, moved, sort, own or rates) for ms, moved, sort, own in kernels])

    def _dynamic_mj(self, rates: EngineRates) -> NDArray[np.float64]:
        """Energy above idle of each kernel's launches, at framework power, (k, n)."""
        return np.asarray(self.launches[:, None] * self.times_ms(rates) * self.dynamic_mw / 1e3)

    def time_columns(self) -> NDArray[np.float64]:
        """Contribution of each time factor, over all launches, (n, factors)."""
        copied = self._are("copies")
        least = np.where(copied, 0.0, np.minimum(self.gpu_ms, self.floor_ms))
        further = ((self.gpu_ms - least) * self._are(sort) for sort in SORTS)
        moved = np.where(copied, 0.0, self.transfers_ms.transpose(1, 0, 2))
        return np.stack([(self.launches * self.fitted) @ part for part in (least, *further, *moved)], axis=1)

    def power_columns(self, rates: EngineRates) -> NDArray[np.float64]:
        """Energy above idle of products and of other kernels, at framework power, in mJ, (n, 2)."""
        each_mj = self._dynamic_mj(rates) * self.fitted[:, None]
        other = self._are("others") | self._are("copies")
        return np.stack([(each_mj * ~other).sum(axis=0), (each_mj * other).sum(axis=0)], axis=1)

    def _are(self, sort: Sort) -> NDArray[np.bool_]:
        return np.array([own == sort for own in self.sorts])[:, None]

    def latency_at(self, rates: EngineRates) -> NDArray[np.float64]:
        gpu_ms = self.times_ms(rates)[:, :, None, None]
        return play(self.issued_ms[:, :, None], gpu_ms, self.order).latency_ms[:, 0, 0] + self.once_ms

    def rest_mj(self) -> NDArray[np.float64]:
        """Measured energy without fitted kernels above idle, in mJ, (n,)."""
        powers = [0.0 if own is None else power_in_engine(sort, own) for own, sort in zip(self.fixed, self.sorts, strict=True)]
        host_mj = self.host_mw * (self.issued_ms[-1] + self.once_ms) / 1e3
        return np.asarray(self.idle_mw * self.latency_ms / 1e3 + host_mj + np.array(powers) @ self._dynamic_mj(EngineRates()))


FITTED_NODES = 3
"""Number of training boards whose engines are measured."""
JUDGED_NODES = NODES[:12]
"""Boards for fitting uncertainty."""
CONFIGURATIONS = 8
_KEPT_BY = 1.0  # all of them: the error of an engine is common to its network
_EACH = 4  # of the networks that profiles are trained on, every fourth
_STARTS = 12  # configurations at which each network's start is timed


def evaluation_of(compiled: str) -> str:
    """Name of an engine's evaluation in a manifest."""
    return f"unseen_board_{compiled.replace('-', '_')}"


def add_engines(bundle: Bundle, directory: Path, seed: int, progress: Callable[[int, int, str], None]) -> Bundle:
    """Measure engines on simulated boards, fit their costs, and write the bundle. Raises TwinError."""
    manifest, cost = bundle.manifest, bundle.cost
    check_version(manifest.silicon_version, manifest.board)
    known = [reference_network(name) for name in reference_names()]
    fitted = [*known, *trained_networks()[::_EACH]]
    judging = [*known, *calibrating_networks()]
    nodes, ways = manifest.nodes[:FITTED_NODES], engines_of(manifest.board)
    steps, done = len(nodes) * (1 + len(ways)) + len(JUDGED_NODES) * len(ways), 0

    def told(text: str) -> None:
        nonlocal done
        progress(done, steps, text)
        done += 1

    def measured(networks: Sequence[Network], on: Sequence[int], compiled: str, frames: int) -> Iterator[NetworkMeasurement]:
        views = [listed(network, compiled) for network in networks]
        for node in on:
            told(f"board {node}: {len(networks)} networks as {compiled}")
            meter = twin_meter(manifest.board, node, seed + 4, compiled)
            for position, (network, view) in enumerate(zip(networks, views, strict=True)):
                choice = seed + 100 * node + position
                taken = measure_network(network, cost.grid, manifest.rails, meter, CONFIGURATIONS, choice)
                yield replace(with_frames(taken, cost.grid, meter, frames) if frames else taken, network=view)

    def starts() -> Iterator[tuple[MeasurementRows, NDArray[np.int64]]]:
        random = np.random.default_rng([seed, 6])
        for node in nodes:
            told(f"board {node}: starts of engines")
            for compiled in ways:
                meter = twin_meter(manifest.board, node, seed + 4, compiled)
                for network in known:
                    flat = random.choice(cost.grid.size, min(_STARTS, cost.grid.size), replace=False)
                    at = [cost.grid.at(index) for index in flat]
                    us = 1e3 * meter.host_time_ms(meter.silicon.prepared(network).calls, at)
                    launches = np.full(len(flat), len(listed(network, compiled).launches))
                    yield MeasurementRows(np.zeros(len(flat), np.int64), np.full(len(flat), node), flat, us), launches

    rows, launches = zip(*starts(), strict=True)
    cost = replace(cost, host=fit_start(cost.host, MeasurementRows.joined(list(rows)), np.concatenate(launches), cost.grid))
    rates: dict[str, EngineRates] = {}
    for way in ways:
        rates[ENGINE_TYPES[way]] = fit_rates(cost, [*measured(fitted, nodes, way, 0)], rates)
    running: BoardCost = replace(cost, engines=replace(unchanged(), rates=rates)).run_by("engine")
    seen = [item for way in ways for item in measured(judging, JUDGED_NODES, way, FRAMES)]
    progress(steps, steps, "fitting")
    bounded = fit_bounds(running, seen, _KEPT_BY)
    assert bounded.tails is not None
    tails, names = bounded.tails, tuple(network.name for network in judging)
    entry = EnginesEntry(
        rates=rates,
        bounds=BoundsEntry(bounded.own_scale, tails.latency, tails.energy, tails.frames, JUDGED_NODES, names),
        latency_shares=bounded.latency_shares,
        energy_shares=bounded.energy_shares,
        sigma_latency=bounded.sigma_latency,
        sigma_energy=bounded.sigma_energy,
        nodes=nodes,
        networks=tuple(network.name for network in fitted),
    )
    command = f"jetdvfs-lab train {manifest.name} --out {manifest.name}-engines"
    said = manifest.command if directory == bundle.path else f"{manifest.command}; {command}"
    copy_bundle(bundle, directory)
    write_with_host(directory, replace(manifest, engines=entry, command=said), cost.host)
    again = load_bundle(directory)
    records = {}
    for compiled in ways:
        errors = evaluate_simulated(again, [*known, *left_out_networks()], EVALUATION_NODES, compiled=compiled)
        records[evaluation_of(compiled)] = evaluated(errors, EVALUATION_NODES)
    complete = replace(again.manifest, evaluation={**manifest.evaluation, **records})
    return replace(again, manifest=write_manifest(directory, complete, again.manifest.checksums))
