# SPDX-License-Identifier: Apache-2.0
"""Train, cross-validate and write a bundle, by board if there are several."""

from __future__ import annotations

import hashlib
import lzma
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from msgspec.structs import replace

from ....kernels.cost.host import HostModel
from ....kernels.network import Network
from ....kernels.stored_files import replacing
from ....kernels.trees.compact import MAGIC
from ...adapt.measurements import Measurements
from ...bundle.bundle import Bundle, load_bundle, model_targets
from ...bundle.files import HOST, BoardArrays, model_files
from ...bundle.manifest import UNSEEN_BOARD_AND_NETWORK, UNSEEN_NETWORK, Manifest
from ...bundle.writing import bundle_files, host_file, write_around, write_manifest
from ...errors import MeasurementError
from .assembly import (
    AssemblyFold,
    Progress,
    Uncertainty,
    board_cost,
    inside_networks,
    left_out_uncertainty,
    make_folds,
    manifest_of,
    models_of,
    regions_of,
    train_all,
)
from .board_spread import fleet_of, widest
from .evaluation import evaluated
from .held_out import measured_kinds, whole_networks
from .kernel_models import FEW_KERNELS, Recipe, TrainingOptions

# Most of a model are numbers of two bytes.
_FILTERS = ({"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "pb": 1, "lp": 1},)


def write_bundle(
    directory: Path, manifest: Manifest, models: Mapping[str, tuple[bytes, ...]], host: HostModel, arrays: BoardArrays
) -> Manifest:
    """Write a bundle into an empty or new folder; return the manifest with checksums.

    ``models`` are compact or treelite bytes.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files = {
        model_files(kind, what)[0 if model.startswith(MAGIC) else 1]: lzma.compress(model, filters=_FILTERS)
        for kind, of_kind in models.items()
        for what, model in zip(model_targets(manifest), of_kind, strict=True)
    }
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return write_around(directory, manifest, host, arrays, files)


def write_with_host(directory: Path, manifest: Manifest, host: HostModel) -> Manifest:
    data = host_file(host)
    with replacing(directory / HOST, 0o644) as file:
        file.write(data)
    return write_manifest(directory, manifest, {**manifest.checksums, HOST: hashlib.sha256(data).hexdigest()})


def copy_bundle(bundle: Bundle, directory: Path) -> None:
    if directory == bundle.path:
        return
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in bundle_files(bundle.path).items():
        (directory / name).write_bytes(data)


_MOST_FOLDS = 5
Evaluation: TypeAlias = Callable[[Bundle, Uncertainty], Mapping[str, Any]]


def write_trained(
    name: str,
    command: str,
    measurements: Measurements,
    networks: Sequence[Network],
    kinds: Sequence[str],
    options: TrainingOptions,
    folds: Sequence[AssemblyFold],
    directory: Path,
    evaluation: Evaluation,
    progress: Progress,
) -> Bundle:
    """Train models, find uncertainty by ``folds``, and write the bundle. Raises MeasurementError."""
    if measurements.powered and math.isnan(measurements.temperature_c):
        raise MeasurementError("the record does not say how warm the die was; expected that of its idle power, or no power")
    board = measurements.described
    trained = train_all(measurements, board, networks, kinds, options, progress)
    uncertainty = left_out_uncertainty(measurements, board, networks, trained, folds, options, progress)
    inside = inside_networks(measurements, board, networks, trained)
    cost = board_cost(measurements, board, trained, uncertainty, inside=inside)
    regions = regions_of(measurements, board, networks, trained, uncertainty, options, progress)
    manifest = manifest_of(name, measurements, board, trained, uncertainty, regions, command, _tools(), cost)
    arrays = BoardArrays(cost.idle_mw, cost.host_active_mw, cost.leakage_mw)
    written = write_bundle(directory, manifest, models_of(trained, inside), cost.host, arrays)
    bundle = load_bundle(directory)
    complete = replace(written, evaluation=evaluation(bundle, uncertainty))
    return replace(bundle, manifest=write_manifest(directory, complete, written.checksums))


def bundle_from_record(
    measurements: Measurements,
    name: str,
    command: str,
    directory: Path,
    progress: Progress,
    *,
    threads: int = 1,
    seed: int = 0,
    tuned: Mapping[str, tuple[Recipe, ...]] | None = None,
    cluster: Any = None,
) -> Bundle:
    """Bundle of a record, also of one board. Raises MeasurementError."""
    own = whole_networks(measurements)
    networks, kinds = own.networks, measured_kinds(own)
    folds = make_folds(networks, own.nodes, min(len(networks), _MOST_FOLDS), seed)
    few = len(own.invocations) <= FEW_KERNELS
    recipes = {"": (Recipe(6, 0.1, min_child_weight=1.0 if few else 5.0),)}
    options = TrainingOptions({**recipes, **(tuned or {})}, most_rounds=300, threads=threads, seed=seed, cluster=cluster)

    def evaluation(_: Bundle, uncertainty: Uncertainty) -> Mapping[str, Any]:
        return {UNSEEN_NETWORK if len(own.nodes) == 1 else UNSEEN_BOARD_AND_NETWORK: evaluated(uncertainty.errors, own.nodes)}

    bundle = write_trained(name, command, own, networks, kinds, options, folds, directory, evaluation, progress)
    if (fleet := fleet_of(bundle.cost, own)) is None:
        return bundle
    latency, energy = widest(bundle.manifest.latency_shares, fleet.latency), widest(bundle.manifest.energy_shares, fleet.energy)
    told = replace(bundle.manifest, fleet=fleet, latency_shares=latency, energy_shares=energy)
    write_manifest(directory, told, bundle.manifest.checksums)
    return load_bundle(directory)


def _tools() -> dict[str, str]:
    import scipy
    import treelite
    import xgboost

    tools = (np, scipy, treelite, xgboost)
    return {"python": platform.python_version(), **{tool.__name__: tool.__version__ for tool in tools}}
