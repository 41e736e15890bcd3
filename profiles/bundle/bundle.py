# SPDX-License-Identifier: Apache-2.0
"""A trained profile on disk: ``manifest.json``, tree models in treelite's exchange format, and the board's idle and host costs.

A bundle is a folder. Its manifest names the board and grid it was measured on and the checksum of every other file, so that a
profile for another board, or a damaged one, is refused before any model is looked at. Tree models are exchanged in treelite's
serialised form and used as validated node tables; the conversion is cached, and only it needs treelite.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.cost.features import feature_names
from ...kernels.cost.host import HostModel
from ...kernels.cost.model import BoardCost, KernelModel
from ...kernels.errors import KernelsError
from ...kernels.grid import FrequencyGrid
from ...kernels.trees.ensemble import TreeEnsemble
from ...kernels.trees.node_table import Stamp
from ..board import BOARDS_DIR, load_board
from ..errors import BundleError, ProfilesError
from .manifest import Manifest, not_negative
from .tables import MappedModel, TableCache, write_atomically

MANIFEST = "manifest.json"
ARRAYS = "board.npz"
HOST = "host.json"

SHIPPED = Path(__file__).parents[1] / "bundles"
_MAX_FILE_BYTES = 64 << 20


@dataclass(frozen=True)
class Bundle:
    """A bundle ready for use.

    Attributes:
        path: the folder it was read from.
        manifest: what it says of itself.
        cost: the cost models of the board, over its grid.
    """

    path: Path
    manifest: Manifest
    cost: BoardCost


@dataclass(frozen=True)
class BundleContents:
    """What training hands over to be written as a bundle.

    Attributes:
        models: per kind, the time and the power model as treelite's serialised bytes.
        host: the host's issue times.
        idle_mw: idle power of the named rails over the grid, mW, shape of the grid.
        host_active_mw: what the rails draw above idle while the host issues work, mW, one per CPU level.
    """

    models: Mapping[str, tuple[bytes, bytes]]
    host: HostModel
    idle_mw: NDArray[np.float32]
    host_active_mw: NDArray[np.float32]


def default_cache_dir() -> Path:
    """Where converted node tables are kept: ``$XDG_CACHE_HOME/jetdvfs``, by default ``~/.cache/jetdvfs``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jetdvfs"


def bundle_folders() -> tuple[Path, ...]:
    """Where bundles are looked for: the user's data folder, the system's, and what is shipped with the package."""
    user = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "jetdvfs" / "bundles"
    return (user, Path("/var/lib/jetdvfs/bundles"), SHIPPED)


def find_bundles(folders: Iterable[Path] | None = None) -> dict[str, Path]:
    """Every bundle by name; where two folders have one of the same name, the earlier folder's.

    A folder that may not be looked into, such as a home directory that the daemon is kept out of, has none.
    """
    found: dict[str, Path] = {}
    for folder in bundle_folders() if folders is None else folders:
        try:
            inside = sorted(folder.iterdir())
        except OSError:
            continue
        for directory in filter(_has_manifest, inside):
            found.setdefault(directory.name, directory)
    return found


def resolve_bundle(name_or_dir: str | os.PathLike[str]) -> Path:
    """The folder of a bundle given by name or by folder.

    Raises:
        BundleError: there is none; the text lists the names there are.
    """
    path = Path(name_or_dir)
    if _has_manifest(path):
        return path
    found = find_bundles()
    if str(name_or_dir) in found:
        return found[str(name_or_dir)]
    raise BundleError(
        f"profile {str(name_or_dir)!r}: no such bundle, nor folder with a readable {MANIFEST}; "
        f"valid: {', '.join(found) or 'none'}"
    )


def read_manifest(directory: Path, *, boards: Path = BOARDS_DIR) -> Manifest:
    """Read a bundle's manifest and check it against the board it names, without looking at its models.

    Raises:
        BundleError: it is malformed, or its grid, rails or features are not those of the board and of this release.
    """
    try:
        manifest = Manifest.from_json(json.loads(_read(directory / MANIFEST)))
        board = load_board(manifest.board, boards)
        if manifest.grid != board.grid:
            raise BundleError(f"its grid {manifest.grid.shape} is not that of board {board.name} {board.grid.shape}")
        if not set(manifest.rails) <= {rail for monitor in board.monitors for rail in monitor.channels}:
            raise BundleError(f"rails {', '.join(manifest.rails)} are not all rails of board {board.name}")
        for kind, entry in manifest.kinds.items():
            if entry.features != feature_names(kind):
                raise BundleError(f"{kind}: its features are not those of this release ({', '.join(feature_names(kind))})")
    except (BundleError, ProfilesError, KernelsError, ValueError, RecursionError) as error:
        raise BundleError(f"bundle {directory}: {error}") from error
    return manifest


def load_bundle(
    name_or_dir: str | os.PathLike[str],
    *,
    cache_dir: Path | None = None,
    boards: Path = BOARDS_DIR,
    one_by_one: bool = False,
    known: Mapping[str, Stamp] | None = None,
) -> Bundle:
    """Read and check a whole bundle.

    Args:
        name_or_dir: the name of an installed or shipped bundle, or a folder.
        cache_dir: where converted node tables are kept (default :func:`default_cache_dir`); where it cannot be written, models
            are converted in memory.
        boards: the folder of board descriptions.
        one_by_one: keep a model mapped only while it is being swept, and read a model's file only where the cache has no table
            of it: for a process that predicts one network and has to stay small. What is wrong with a model then shows when it
            is swept.
        known: the stamps of node tables that were checked before (:func:`table_stamps`); while they have them they are not
            checked again.

    Raises:
        BundleError: anything about it is missing, damaged, or made for another board.
    """
    directory = resolve_bundle(name_or_dir)
    manifest = read_manifest(directory, boards=boards)
    board = load_board(manifest.board, boards)
    try:
        expected = {ARRAYS, HOST, *(_model_file(kind, what) for kind in manifest.kinds for what in ("time", "power"))}
        if set(manifest.checksums) != expected:
            raise BundleError(f"checksums name {', '.join(sorted(set(manifest.checksums) ^ expected))} wrongly or not at all")
        tables = TableCache(default_cache_dir() if cache_dir is None else cache_dir, known)

        def load(kind: str, what: str) -> TreeEnsemble:
            name = _model_file(kind, what)
            digest = manifest.checksums[name]
            return tables.ensemble(
                name, digest, partial(_checked, directory / name, digest), len(manifest.kinds[kind].features)
            )

        model = load if one_by_one else lru_cache(maxsize=None)(load)
        kernels = {}
        for kind, entry in manifest.kinds.items():
            time, power = (MappedModel(partial(model, kind, what)) for what in ("time", "power"))
            kernels[kind] = KernelModel(kind, time, power, entry.time_sigma, entry.power_sigma, entry.dtypes)
        if not one_by_one:
            for name, digest in manifest.checksums.items():
                _checked(directory / name, digest)
            for kind in manifest.kinds:
                model(kind, "time"), model(kind, "power")
        idle_mw, host_active_mw = _board_arrays(_checked(directory / ARRAYS, manifest.checksums[ARRAYS]), manifest.grid)
        cost = BoardCost(
            grid=manifest.grid,
            chip=board.chip,
            kernels=kernels,
            host=_host_model(_checked(directory / HOST, manifest.checksums[HOST])),
            idle_mw=idle_mw,
            host_active_mw=host_active_mw,
            sigma_latency=manifest.sigma_latency,
            sigma_energy=manifest.sigma_energy,
            latency_shares=manifest.latency_shares,
            energy_shares=manifest.energy_shares,
        )
    except (BundleError, KernelsError) as error:
        raise BundleError(f"bundle {directory}: {error}") from error
    return Bundle(directory, manifest, cost)


def write_bundle(directory: Path, manifest: Manifest, contents: BundleContents) -> Manifest:
    """Write a bundle into an empty or new folder; returns the manifest with the checksums of what was written."""
    directory.mkdir(parents=True, exist_ok=True)
    files = {
        ARRAYS: _npz(idle_mw=contents.idle_mw.astype(np.float32), host_active_mw=contents.host_active_mw.astype(np.float32)),
        HOST: _json(_host_json(contents.host)),
    }
    for kind, (time, power) in contents.models.items():
        files[_model_file(kind, "time")] = lzma.compress(time, preset=9)
        files[_model_file(kind, "power")] = lzma.compress(power, preset=9)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    checksums = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    return write_manifest(directory, manifest, checksums)


def write_manifest(directory: Path, manifest: Manifest, checksums: Mapping[str, str]) -> Manifest:
    """Write (again) only the manifest of a bundle, for instance when its evaluation is known."""
    complete = Manifest(**{**vars(manifest), "checksums": dict(checksums)})
    write_atomically(directory / MANIFEST, _json(complete.to_json()))
    return complete


def install_bundle(source: Path, destination: Path | None = None, *, cache_dir: Path | None = None) -> Path:
    """Check a bundle, convert its models once, and copy it to where :func:`find_bundles` looks.

    Args:
        source: the bundle's folder.
        destination: the folder of bundles to install into (default: the user's, or the system's when root).

    Returns:
        The folder it was installed in; one of the same name there is replaced.

    Raises:
        BundleError: the bundle is refused, or the destination cannot be written.
    """
    bundle = load_bundle(source, cache_dir=cache_dir)
    if destination is None:
        destination = bundle_folders()[1 if os.geteuid() == 0 else 0]
    target = destination / bundle.manifest.name
    try:
        destination.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=destination, prefix=".install-") as scratch:
            fresh, old = Path(scratch) / "new", Path(scratch) / "old"
            fresh.mkdir()
            for name in (MANIFEST, *bundle.manifest.checksums):
                shutil.copyfile(bundle.path / name, fresh / name)
            if target.exists():
                target.rename(old)
            fresh.rename(target)
    except OSError as error:
        raise BundleError(f"bundle {source}: cannot be installed in {target}: {error.strerror or error}") from error
    return target


def table_stamps(manifest: Manifest, cache_dir: Path) -> dict[str, Stamp]:
    """The state of a bundle's node tables in a cache, by their models' checksums."""
    return TableCache(cache_dir).stamps(manifest.checksums.values())


def bundle_bytes(directory: Path, manifest: Manifest) -> int:
    """The size on disk of a bundle's files."""
    return sum((directory / name).stat().st_size for name in (MANIFEST, *manifest.checksums))


def _has_manifest(directory: Path) -> bool:
    try:
        return (directory / MANIFEST).is_file()
    except OSError:  # it may not be looked into
        return False


def _model_file(kind: str, what: str) -> str:
    return f"{kind}.{what}.treelite.xz"


def _read(path: Path) -> bytes:
    try:
        if path.is_symlink() or not path.is_file():
            raise BundleError(f"{path.name} is missing or no regular file")
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise BundleError(f"{path.name} is larger than {_MAX_FILE_BYTES >> 20} MiB")
        return path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path.name}: {error.strerror or error}") from error


def _checked(path: Path, digest: str) -> bytes:
    data = _read(path)
    if hashlib.sha256(data).hexdigest() != digest:
        raise BundleError(f"{path.name} is damaged: its checksum is not the manifest's")
    return data


def _board_arrays(data: bytes, grid: FrequencyGrid) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            idle_mw, host_active_mw = arrays["idle_mw"], arrays["host_active_mw"]
    except (KeyError, ValueError, OSError, EOFError) as error:
        raise BundleError(f"{ARRAYS}: expected arrays idle_mw and host_active_mw ({error})") from error
    for name, array, shape in (("idle_mw", idle_mw, grid.shape), ("host_active_mw", host_active_mw, grid.shape[:1])):
        if array.shape != shape or array.dtype != np.float32 or not np.isfinite(array).all() or (array < 0).any():
            raise BundleError(f"{ARRAYS}: {name} must be float32 of shape {shape}, finite and not negative")
    return idle_mw, host_active_mw


def _host_json(host: HostModel) -> dict[str, Any]:
    calls = {name: list(value) for name, value in sorted(host.calls.items())}
    return {"default": list(host.default), "per_tensor": list(host.per_tensor), "calls": calls}


def _host_model(data: bytes) -> HostModel:
    try:
        raw = json.loads(data)
        calls = {str(name): _coefficients(value) for name, value in raw["calls"].items()}
        return HostModel(calls, _coefficients(raw["default"]), _coefficients(raw["per_tensor"]))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BundleError(f"{HOST}: expected coefficients a, b, c by call name, by tensor and a default ({error})") from error


def _coefficients(value: Sequence[float]) -> tuple[float, float, float]:
    a, b, c = (not_negative(item) for item in value)
    return (a, b, c)


def _npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=1) + "\n").encode()
