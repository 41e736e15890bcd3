# SPDX-License-Identifier: Apache-2.0
"""Bundle from measurements: models of every kind, host costs, and uncertainty by cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from ....kernels.cost.board import BoardCost, KernelModel, MissingPowerModel
from ....kernels.cost.features import feature_names
from ....kernels.cost.host import NO_TIME, HostModel
from ....kernels.cost.model import surface
from ....kernels.cost.region import ModelPair, Region, size_names
from ....kernels.cost.totals import NO_SHARES, BottleneckShares
from ....kernels.kinds import served_by
from ....kernels.network import Network
from ...adapt.measurements import Measurements
from ...adapt.network_errors import NetworkError, NetworkMeasurement, compare
from ...bundle.manifest import KindEntry, Manifest, RegionEntry
from ...device import MeasuredDevice
from ...errors import MeasurementError
from .common_error import ObservedErrors, fit_shares, squared_parts
from .host_fit import fit_host_active_mw, fit_host_model, fit_idle_mw, fit_leakage, mean_events
from .kernel_models import (
    TARGETS,
    TrainedKind,
    TrainedModel,
    TrainingOptions,
    compact_bytes,
    ensemble_of,
    floor_of,
    residuals_of,
    train_kind,
)
from .network_factors import ALONE, GraphMeasurement, NetworkFactors, fit_inside
from .region_fit import fit_region

Progress = Callable[[int, int, str], None]

_FREE = HostModel({}, NO_TIME)  # if issue times were not measured
_LEAST_SIGMA = 0.01  # no bundle claims that its networks agree with their kernels better than this


class Uncertainty(Struct, frozen=True):
    """Standard deviations of log(measured / predicted) for held-out networks and boards.

    Attributes:
        time, power: of one kernel, by kind.
        latency, energy: of a whole network or board beyond its kernels, by component.
        errors: of whole networks.
    """

    time: Mapping[str, float]
    power: Mapping[str, float]
    latency: BottleneckShares
    energy: BottleneckShares
    errors: tuple[NetworkError, ...]


class AssemblyFold(Struct, frozen=True):
    """Networks and boards left out of one fold; without boards, all are tested."""

    networks: tuple[Network, ...]
    nodes: tuple[int, ...]

    def held_out_nodes(self, measurements: Measurements) -> tuple[int, ...]:
        return self.nodes or measurements.nodes


def train_all(
    measurements: Measurements,
    board: MeasuredDevice,
    networks: Sequence[Network],
    kinds: Sequence[str],
    options: TrainingOptions,
    progress: Progress,
    *,
    fold: AssemblyFold | None = None,
    recipes: Mapping[str, TrainedKind] | None = None,
) -> dict[str, TrainedKind]:
    """Train every kind without a fold's kernels and boards, or by given recipes."""
    kept = [network for network in networks if fold is None or network not in fold.networks]
    familiar = _signatures(kept)
    without = _signatures(networks) - familiar
    nodes = None if fold is None else [node for node in measurements.nodes if node not in fold.nodes]
    trained = {}
    for number, kind in enumerate(kinds):
        progress(number, len(kinds), kind)
        recipe = None if recipes is None else recipes[kind]
        try:
            trained[kind] = train_kind(
                measurements, board, kind, options, familiar, nodes=nodes, without=without, recipes=recipe
            )
        except MeasurementError:
            if fold is None:
                raise
    progress(len(kinds), len(kinds), "trained")
    return trained


def board_cost(
    measurements: Measurements,
    board: MeasuredDevice,
    trained: Mapping[str, TrainedKind],
    uncertainty: Uncertainty | None = None,
    without_nodes: Collection[int] = (),
    inside: NetworkFactors = ALONE,
) -> BoardCost:
    tables = {name: rows.where(~np.isin(rows.node, list(without_nodes))) for name, rows in measurements.tables.items()}
    measurements = replace(measurements, tables=tables)
    kernels = {
        kind: KernelModel(
            kind,
            ensemble_of(models.time, inside.time),
            ensemble_of(models.power, inside.power) if models.power else MissingPowerModel(),
            uncertainty.time[kind] if uncertainty else 0.0,
            uncertainty.power[kind] if uncertainty else 0.0,
            _types_of(measurements, kind),
        )
        for kind, models in trained.items()
    }
    powered = measurements.powered
    idle_mw = fit_idle_mw(tables["idle_mw"], board.grid) if powered else np.zeros(board.grid.shape, np.float32)
    warm, temperature_c = tables["warm_idle_mw"], measurements.temperature_c
    leakage = fit_leakage(warm, measurements.temperatures_c, idle_mw, temperature_c, board.grid)
    return BoardCost(
        grid=board.grid,
        chip=board.chip,
        kernels=kernels,
        host=_host_model(measurements, board, inside),
        idle_mw=idle_mw,
        host_active_mw=fit_host_active_mw(tables["host_active_mw"], board.grid)
        if powered
        else np.zeros(board.grid.shape[0], np.float32),
        sigma_latency=_LEAST_SIGMA if uncertainty else 0.0,
        sigma_energy=_LEAST_SIGMA if uncertainty else 0.0,
        latency_shares=uncertainty.latency if uncertainty else NO_SHARES,
        energy_shares=uncertainty.energy if uncertainty else NO_SHARES,
        floor=floor_of(measurements, board),
        waiting=inside.waiting,
        host_traffic=inside.host_traffic,
        leakage_mw=leakage and leakage[0],
        heat=leakage and leakage[1],
    )


def _host_model(measurements: Measurements, board: MeasuredDevice, inside: NetworkFactors) -> HostModel:
    if not len(measurements.tables["host_us"]):
        return _FREE
    host = fit_host_model(measurements, board.grid).scaled(inside.host)
    return host.with_us(inside.host_us)


def inside_networks(
    measurements: Measurements,
    board: MeasuredDevice,
    networks: Sequence[Network],
    trained: Mapping[str, TrainedKind],
    fold: AssemblyFold | None = None,
) -> NetworkFactors:
    """Time of kernels and calls inside the measured networks; with ``fold``, without its own."""
    left_out: Collection[int] = fold.nodes if fold else ()
    cost = board_cost(measurements, board, trained, without_nodes=left_out)
    nodes = [node for node in measurements.nodes if node not in left_out]
    kept = [network for network in networks if fold is None or network not in fold.networks]
    measured = [item for network in kept for item in whole_network(measurements, networks, network, nodes)]
    graphs = [item for network in kept for item in as_graph(measurements, networks, network, nodes)]
    without = _signatures(networks) - _signatures(kept)
    return fit_inside(cost, measured, graphs, board.own_memory, mean_events(measurements, without))


def make_folds(networks: Sequence[Network], nodes: Sequence[int], count: int, seed: int) -> list[AssemblyFold]:
    """Random folds: every network is left out once, an only board never."""
    rng = np.random.default_rng([seed, 3])
    order = rng.permutation(len(networks))
    boards = rng.permutation(np.asarray(nodes))
    share = max(len(boards) // count, 1) if len(boards) > 1 else 0
    folds = []
    for number in range(count):
        left_out = tuple(networks[index] for index in order[number::count])
        start = number * share % len(boards)
        folds.append(AssemblyFold(left_out, tuple(int(node) for node in boards[start : start + share])))
    return folds


def left_out_uncertainty(
    measurements: Measurements,
    board: MeasuredDevice,
    networks: Sequence[Network],
    trained: Mapping[str, TrainedKind],
    folds: Sequence[AssemblyFold],
    options: TrainingOptions,
    progress: Progress,
) -> Uncertainty:
    kinds = tuple(trained)
    residuals: dict[str, dict[str, list[NDArray[np.float64]]]] = {
        target: {kind: [] for kind in kinds} for target in ("time", "power")
    }
    predicted: list[tuple[BoardCost, Network, list[NetworkMeasurement]]] = []
    for number, fold in enumerate(folds):
        steps = number * len(kinds)

        def report(done: int, _total: int, text: str, steps: int = steps, number: int = number) -> None:
            progress(steps + done, len(folds) * len(kinds), f"fold {number + 1} of {len(folds)}: {text}")

        nodes = fold.held_out_nodes(measurements)
        models = train_all(measurements, board, networks, kinds, options, report, fold=fold, recipes=trained)
        kept = [network for network in networks if network not in fold.networks]
        strange = _signatures(fold.networks) - _signatures(kept)
        for kind, model in models.items():
            for target in ("time", "power"):
                if (own := model.of(target)) is not None:
                    residuals[target][kind].append(residuals_of(measurements, board, kind, target, own, strange, nodes))
        inside = inside_networks(measurements, board, networks, models, fold)
        cost = board_cost(measurements, board, models, without_nodes=fold.nodes, inside=inside)
        predicted += [(cost, network, whole_network(measurements, networks, network, nodes)) for network in fold.networks]
    time, power = (
        {kind: _deviation(parts, trained[kind].of(target)) for kind, parts in residuals[target].items()}
        for target in ("time", "power")
    )
    compared = []
    latency: list[ObservedErrors] = []
    energy: list[ObservedErrors] = []
    for cost, network, items in predicted:
        latency_parts, energy_parts = squared_parts(network, cost)
        kernels = {kind: replace(model, time_sigma=time[kind], power_sigma=power[kind]) for kind, model in cost.kernels.items()}
        informed = replace(cost, kernels=kernels, sigma_latency=_LEAST_SIGMA, sigma_energy=_LEAST_SIGMA)
        seen = surface(network, informed)
        compared.append((informed, network, items))
        for item in items:
            for observed, measured, expected, sigma, parts in (
                (latency, item.latency_ms, seen.latency_ms, seen.latency_sigma, latency_parts),
                (energy, item.energy_mj, seen.energy_mj, seen.energy_sigma, energy_parts),
            ):
                if measured is None:
                    continue
                error = np.log(measured / expected.ravel()[item.index])
                observed.append(ObservedErrors(error, sigma.ravel()[item.index] ** 2, parts[:, item.index]))
    latency_shares, energy_shares = fit_shares(latency), fit_shares(energy) if energy else NO_SHARES
    errors: list[NetworkError] = []
    for cost, network, items in compared:
        again = surface(network, replace(cost, latency_shares=latency_shares, energy_shares=energy_shares))
        errors += [compare(again, item) for item in items]
    return Uncertainty(time, power, latency_shares, energy_shares, tuple(errors))


def whole_network(
    measurements: Measurements, networks: Sequence[Network], network: Network, nodes: Collection[int]
) -> list[NetworkMeasurement]:
    what = [other.name for other in networks].index(network.name)
    found = []
    for node in nodes:
        latency, power = (
            rows.where((rows.what == what) & (rows.node == node))
            for rows in (measurements.tables["network_ms"], measurements.tables["network_mw"])
        )
        if len(power) and not np.array_equal(latency.configuration, power.configuration):
            how = "were measured at different configurations" if len(latency) else "are not both measured"
            raise MeasurementError(f"network {network.name}: latency and power {how}")
        if not len(latency):  # boards of a merged record ran other networks
            continue
        energy_mj = power.value * latency.value / 1e3 if len(power) else None
        found.append(NetworkMeasurement(network, latency.configuration, latency.value, energy_mj))
    return found


def as_graph(
    measurements: Measurements, networks: Sequence[Network], network: Network, nodes: Collection[int]
) -> list[GraphMeasurement]:
    """A network's CUDA graph by board; empty if not measured."""
    what = [other.name for other in networks].index(network.name)
    found = []
    for node in nodes:
        latency, gpu, power = (
            rows.where((rows.what == what) & (rows.node == node))
            for rows in (measurements.tables[name] for name in ("graph_ms", "graph_gpu_ms", "graph_mw"))
        )
        if len(latency):
            energy_mj = power.value * gpu.value / 1e3 if len(power) else None
            found.append(GraphMeasurement(network, latency.configuration, latency.value, gpu.value, energy_mj))
    return found


def models_of(trained: Mapping[str, TrainedKind], inside: NetworkFactors = ALONE) -> dict[str, tuple[bytes, ...]]:
    return {
        kind: (compact_bytes(models.time, inside.time), *((compact_bytes(models.power, inside.power),) if models.power else ()))
        for kind, models in trained.items()
    }


def manifest_of(
    name: str,
    measurements: Measurements,
    board: MeasuredDevice,
    trained: Mapping[str, TrainedKind],
    uncertainty: Uncertainty,
    regions: Mapping[str, Region],
    command: str,
    tools: Mapping[str, str],
    cost: BoardCost,
) -> Manifest:
    dtypes = {kind: _types_of(measurements, kind) for kind in trained}
    return Manifest(
        name=name,
        board=board.name,
        grid=board.grid,
        rails=measurements.rails if measurements.powered else (),
        simulated=bool(measurements.silicon_version),
        silicon_version=measurements.silicon_version,
        nodes=measurements.nodes,
        temperature_c=measurements.temperature_c if measurements.powered else None,
        kinds={
            kind: KindEntry(
                feature_names(kind),
                dtypes[kind],
                uncertainty.time[kind],
                uncertainty.power[kind],
                models.time.samples,
                {target: asdict(model.recipe) for target in TARGETS if (model := models.of(target)) is not None},
                _entry_of(kind, regions[kind]),
            )
            for kind, models in trained.items()
        },
        sigma_latency=_LEAST_SIGMA,
        sigma_energy=_LEAST_SIGMA,
        latency_shares=uncertainty.latency,
        energy_shares=uncertainty.energy,
        floor=cost.floor,
        command=command,
        tools=tools,
        leakage_fold_c=None if cost.heat is None else cost.heat.fold_c,
        waiting=cost.waiting,
        host_traffic=cost.host_traffic,
        device=measurements.device,
    )


def regions_of(
    measurements: Measurements,
    board: MeasuredDevice,
    networks: Sequence[Network],
    trained: Mapping[str, TrainedKind],
    uncertainty: Uncertainty,
    options: TrainingOptions,
    progress: Progress,
) -> dict[str, Region]:
    familiar, regions = _signatures(networks), {}
    for number, (kind, models) in enumerate(trained.items()):
        progress(number, len(trained), f"outside the measured range: {kind}")
        own = ModelPair(uncertainty.time[kind], uncertainty.power[kind])
        regions[kind] = fit_region(measurements, board, models, options, familiar, own)
    progress(len(trained), len(trained), "outside the measured range")
    return regions


def _entry_of(kind: str, region: Region) -> RegionEntry:
    return RegionEntry(size_names(kind), **asdict(region))


def _types_of(measurements: Measurements, kind: str) -> tuple[str, ...]:
    return tuple(sorted({kernel.dtype for kernel in measurements.invocations if kernel.kind in {kind, *served_by(kind)}}))


def _signatures(networks: Sequence[Network]) -> set[Any]:
    return {launch.signature for network in networks for launch in network.launches}


def _deviation(parts: Sequence[NDArray[np.float64]], model: TrainedModel | None) -> float:
    together = np.concatenate(parts) if parts else np.zeros(0)
    if model is None:
        return 0.0
    return float(np.sqrt(np.mean(together**2))) if len(together) else model.sigma
