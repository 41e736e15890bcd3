# SPDX-License-Identifier: Apache-2.0
"""Writing and installing bundles."""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from ...kernels.cost.host import HostModel
from ...kernels.errors import KernelsError
from ...kernels.stored_files import replacing, sync
from ..documents import DocumentError, load_json
from ..errors import BundleError
from .bundle import Bundle, load_bundle
from .files import ARRAYS, HOST, BoardArrays
from .finding import install_folder
from .manifest import Manifest
from .reading import MANIFEST, checked, opened_folder

_MOST_BYTES = 512 << 20


def write_around(
    directory: Path, manifest: Manifest, host: HostModel, arrays: BoardArrays, models: Collection[str]
) -> Manifest:
    """Write a bundle's files around its tree models; return the manifest with checksums."""
    figures = {name: array.astype(np.float32) for name, array in arrays._asdict().items() if array is not None}
    for name, data in {ARRAYS: _npz(**figures), HOST: host_file(host)}.items():
        (directory / name).write_bytes(data)
    names = sorted((ARRAYS, HOST, *models))
    return write_manifest(
        directory, manifest, {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in names}
    )


def host_file(host: HostModel) -> bytes:
    return _json({"default": host.default, "per_tensor": host.per_tensor, "calls": dict(sorted(host.calls.items()))})


def write_manifest(directory: Path, manifest: Manifest, checksums: Mapping[str, str]) -> Manifest:
    complete = replace(manifest, checksums=dict(checksums))
    with replacing(directory / MANIFEST, 0o644) as file:
        file.write(_json(complete.to_json()))
    return complete


def install_bundle(source: Path, destination: Path | None = None, *, cache_dir: Path | None = None) -> Path:
    """Check a bundle, convert its models once, and install it, by default in the user's folder, or the system's for root.

    It replaces one of the same name. Raises BundleError.
    """
    contents = bundle_files(source)
    destination = install_folder() if destination is None else destination
    target = destination
    try:
        new = [folder for folder in (destination, *destination.parents) if not folder.exists()]
        destination.mkdir(parents=True, exist_ok=True)
        for folder in new:
            sync(folder.parent)
        with tempfile.TemporaryDirectory(dir=destination, prefix=".install-") as scratch:
            fresh, old = Path(scratch) / "new", Path(scratch) / "old"
            target = destination / _checked_copy(source, contents, fresh, cache_dir).manifest.name
            for path in (*fresh.iterdir(), fresh):
                sync(path)
            if target.exists():
                target.rename(old)
            fresh.rename(target)
            sync(destination)
    except OSError as error:
        raise BundleError(f"bundle {source}: cannot be installed in {target}: {error.strerror or error}") from error
    return target


def check_bundle(source: Path) -> Manifest:
    """Check a bundle as :func:`install_bundle` does. Raises BundleError."""
    with tempfile.TemporaryDirectory(prefix="jetdvfs-check-") as scratch:
        return _checked_copy(source, bundle_files(source), Path(scratch) / "new", None).manifest


def _checked_copy(source: Path, contents: Mapping[str, bytes], directory: Path, cache_dir: Path | None) -> Bundle:
    """Copy a bundle into a new private folder, and check the copy: ``source`` may change meanwhile."""
    try:
        directory.mkdir(mode=0o755)
        for name, data in contents.items():
            (directory / name).write_bytes(data)
        return load_bundle(directory, cache_dir=cache_dir)
    except BundleError as error:
        raise BundleError(str(error).replace(f"bundle {directory}:", f"bundle {source}:")) from error


def bundle_files(source: Path) -> dict[str, bytes]:
    """Manifest and listed files, each opened once. Raises BundleError."""
    with opened_folder(source) as read:
        contents = {MANIFEST: read(MANIFEST)}
        try:
            checksums = Manifest.from_json(load_json(contents[MANIFEST])).checksums
        except (BundleError, DocumentError, KernelsError) as error:
            raise BundleError(f"bundle {source}: {error}") from error
        left = _MOST_BYTES
        for name, digest in checksums.items():
            contents[name] = checked(name, read(name), digest)
            left -= len(contents[name])
            if left < 0:
                raise BundleError(f"bundle {source}: larger than {_MOST_BYTES >> 20} MiB")
    return contents


def _npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=1) + "\n").encode()
