# SPDX-License-Identifier: Apache-2.0
"""Validated node tables of compressed models, cached and mapped."""

from __future__ import annotations

import contextlib
import lzma
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ...kernels.errors import EnsembleError
from ...kernels.stored_files import Stamp
from ...kernels.trees.compact import MAGIC
from ...kernels.trees.ensemble import TreeEnsemble
from ..errors import BundleError
from .table_folder import TableFiles

_MAX_MODEL_BYTES = 512 << 20


class TableCache(TableFiles):
    """Node tables converted from models, keyed by the model's checksum; damaged ones are converted again.

    Args:
        known: stamps of checked tables by model checksum; unchanged ones are not checked again.
        keep: stores a converted table; by default in the folder.
    """

    def __init__(
        self, folder: Path, known: Mapping[str, Stamp] | None = None, keep: Callable[[str, TreeEnsemble], None] | None = None
    ) -> None:
        super().__init__(folder)
        self._known = known or {}
        self._keep = keep or self._save

    def ensemble(self, name: str, digest: str, compressed: Callable[[], bytes], n_features: int) -> TreeEnsemble:
        """Model ``name`` of a bundle. Raises BundleError if refused.

        Args:
            digest: SHA-256 of the compressed model, the key of its table.
            compressed: reads the xz-compressed model, if there is no table.
        """
        try:
            # Detects a damaged or outdated table by its checksum and version.
            ensemble = TreeEnsemble.load(self.file(digest), self._known.get(digest))
        except (OSError, EnsembleError):
            ensemble = _converted(name, compressed())
            self._keep(digest, ensemble)
        if ensemble.n_features != n_features:
            raise BundleError(f"{name}: its trees take {ensemble.n_features} features where the manifest names {n_features}")
        return ensemble

    def _save(self, digest: str, ensemble: TreeEnsemble) -> None:
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
                fresh = Path(scratch) / "table"
                ensemble.save(fresh)
                fresh.replace(self.file(digest))


class MappedModel(Struct, frozen=True):
    """Model mapped when swept; ``load`` decides if it stays mapped."""

    load: Callable[[], TreeEnsemble]

    def sweep(
        self, features: NDArray[np.float32], levels: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """As :meth:`TreeEnsemble.sweep`. Raises BundleError."""
        return self.load().sweep(features, levels)


def _converted(name: str, compressed: bytes) -> TreeEnsemble:
    try:
        model = _decompress(compressed)
        return TreeEnsemble.from_compact(model) if model.startswith(MAGIC) else _from_treelite(model)
    except (EnsembleError, BundleError, OSError, ValueError) as error:
        raise BundleError(f"{name}: {error}") from error


def _from_treelite(serialised: bytes) -> TreeEnsemble:
    try:
        # By name: if the import fails in one of several threads, `import treelite` gives the rest an empty module.
        from treelite import Model, TreeliteError
    except (ImportError, OSError, MemoryError) as error:  # the last from ctypes, in a confined process without Landlock
        reason = str(error) or type(error).__name__
        raise BundleError(f"it has no node table, and treelite, which makes one, cannot be loaded ({reason})") from error
    try:
        with warnings.catch_warnings():
            # A newer treelite's model is read like any other; the parts that the table needs are checked.
            warnings.filterwarnings("ignore", message=".*newer Treelite version")
            return TreeEnsemble.from_treelite(Model.deserialize_bytes(serialised))
    except TreeliteError as error:
        raise BundleError(str(error)) from error


def _decompress(data: bytes) -> bytes:
    try:
        decompressor = lzma.LZMADecompressor()
        plain = decompressor.decompress(data, max_length=_MAX_MODEL_BYTES)
    except lzma.LZMAError as error:
        raise BundleError(f"not xz-compressed ({error})") from error
    if not decompressor.eof:
        raise BundleError(f"truncated, or larger than {_MAX_MODEL_BYTES >> 20} MiB")
    return plain
