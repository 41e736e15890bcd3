# SPDX-License-Identifier: Apache-2.0
"""Trained profile on disk: ``manifest.json``, tree models, and the board's idle and host costs.

A foreign or damaged profile is refused by its manifest before its models are read. Models are compact
(:mod:`jetdvfs.kernels.trees.compact`) or treelite's, which alone need treelite.
"""

from __future__ import annotations

import os
from functools import lru_cache, partial
from pathlib import Path

from msgspec import Struct

from ...kernels.cost.board import UNSCALED, BoardCost, KernelModel, MissingPowerModel, Regressor
from ...kernels.cost.features import columns
from ...kernels.cost.region import size_names
from ...kernels.errors import KernelsError
from ...kernels.text import printable
from ...kernels.trees.ensemble import TreeEnsemble
from ..board import BOARDS_DIR
from ..documents import DocumentError, load_json
from ..errors import BundleError, ProfilesError
from .files import ARRAYS, HOST, board_arrays, host_model, stored_model
from .finding import default_cache_dir, resolve_bundle
from .identity import read_identity
from .manifest import Manifest
from .reading import MANIFEST, read_checked, read_file
from .tables import MappedModel, TableCache

__all__ = ["Bundle", "load_bundle", "read_manifest"]


class Bundle(Struct, frozen=True):
    """Bundle ready for use."""

    path: Path
    manifest: Manifest
    cost: BoardCost


def read_manifest(directory: Path, *, boards: Path = BOARDS_DIR) -> Manifest:
    """Read a bundle's manifest and check it against its board or device. Raises BundleError.

    Examples:
        >>> from jetdvfs.profiles.bundle.finding import resolve_bundle
        >>> read_manifest(resolve_bundle("agx-xavier-sim")).board
        'agx-xavier'
    """
    read_identity(directory, boards=boards)
    try:
        manifest = Manifest.from_json(load_json(read_file(directory / MANIFEST)))
        _check_features(manifest)
    except (ProfilesError, KernelsError, DocumentError) as error:
        raise BundleError(f"bundle {directory}: {error}") from error
    return manifest


def _check_features(manifest: Manifest) -> None:
    try:
        for kind, entry in manifest.kinds.items():
            columns(kind, entry.features)
            if entry.region is not None and entry.region.sizes != size_names(kind):
                raise BundleError(f"{kind}: its region has not the sizes of this release ({', '.join(size_names(kind))})")
    except (BundleError, KernelsError) as error:
        again = printable(manifest.command)[:200]
        raise BundleError(f"made by another release of jetdvfs: {error}; make it again: {again}") from error


def load_bundle(
    name_or_dir: str | os.PathLike[str],
    *,
    cache_dir: Path | None = None,
    boards: Path = BOARDS_DIR,
    one_by_one: bool = False,
    tables: TableCache | None = None,
) -> Bundle:
    """Read and check a whole bundle.

    Args:
        name_or_dir: name of an installed or shipped bundle, or a folder.
        cache_dir: folder of node tables (default :func:`.finding.default_cache_dir`); else converted in memory.
        one_by_one: for small processes: map a model only during a sweep; missing files fail late.
        tables: cache of node tables, instead of ``cache_dir``.

    Raises:
        BundleError: a part is missing, damaged, or of another board.

    Examples:
        >>> load_bundle("agx-xavier-sim").manifest.grid.size
        3654
    """
    directory = resolve_bundle(name_or_dir)
    manifest = read_manifest(directory, boards=boards)
    try:
        board = manifest.described(boards)
        targets = model_targets(manifest)
        expected = {
            ARRAYS,
            HOST,
            *(stored_model(manifest.checksums, kind, what) for kind in manifest.kinds for what in targets),
        }
        if set(manifest.checksums) != expected:
            raise BundleError(f"checksums: missing or unknown: {', '.join(sorted(set(manifest.checksums) ^ expected))}")
        cache = TableCache(default_cache_dir() if cache_dir is None else cache_dir) if tables is None else tables

        def load(kind: str, what: str) -> TreeEnsemble:
            name = stored_model(manifest.checksums, kind, what)
            digest = manifest.checksums[name]
            return cache.ensemble(
                name, digest, partial(read_checked, directory / name, digest), len(manifest.kinds[kind].features)
            )

        model = load if one_by_one else lru_cache(maxsize=None)(load)
        kernels = {}
        for kind, entry in manifest.kinds.items():
            time: Regressor = MappedModel(partial(model, kind, "time"))
            power: Regressor = MappedModel(partial(model, kind, "power")) if "power" in targets else MissingPowerModel()
            carried = manifest.carried
            if carried is not None:
                time, power = carried.time(time), carried.power(power)
            region = entry.region.region if entry.region else None
            kernels[kind] = KernelModel(
                kind, time, power, entry.time_sigma, entry.power_sigma, entry.dtypes, entry.features, region
            )
        if not one_by_one:
            for name, digest in manifest.checksums.items():
                read_checked(directory / name, digest)
            for kind in manifest.kinds:
                for what in targets:
                    model(kind, what)
        arrays = board_arrays(read_checked(directory / ARRAYS, manifest.checksums[ARRAYS]), manifest.grid)
        if (arrays.leakage_mw is None) != (manifest.leakage_fold_c is None):
            raise BundleError(f"{ARRAYS}: leakage_mw and the manifest's leakage_fold_c: expected both or neither")
        cost = BoardCost(
            grid=manifest.grid,
            chip=manifest.carried.factors.rates(board.chip) if manifest.carried else board.chip,
            kernels=kernels,
            host=host_model(read_checked(directory / HOST, manifest.checksums[HOST])),
            idle_mw=arrays.idle_mw,
            host_active_mw=arrays.host_active_mw,
            sigma_latency=manifest.sigma_latency,
            sigma_energy=manifest.sigma_energy,
            latency_shares=manifest.latency_shares,
            energy_shares=manifest.energy_shares,
            floor=manifest.floor,
            waiting=manifest.waiting,
            host_traffic=manifest.host_traffic,
            leakage_mw=arrays.leakage_mw,
            heat=manifest.heat,
            own_scale=manifest.bounds.own if manifest.bounds else UNSCALED,
            tails=manifest.bounds.tails if manifest.bounds else None,
            engines=manifest.engines.engines if manifest.engines else None,
            observed=manifest.carried is not None,
        )
    except (BundleError, KernelsError) as error:
        raise BundleError(f"bundle {directory}: {error}") from error
    return Bundle(directory, manifest, cost)


def model_targets(manifest: Manifest) -> tuple[str, ...]:
    """Models of each kind: time, and power if measured."""
    return ("time", "power") if manifest.rails else ("time",)


def bundle_bytes(directory: Path, manifest: Manifest) -> int:
    return sum((directory / name).stat().st_size for name in (MANIFEST, *manifest.checksums))
