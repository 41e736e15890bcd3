# SPDX-License-Identifier: Apache-2.0
"""Cross-validation of one device's record: networks predicted by models trained without their own kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....kernels.cost.board import BoardCost
from ....kernels.cost.features import MODELLED_KINDS
from ....kernels.cost.model import surface
from ....kernels.kinds import ELEMENTWISE, served_by
from ....kernels.network import Network
from ...adapt.measurements import Measurements
from ...errors import MeasurementError
from .assembly import AssemblyFold, board_cost, inside_networks, train_all
from .kernel_models import TrainingOptions

Progress = Callable[[int, int, str], None]

_LEAST_SAMPLES = 5  # of a kind; a tree that has fewer says nothing


@dataclass(frozen=True)
class HeldOutNetwork:
    """A held-out network.

    Attributes:
        measured_ms, predicted_ms: mean latency over its configurations.
        latency_percent, energy_percent: mean absolute percentage error; energy is None without measured power.
        sum_percent: error of the plain sum of kernel times.
    """

    network: str
    measured_ms: float
    predicted_ms: float
    latency_percent: float
    sum_percent: float
    energy_percent: float | None
    guessed: float

    def to_json(self) -> dict[str, Any]:
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(self).items()}


def leave_each_out(measurements: Measurements, options: TrainingOptions, progress: Progress) -> list[HeldOutNetwork]:
    """Hold out each network of a record in turn. Raises MeasurementError."""
    measurements = whole_networks(measurements)
    networks, kinds, device = measurements.networks, measured_kinds(measurements), measurements.described
    found = []
    for number, network in enumerate(networks):
        progress(number, len(networks), f"without {network.name}")
        fold = AssemblyFold((network,), ())
        trained = train_all(measurements, device, networks, kinds, options, lambda done, total, text: None, fold=fold)
        inside = inside_networks(measurements, device, networks, trained, fold)
        found.append(_compared(measurements, network, board_cost(measurements, device, trained, inside=inside)))
    progress(len(networks), len(networks), "done")
    return found


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
    for name in ("network_ms", "network_mw"):
        rows = replace(tables[name], what=number[tables[name].what])
        tables[name] = rows.where(rows.what >= 0)
    whole = replace(measurements, networks=tuple(measurements.networks[what] for what in kept), tables=tables)
    return at_one_host_speed(whole)


def at_one_host_speed(measurements: Measurements) -> Measurements:
    """Record with network latencies at a constant host speed; a virtual machine's varies by the minute.

    Latencies are scaled by host reference work between inferences, but not below measured kernel time.
    """
    references: Mapping[str, list[float]] = measurements.environment.get("reference_ms", {})
    if not any(references.values()) or len(measurements.described.grid.cpu_khz) > 1:
        return measurements
    middle_ms = {name: float(np.median(each)) for name, each in references.items() if each}
    nominal_ms = float(np.median(list(middle_ms.values())))
    factors = np.array([nominal_ms / middle_ms.get(network.name, nominal_ms) for network in measurements.networks])
    rows = measurements.tables["network_ms"]
    kernels_ms = _measured_kernels_ms(measurements)[rows.what]
    relative = replace(rows, value=np.maximum(rows.value * factors[rows.what], np.minimum(rows.value, kernels_ms)))
    return replace(measurements, tables={**measurements.tables, "network_ms": relative})


def _measured_kernels_ms(measurements: Measurements) -> NDArray[np.float64]:
    if measurements.described.grid.size > 1:
        return np.zeros(len(measurements.networks))
    rows = measurements.tables["kernel_ms"]
    taken_ms = {measurements.invocations[what].signature: value for what, value in zip(rows.what, rows.value, strict=True)}
    sums = [sum(taken_ms.get(launch.signature, 0.0) for launch in network.launches) for network in measurements.networks]
    return np.array(sums)


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
        energy = _percent(played.energy_mj.ravel()[power.configuration], used_mj)
    return HeldOutNetwork(
        network.name,
        float(latency.value.mean()),
        float(predicted.mean()),
        _percent(predicted, latency.value),
        _percent(added.latency_ms.ravel()[latency.configuration], latency.value),
        energy,
        float(played.guessed_share.ravel()[latency.configuration].mean()),
    )


def _percent(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> float:
    return float(np.abs(predicted / measured - 1).mean() * 100)
