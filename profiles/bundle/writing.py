# SPDX-License-Identifier: Apache-2.0
"""Writing a bundle, and installing one where it is found by name."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.cost.board import BoardCost
from ...kernels.cost.host import HostModel
from ...kernels.errors import KernelsError
from ...kernels.stored import replacing
from ..documents import DocumentError, load_json
from ..errors import BundleError
from .bundle import Bundle, load_bundle, model_targets
from .files import ARRAYS, HOST, model_file
from .finding import install_folder
from .manifest import Manifest
from .reading import MANIFEST, SourceFolder, checked

# Most of a model are numbers of two bytes.
_FILTERS = ({"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "pb": 1, "lp": 1},)

_MOST_BYTES = 512 << 20


@dataclass(frozen=True)
class BundleContents:
    """What training hands over to be written as a bundle.

    Attributes:
        models: per kind, the models, compact or as treelite's serialised bytes: of time, and of power where it was measured.
        host: the host's issue times.
        idle_mw: idle power of the named rails over the grid, mW, shape of the grid.
        host_active_mw: what the rails draw above idle while the host issues work, mW, one per CPU level.
        leakage_mw: the part of the idle power that grows with temperature, mW, shape of the grid; None where it was not
            measured.
    """

    models: Mapping[str, tuple[bytes, ...]]
    host: HostModel
    idle_mw: NDArray[np.float32]
    host_active_mw: NDArray[np.float32]
    leakage_mw: NDArray[np.float32] | None = None


def write_bundle(directory: Path, manifest: Manifest, contents: BundleContents) -> Manifest:
    """Write a bundle into an empty or new folder; returns the manifest with the checksums of what was written."""
    directory.mkdir(parents=True, exist_ok=True)
    files = {
        ARRAYS: board_file(contents.idle_mw, contents.host_active_mw, contents.leakage_mw),
        HOST: _json(_host_json(contents.host)),
    }
    for kind, models in contents.models.items():
        for what, model in zip(model_targets(manifest), models, strict=True):
            files[model_file(kind, what, model)] = lzma.compress(model, filters=_FILTERS)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    checksums = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    return write_manifest(directory, manifest, checksums)


def write_around(directory: Path, manifest: Manifest, cost: BoardCost, models: Collection[str]) -> Manifest:
    """Write what a bundle has besides its tree models, which lie in the folder already, the cost's figures among it."""
    files = {
        ARRAYS: board_file(cost.idle_mw, cost.host_active_mw, cost.leakage_mw),
        HOST: _json(_host_json(cost.host)),
    }
    for name, data in files.items():
        (directory / name).write_bytes(data)
    names = sorted([*files, *models])
    return write_manifest(
        directory, manifest, {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in names}
    )


def write_with_host(directory: Path, manifest: Manifest, host: HostModel) -> Manifest:
    """Write (again) a bundle's host times, and its manifest with their checksum."""
    data = _json(_host_json(host))
    with replacing(directory / HOST, 0o644) as file:
        file.write(data)
    return write_manifest(directory, manifest, {**manifest.checksums, HOST: hashlib.sha256(data).hexdigest()})


def board_file(
    idle_mw: NDArray[np.float32], host_active_mw: NDArray[np.float32], leakage_mw: NDArray[np.float32] | None
) -> bytes:
    """The file of the board's arrays, as in :class:`BundleContents`."""
    arrays = {"idle_mw": idle_mw, "host_active_mw": host_active_mw, "leakage_mw": leakage_mw}
    return _npz(**{name: array.astype(np.float32) for name, array in arrays.items() if array is not None})


def write_manifest(directory: Path, manifest: Manifest, checksums: Mapping[str, str]) -> Manifest:
    """Write (again) only the manifest of a bundle, for instance when its evaluation is known."""
    complete = replace(manifest, checksums=dict(checksums))
    with replacing(directory / MANIFEST, 0o644) as file:
        file.write(_json(complete.to_json()))
    return complete


def copy_bundle(bundle: Bundle, directory: Path) -> None:
    """Copy a bundle's files, its manifest among them, into a folder, made if it is not there; its own is left as it is."""
    if directory == bundle.path:
        return
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in _contents(bundle.path).items():
        (directory / name).write_bytes(data)


def install_bundle(source: Path, destination: Path | None = None, *, cache_dir: Path | None = None) -> Path:
    """Check a bundle, convert its models once, and copy it to where :func:`.finding.find_bundles` looks.

    Args:
        source: the bundle's folder.
        destination: the folder of bundles to install into (default: the user's, or the system's when root).

    Returns:
        The folder it was installed in; one of the same name there is replaced.

    Raises:
        BundleError: the bundle is refused, or the destination cannot be written.
    """
    contents = _contents(source)
    destination = install_folder() if destination is None else destination
    target = destination
    try:
        destination.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=destination, prefix=".install-") as scratch:
            fresh, old = Path(scratch) / "new", Path(scratch) / "old"
            target = destination / _checked_copy(source, contents, fresh, cache_dir).manifest.name
            if target.exists():
                target.rename(old)
            fresh.rename(target)
    except OSError as error:
        raise BundleError(f"bundle {source}: cannot be installed in {target}: {error.strerror or error}") from error
    return target


def check_bundle(source: Path, *, cache_dir: Path | None = None) -> Manifest:
    """Check a bundle as :func:`install_bundle` does, and install nothing.

    Raises:
        BundleError: the bundle is refused.
    """
    with tempfile.TemporaryDirectory(prefix="jetdvfs-check-") as scratch:
        return _checked_copy(source, _contents(source), Path(scratch) / "new", cache_dir).manifest


def _checked_copy(source: Path, contents: Mapping[str, bytes], directory: Path, cache_dir: Path | None) -> Bundle:
    """Write a bundle's files into a new folder of this user's alone, and check that: ``source`` may change meanwhile."""
    try:
        directory.mkdir(mode=0o755)
        for name, data in contents.items():
            (directory / name).write_bytes(data)
        return load_bundle(directory, cache_dir=cache_dir)
    except BundleError as error:
        raise BundleError(str(error).replace(f"bundle {directory}:", f"bundle {source}:")) from error


def _contents(source: Path) -> dict[str, bytes]:
    """A bundle's files, each opened once: the manifest, and what it names by checksum.

    Raises:
        BundleError: one cannot be read, is damaged, or all of them are too large.
    """
    with SourceFolder(source) as folder:
        contents = {MANIFEST: folder.read(MANIFEST)}
        try:
            checksums = Manifest.from_json(load_json(contents[MANIFEST])).checksums
        except (BundleError, DocumentError, KernelsError) as error:
            raise BundleError(f"bundle {source}: {error}") from error
        left = _MOST_BYTES
        for name, digest in checksums.items():
            contents[name] = checked(name, folder.read(name), digest)
            left -= len(contents[name])
            if left < 0:
                raise BundleError(f"bundle {source}: larger than {_MOST_BYTES >> 20} MiB")
    return contents


def _host_json(host: HostModel) -> dict[str, Any]:
    calls = {name: list(value) for name, value in sorted(host.calls.items())}
    return {"default": list(host.default), "per_tensor": list(host.per_tensor), "calls": calls}


def _npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=1) + "\n").encode()
