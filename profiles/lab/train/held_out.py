# SPDX-License-Identifier: Apache-2.0
"""Cross-validation of one device's record: networks predicted by models trained without their own kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ....kernels.cost.board import BoardCost
from ....kernels.cost.features import MODELLED_KINDS
from ....kernels.cost.host import handing
from ....kernels.cost.model import kernel_costs, surface
from ....kernels.kinds import ELEMENTWISE, served_by
from ....kernels.network import Network
from ...adapt.measurements import NETWORK_TABLES, Measurements
from ...adapt.network_errors import mean_error_percent
from ...errors import MeasurementError
from ..measure.figures import kernel_times_ms
from .assembly import AssemblyFold, board_cost, inside_networks, make_folds, train_all
from .host_fit import fit_host_model
from .kernel_models import TrainingOptions
from .network_factors import ALONE

Progress = Callable[[int, int, str], None]

_LEAST_SAMPLES = 5  # of a kind; a tree that has fewer says nothing


class HeldOutNetwork(Struct, frozen=True):
    """A held-out network.

    Attributes:
        measured_ms, predicted_ms: mean latency over its configurations.
        latency_percent, energy_percent: mean absolute percentage error; energy is None without measured power.
        sum_percent: error of the plain sum of kernel times.
        graph_percent, graph_energy_percent: of its CUDA graph's GPU time, and of the energy of a replay; None if not measured.
        graph_latency_percent: of the graph from its start by the host; None if not measured.
    """

    network: str
    measured_ms: float
    predicted_ms: float
    latency_percent: float
    sum_percent: float
    energy_percent: float | None
    guessed: float
    graph_percent: float | None = None
    graph_energy_percent: float | None = None
    graph_latency_percent: float | None = None


class HeldOutKind(Struct, frozen=True):
    """Kernels of one kind in held-out networks.

    Attributes:
        kernels: timed kernels, each network's distinct ones.
        percent: mean absolute percentage error of their times.
        share: their part of the networks' kernel time, 0 to 1.
        network_percent: mean error that they bring to a network's kernel time; errors of opposite sign cancel within it.
    """

    kind: str
    kernels: int
    percent: float
    share: float
    network_percent: float


def leave_out(
    measurements: Measurements, options: TrainingOptions, progress: Progress, groups: int = 0
) -> tuple[list[HeldOutNetwork], list[HeldOutKind]]:
    """Predict each network of a record without its kernels, alone or in ``groups``. Raises MeasurementError."""
    measurements = whole_networks(measurements)
    networks, kinds, device = measurements.networks, measured_kinds(measurements), measurements.described
    alone = [AssemblyFold((network,), ()) for network in networks]
    folds = make_folds(networks, measurements.nodes[:1], min(groups, len(networks)), options.seed) if groups else alone
    timed_ms = kernel_times_ms(measurements)
    found, errors = dict[str, HeldOutNetwork](), list[_KernelErrors]()
    for number, fold in enumerate(folds):
        progress(number, len(folds), f"without {', '.join(network.name for network in fold.networks):.40}")
        trained = train_all(measurements, device, networks, kinds, options, lambda done, total, text: None, fold=fold)
        inside = inside_networks(measurements, device, networks, trained, fold)
        apart, cost = (board_cost(measurements, device, trained, inside=one) for one in (ALONE, inside))
        for network in fold.networks:
            found[network.name] = _compared(measurements, network, cost)
            errors += _kernel_errors(network, apart, timed_ms)
    progress(len(folds), len(folds), "done")
    return [found[network.name] for network in networks], _of_kinds(errors, len(networks))


class _KernelErrors(NamedTuple):
    """Relative errors of a network's kernels of one kind, and their part of its kernel time, predicted and measured."""

    kind: str
    each: NDArray[np.float64]
    predicted: float
    measured: float


def _kernel_errors(network: Network, cost: BoardCost, timed_ms: Mapping[Any, Mapping[int, float]]) -> list[_KernelErrors]:
    costs = kernel_costs(network, cost)
    launches = np.bincount(costs.order, minlength=len(costs.kernels))
    parts: dict[str, list[tuple[float, float, float]]] = {}
    for place, kernel in enumerate(costs.kernels):
        if own := timed_ms.get(kernel.signature):
            predicted = costs.gpu_ms[place].ravel()[list(own)].astype(np.float64)
            measured = np.array(list(own.values()))
            error = mean_error_percent(predicted, measured) / 100
            times = float(launches[place])
            parts.setdefault(kernel.kind, []).append((error, times * float(predicted.mean()), times * float(measured.mean())))
    whole_ms = sum(one[2] for own in parts.values() for one in own)
    return [
        _KernelErrors(kind, each, predicted_ms.sum() / whole_ms, measured_ms.sum() / whole_ms)
        for kind, own in parts.items()
        for each, predicted_ms, measured_ms in [np.array(own).T]
    ]


def _of_kinds(errors: Sequence[_KernelErrors], networks: int) -> list[HeldOutKind]:
    kinds = list(dict.fromkeys(one.kind for one in errors))
    found = []
    for kind in kinds:
        own = [one for one in errors if one.kind == kind]
        each = np.concatenate([one.each for one in own])
        off = sum(abs(one.predicted - one.measured) for one in own) / networks
        share = sum(one.measured for one in own) / networks
        found.append(HeldOutKind(kind, len(each), float(each.mean() * 100), share, off * 100))
    return sorted(found, key=lambda one: -one.network_percent)


def whole_networks(measurements: Measurements) -> Measurements:
    """Record with only whole networks of known launches. Raises MeasurementError."""
    measured = set(map(int, measurements.tables["network_ms"].what))
    kept = [what for what, network in enumerate(measurements.networks) if network.calls and what in measured]
    if len(kept) < 2:
        raise MeasurementError(
            f"{len(kept)} networks with known launches were measured as a whole; expected two or more, to leave one out"
        )
    number = np.full(len(measurements.networks), -1)
    number[kept] = np.arange(len(kept))
    tables = dict(measurements.tables)
    for name in NETWORK_TABLES:
        rows = replace(tables[name], what=number[tables[name].what])
        tables[name] = rows.where(rows.what >= 0)
    whole = replace(measurements, networks=tuple(measurements.networks[what] for what in kept), tables=tables)
    return at_one_host_speed(whole)


def at_one_host_speed(measurements: Measurements) -> Measurements:
    """Record with network latencies at a constant host speed; a virtual machine's varies by the minute.

    Latencies are scaled by host reference work between inferences, but not below measured kernel time, and not where kernels
    take longer than the calls' issue.
    """
    references: Mapping[str, list[float]] = measurements.environment.get("reference_ms", {})
    if not any(references.values()) or len(measurements.described.grid.cpu_khz) > 1:
        return measurements
    middle_ms = {name: float(np.median(each)) for name, each in references.items() if each}
    nominal_ms = float(np.median(list(middle_ms.values())))
    factors = np.array([nominal_ms / middle_ms.get(network.name, nominal_ms) for network in measurements.networks])
    rows = measurements.tables["network_ms"]
    kernels_ms = _measured_kernels_ms(measurements)[rows.what]
    scaled = np.maximum(rows.value * factors[rows.what], np.minimum(rows.value, kernels_ms))
    relative = replace(rows, value=np.where(kernels_ms > _issued_ms(measurements)[rows.what], rows.value, scaled))
    return replace(measurements, tables={**measurements.tables, "network_ms": relative})


def _issued_ms(measurements: Measurements) -> NDArray[np.float64]:
    """Issue time of each network's calls in ms, infinite if unmeasured."""
    if not len(measurements.tables["host_us"]):
        return np.full(len(measurements.networks), np.inf)
    grid = measurements.described.grid
    host, (cpu_mhz, _, emc_mhz) = fit_host_model(measurements, grid), grid.levels_mhz()
    return np.array([host.issue_us(one.calls, cpu_mhz, emc_mhz).sum() / 1e3 for one in measurements.networks])


def _measured_kernels_ms(measurements: Measurements) -> NDArray[np.float64]:
    if measurements.described.grid.size > 1:
        return np.zeros(len(measurements.networks))
    timed_ms = kernel_times_ms(measurements)
    each = [[sum(timed_ms.get(launch.signature, {}).values()) for launch in one.launches] for one in measurements.networks]
    return np.array([sum(own) for own in each])


def measured_kinds(measurements: Measurements) -> list[str]:
    """Kinds with enough measured times for models. Raises MeasurementError without any."""
    kinds = Counter(measurements.invocations[what].kind for what in measurements.tables["kernel_ms"].what)
    counts = {
        model: kinds[model] + sum(kinds[kind] for kind in served_by(model) if kind != model)
        for model in (*MODELLED_KINDS, ELEMENTWISE)
    }
    found = [model for model, count in counts.items() if count >= _LEAST_SAMPLES]
    if not found:
        raise MeasurementError("no kind of kernel in the record has a model; it has no figures of kernels with known sizes")
    return found


def _compared(measurements: Measurements, network: Network, cost: BoardCost) -> HeldOutNetwork:
    what = measurements.networks.index(network)
    tables: Mapping[str, Any] = {
        name: rows.where(rows.what == what)
        for name, rows in measurements.tables.items()
        if name in ("network_ms", "network_mw")
    }
    latency, power = tables["network_ms"], tables["network_mw"]
    played, added = surface(network, cost), surface(network, cost, "sum")
    predicted = played.latency_ms.ravel()[latency.configuration]
    energy = None
    if len(power):
        used_mj = power.value * latency.value / 1e3
        energy = mean_error_percent(played.energy_mj.ravel()[power.configuration], used_mj)
    return HeldOutNetwork(
        network.name,
        float(latency.value.mean()),
        float(predicted.mean()),
        mean_error_percent(predicted, latency.value),
        mean_error_percent(added.latency_ms.ravel()[latency.configuration], latency.value),
        energy,
        float(played.guessed_share.ravel()[latency.configuration].mean()),
        *_graph_percent(measurements, network, cost),
    )


def _graph_percent(measurements: Measurements, network: Network, cost: BoardCost) -> tuple[float | None, ...]:
    """Errors of a CUDA graph's GPU time and energy per replay, and of its latency; starts of replays in a row are hidden."""
    what = measurements.networks.index(network)
    gpu, power, whole = (
        rows.where(rows.what == what)
        for rows in (measurements.tables[name] for name in ("graph_gpu_ms", "graph_mw", "graph_ms"))
    )
    if not len(gpu):
        return ()
    started_ms = surface(network, cost, execution="graph").latency_ms.ravel()[whole.configuration]
    started = mean_error_percent(started_ms, whole.value)
    starts = [name for name in cost.host.calls if name.startswith(handing("graph"))]
    free = cost.host.with_us(dict.fromkeys(("graph", *starts), 0.0))
    hidden = replace(cost, host=free, host_active_mw=np.zeros_like(cost.host_active_mw))
    played = surface(network, hidden, execution="graph")
    latency = mean_error_percent(played.latency_ms.ravel()[gpu.configuration], gpu.value)
    if not len(power):
        return latency, None, started
    return latency, mean_error_percent(played.energy_mj.ravel()[gpu.configuration], power.value * gpu.value / 1e3), started
