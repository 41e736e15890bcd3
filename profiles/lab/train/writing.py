# SPDX-License-Identifier: Apache-2.0
"""Writing a trained bundle, and copies of one with more in it."""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Mapping
from pathlib import Path

from ....kernels.cost.host import HostModel
from ....kernels.stored import replacing
from ....kernels.trees.compact import MAGIC
from ...bundle.bundle import Bundle, model_targets
from ...bundle.files import HOST, BoardArrays, model_files
from ...bundle.manifest import Manifest
from ...bundle.writing import bundle_files, host_file, write_around, write_manifest

# Most of a model are numbers of two bytes.
_FILTERS = ({"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "pb": 1, "lp": 1},)


def write_bundle(
    directory: Path, manifest: Manifest, models: Mapping[str, tuple[bytes, ...]], host: HostModel, arrays: BoardArrays
) -> Manifest:
    """Write a bundle into an empty or new folder; return the manifest with the checksums of its files.

    Args:
        models: per kind, the models, compact or as treelite's serialised bytes: of time, and of power where it was measured.
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
    """Write (again) a bundle's host times, and its manifest with their checksum."""
    data = host_file(host)
    with replacing(directory / HOST, 0o644) as file:
        file.write(data)
    return write_manifest(directory, manifest, {**manifest.checksums, HOST: hashlib.sha256(data).hexdigest()})


def copy_bundle(bundle: Bundle, directory: Path) -> None:
    """Copy a bundle's files, its manifest among them, into a folder, made if it is not there; its own is left as it is."""
    if directory == bundle.path:
        return
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in bundle_files(bundle.path).items():
        (directory / name).write_bytes(data)
