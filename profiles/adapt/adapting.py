# SPDX-License-Identifier: Apache-2.0
"""Bundle from another board's profile and a record of some networks."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from ...kernels.correction.observation import Observation
from ...kernels.correction.several_networks import OF_LATENCY, OF_POWER
from ...kernels.cost.board import BoardCost
from ...kernels.cost.model import surface
from ...kernels.cost.totals import NO_SHARES
from ...kernels.network import Network
from ..bundle.bundle import Bundle, load_bundle, model_targets
from ..bundle.files import BoardArrays, stored_model
from ..bundle.manifest import UNSEEN_NETWORK, Manifest
from ..bundle.writing import write_around
from ..device import MeasuredDevice
from ..errors import BundleError, MeasurementError
from .measurements import Measurements
from .network_errors import NetworkError, NetworkMeasurement, compare, summary
from .prior import Observed, Prior, adapted, by_factors, prior_of

_STEADY = 100  # frames per campaign figure
_ONE_NETWORK = 0.15  # assumed deviation for unseen networks if none could be held out


def bundle_adapted(
    prior: Bundle,
    record: Measurements,
    name: str,
    command: str,
    directory: Path,
    progress: Callable[[int, int, str], None] = lambda done, total, text: None,
) -> Bundle:
    """Carry a profile to a record's board, adapt it to its networks, evaluate and write it.

    Raises:
        BundleError: the profile was carried itself, or lacks power.
        MeasurementError: no network was measured as a whole, with its power.
    """
    manifest = prior.manifest
    if manifest.carried is not None:
        raise BundleError(f"profile {manifest.name}: was carried itself; valid: {manifest.carried.profile}, or one measured")
    if not manifest.rails:
        raise BundleError(f"profile {manifest.name}: power was not measured; only times would be carried")
    device, measured = record.described, observed_networks(record)
    before = idling_as(prior_of(prior, device), record)
    networks = {item.network.digest: item.network for item in measured}
    steps = 1 + (len(networks) if len(networks) > 1 else 0)
    progress(0, steps, f"{len(networks)} network{'s' if len(networks) > 1 else ''}")
    after = adapted(before, device, observations(device, measured))
    errors = []
    for number, network in enumerate(networks.values() if steps > 1 else (), 1):
        progress(number, steps, f"{network.name} from the others")
        errors += _left_out(before, device, measured, network)
    progress(steps, steps, "done")
    cost = _with_errors(after.cost, errors)
    directory.mkdir(parents=True, exist_ok=True)
    models = [stored_model(manifest.checksums, kind, what) for kind in manifest.kinds for what in model_targets(manifest)]
    for model in models:
        shutil.copyfile(prior.path / model, directory / model)
    told = _manifest(manifest, record, device, cost, after, name, command, errors)
    arrays = BoardArrays(cost.idle_mw, cost.host_active_mw, cost.leakage_mw)
    write_around(directory, told, cost.host, arrays, models)
    return load_bundle(directory)


def idling_as(prior: Prior, record: Measurements) -> Prior:
    rows = record.tables["idle_mw"]
    if not len(rows):
        return prior
    expected = prior.cost.idle_mw.ravel()[rows.configuration]
    return by_factors(prior, record.described, {"idle": float(np.exp(np.median(np.log(rows.value / expected))))})


def observed_networks(record: Measurements) -> list[NetworkMeasurement]:
    """Whole-network measurements of a record. Raises MeasurementError without any, or without power."""
    found = []
    for what, network in enumerate(record.networks):
        times = record.tables["network_ms"].where(record.tables["network_ms"].what == what)
        powers = record.tables["network_mw"].where(record.tables["network_mw"].what == what)
        if not network.calls or not len(times):
            continue
        if not np.array_equal(times.configuration, powers.configuration) or not np.array_equal(times.node, powers.node):
            raise MeasurementError(f"network {network.name}: expected latency and power at the same configurations")
        for node in np.unique(times.node):
            mine = times.node == node
            energy_mj = powers.value[mine] * times.value[mine] / 1e3
            found.append(NetworkMeasurement(network, times.configuration[mine], times.value[mine], energy_mj))
    if not found:
        raise MeasurementError("no network with known launches was measured as a whole")
    return found


def observed_of(record: Measurements, networks: Sequence[Network]) -> list[list[Observation]]:
    """Observations of each network, in order; empty for unrecorded ones."""
    device, found = record.described, {network.digest: list[Observation]() for network in networks}
    if len(record.tables["network_ms"]):
        for network, each in observations(device, observed_networks(record)):
            found.get(network.digest, []).extend(each)
    return [found[network.digest] for network in networks]


def observations(device: MeasuredDevice, measured: Sequence[NetworkMeasurement]) -> Observed:
    grid = device.grid
    found = []
    for item in measured:
        assert item.energy_mj is not None  # refused above
        each = [
            Observation(grid.at(index), float(ms), float(mj / ms * 1e3), frames=_STEADY)
            for index, ms, mj in zip(item.index, item.latency_ms, item.energy_mj, strict=True)
        ]
        found.append((item.network, each))
    return found


def disagreement(before: Prior, device: MeasuredDevice, observed: Observed) -> float:
    """Largest deviation of log(observed / predicted) after adaptation; each fitted factor counts as one observation less."""
    count = sum(len(each) for _, each in observed)
    if count <= max(len(OF_LATENCY), len(OF_POWER)):
        return float("inf")
    after, worst = adapted(before, device, observed), 0.0
    for network, each in observed:
        expected = surface(network, after.cost)
        for figure, factors in (("latency_ms", OF_LATENCY), ("power_mw", OF_POWER)):
            pairs = [(getattr(one, figure), getattr(expected.at(one.configuration), figure)) for one in each]
            squares = [np.log(seen / predicted) ** 2 for seen, predicted in pairs if seen is not None]
            if squares:
                worst = max(worst, float(np.sqrt(np.mean(squares) * count / (count - len(factors)))))
    return worst


def _left_out(
    before: Prior, device: MeasuredDevice, measured: Sequence[NetworkMeasurement], network: Network
) -> list[NetworkError]:
    others = [item for item in measured if item.network.digest != network.digest]
    seen = surface(network, adapted(before, device, observations(device, others)).cost)
    return [compare(seen, item) for item in measured if item.network.digest == network.digest]


def _with_errors(cost: BoardCost, errors: Sequence[NetworkError]) -> BoardCost:
    def deviation(found: Sequence[float | None]) -> float:
        known = [percent / 100 for percent in found if percent is not None]
        # Of a normal distribution, the mean of absolute values is the deviation times the root of 2 / pi.
        return float(np.mean(known) / np.sqrt(2 / np.pi)) if known else _ONE_NETWORK

    return replace(
        cost,
        latency_shares=NO_SHARES,
        energy_shares=NO_SHARES,
        sigma_latency=deviation([error.latency_percent for error in errors]),
        sigma_energy=deviation([error.energy_percent for error in errors]),
    )


def _manifest(
    prior: Manifest,
    record: Measurements,
    device: MeasuredDevice,
    cost: BoardCost,
    after: Prior,
    name: str,
    command: str,
    errors: Sequence[NetworkError],
) -> Manifest:
    evaluation: Mapping[str, Any] = {}
    if errors:
        found = [error.to_json() for error in errors]
        evaluation = {UNSEEN_NETWORK: {"nodes": list(record.nodes), "mean": summary(errors), "networks": found}}
    return replace(
        prior,
        name=name,
        board=device.name,
        grid=device.grid,
        rails=record.rails,
        simulated=bool(record.silicon_version),
        silicon_version=record.silicon_version,
        nodes=record.nodes,
        sigma_latency=cost.sigma_latency,
        sigma_energy=cost.sigma_energy,
        latency_shares=cost.latency_shares,
        energy_shares=cost.energy_shares,
        evaluation=evaluation,
        command=command,
        device=record.device,
        carried=after.carried,
        engines=None,  # of the other board
    )
