# SPDX-License-Identifier: Apache-2.0
"""What a record of one device is good for: each network predicted by models that were trained without it, beside what it took.

For each network left out, models are trained on the random kernels and on those of the other networks; kernels that it shares
with others stay, as they would for a user's own network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.cost.board import BoardCost, KernelModel
from ...kernels.cost.features import MODELLED_KINDS
from ...kernels.cost.host import HostModel
from ...kernels.cost.model import surface
from ...kernels.kinds import ELEMENTWISE, served_by
from ...kernels.network import Network
from ..errors import MeasurementError
from ..measuring.measurements import Measurements
from .host_fit import fit_host_active_mw, fit_host_model, fit_idle_mw
from .kernel_models import TARGETS, TrainedModel, TrainingOptions, ensemble_of, floor_of, table_of, train_model

Progress = Callable[[int, int, str], None]

_LEAST_SAMPLES = 5  # of a kind; a tree that has fewer says nothing


@dataclass(frozen=True)
class LeftOut:
    """One network that was left out of training.

    Attributes:
        measured_ms, predicted_ms: mean latency over the configurations that it was measured at.
        latency_percent: mean absolute percentage error.
        energy_percent: the same of energy; None where power was not measured.
        sum_percent: of the plain sum of kernel times.
        guessed: share of the time that is spent in kernels without a model.
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


def leave_each_out(measurements: Measurements, options: TrainingOptions, progress: Progress) -> list[LeftOut]:
    """Leave each network of a record out in turn.

    Raises:
        MeasurementError: the record has less than two networks that were measured as a whole, or no kernels.
    """
    networks = [network for network in measurements.networks if network.calls]
    if len(networks) < 2:
        raise MeasurementError(
            f"{len(networks)} networks with known launches in the record; expected two or more, to leave one out"
        )
    kinds = measured_kinds(measurements)
    if not kinds:
        raise MeasurementError("no kind of kernel in the record has a model; it has no figures of kernels with known sizes")
    found = []
    for number, network in enumerate(networks):
        progress(number, len(networks), f"without {network.name}")
        kept = [other for other in networks if other is not network]
        cost = _cost_without(measurements, kinds, network, kept, options)
        found.append(_compared(measurements, network, cost))
    progress(len(networks), len(networks), "done")
    return found


def measured_kinds(measurements: Measurements) -> list[str]:
    """The kinds that a record has figures enough of to train a model."""
    counts = dict.fromkeys((*MODELLED_KINDS, ELEMENTWISE), 0)
    for what in measurements.tables["kernel_ms"].what:
        kind = measurements.invocations[what].kind
        for model in counts:
            counts[model] += kind == model or kind in served_by(model)
    return [kind for kind, count in counts.items() if count >= _LEAST_SAMPLES]


class _Nothing:
    """In place of a model of power where power was not measured."""

    def sweep(
        self, features: NDArray[np.float32], levels: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]], /
    ) -> NDArray[np.float32]:
        return np.zeros((len(features), *map(len, levels)), np.float32)


def _cost_without(
    measurements: Measurements, kinds: Sequence[str], left_out: Network, kept: Sequence[Network], options: TrainingOptions
) -> BoardCost:
    device = measurements.described
    familiar = {launch.signature for network in kept for launch in network.launches}
    without = {launch.signature for launch in left_out.launches} - familiar
    powered = bool(len(measurements.tables["kernel_mw"]))
    kernels = {}
    for kind in kinds:
        models: dict[str, TrainedModel] = {}
        for target in TARGETS if powered else ("time",):
            try:
                table = table_of(measurements, device, kind, target, familiar, None, without)
            except MeasurementError:
                continue  # all of them are the network's own
            if len(table.label) >= _LEAST_SAMPLES:
                models[target] = train_model(table, kind, options)
        if "time" in models:
            power = ensemble_of(models["power"]) if "power" in models else _Nothing()
            kernels[kind] = KernelModel(kind, ensemble_of(models["time"]), power, 0.0, 0.0)
    tables, grid = measurements.tables, device.grid
    return BoardCost(
        grid=grid,
        chip=device.chip,
        kernels=kernels,
        host=fit_host_model(measurements, grid) if len(tables["host_us"]) else HostModel({}, (0.0, 0.0, 0.0)),
        idle_mw=fit_idle_mw(tables["idle_mw"], grid) if len(tables["idle_mw"]) else np.zeros(grid.shape, np.float32),
        host_active_mw=fit_host_active_mw(tables["host_active_mw"], grid)
        if len(tables["host_active_mw"])
        else np.zeros(grid.shape[0], np.float32),
        sigma_latency=0.0,
        sigma_energy=0.0,
        floor=floor_of(measurements, device),
    )


def _compared(measurements: Measurements, network: Network, cost: BoardCost) -> LeftOut:
    what = measurements.networks.index(network)
    tables: Mapping[str, Any] = {
        name: rows.where(rows.what == what)
        for name, rows in measurements.tables.items()
        if name in ("network_ms", "network_mw")
    }
    latency, power = tables["network_ms"], tables["network_mw"]
    if not len(latency):
        raise MeasurementError(f"network {network.name}: was not measured as a whole")
    played, added = surface(network, cost), surface(network, cost, "sum")
    predicted = played.latency_ms.ravel()[latency.configuration]
    energy = None
    if len(power):
        used_mj = power.value * latency.value / 1e3
        energy = _percent(played.energy_mj.ravel()[power.configuration], used_mj)
    return LeftOut(
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
