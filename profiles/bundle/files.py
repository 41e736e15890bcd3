# SPDX-License-Identifier: Apache-2.0
"""The files of a bundle: their names, what the small ones hold, and reading them with a bound and a checksum."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...kernels.cost.host import Coefficients, HostModel
from ...kernels.grid import FrequencyGrid
from ...kernels.trees.compact import MAGIC
from ..documents import DocumentError, NotNegative, convert, load_json
from ..errors import BundleError

MANIFEST = "manifest.json"
ARRAYS = "board.npz"
HOST = "host.json"
PREDICTOR = "predictor.npz"
_MAX_FILE_BYTES = 64 << 20

_Coefficients: TypeAlias = Annotated[
    tuple[NotNegative, ...], msgspec.Meta(min_length=3, max_length=4, description="four numbers that are not negative")
]


@dataclass(frozen=True)
class _HostFile:
    """Coefficients a, b, c, d by call name, of each tensor gathered, and of every other call; older ones have no d."""

    default: _Coefficients
    per_tensor: _Coefficients
    calls: Mapping[str, _Coefficients]


def model_file(kind: str, what: str, model: bytes) -> str:
    """The file of a kernel kind's ``time`` or ``power`` model: by its content a compact one, or treelite's."""
    return _model_files(kind, what)[0 if model.startswith(MAGIC) else 1]


def stored_model(checksums: Collection[str], kind: str, what: str) -> str:
    """The file of a kernel kind's ``time`` or ``power`` model among those of a bundle; of none, the one that it should have."""
    compact, treelite = _model_files(kind, what)
    return treelite if treelite in checksums and compact not in checksums else compact


def _model_files(kind: str, what: str) -> tuple[str, str]:
    return f"{kind}.{what}.trees.xz", f"{kind}.{what}.treelite.xz"


def read_file(path: Path) -> bytes:
    """A bundle's file.

    Raises:
        BundleError: it is missing, not a regular file, too large, or cannot be read.
    """
    try:
        if path.is_symlink() or not path.is_file():
            raise BundleError(f"{path.name} is missing or not a regular file")
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise BundleError(f"{path.name} is larger than {_MAX_FILE_BYTES >> 20} MiB")
        return path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path.name}: {error.strerror or error}") from error


def read_checked(path: Path, digest: str) -> bytes:
    """A bundle's file whose SHA-256 is known.

    Raises:
        BundleError: as :func:`read_file`, or it is damaged.
    """
    data = read_file(path)
    if hashlib.sha256(data).hexdigest() != digest:
        raise BundleError(f"{path.name} is damaged: its checksum is not the manifest's")
    return data


class BoardArrays(NamedTuple):
    """What a bundle knows of its board's power, mW.

    Attributes:
        idle_mw: over the grid.
        host_active_mw: by CPU level.
        leakage_mw: the part of the idle power that grows with temperature, over the grid; None in bundles that do not know.
    """

    idle_mw: NDArray[np.float32]
    host_active_mw: NDArray[np.float32]
    leakage_mw: NDArray[np.float32] | None


def board_arrays(data: bytes, grid: FrequencyGrid) -> BoardArrays:
    """The board's arrays.

    Raises:
        BundleError: they are not there, or not of the grid's shape, finite and not negative.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            found = BoardArrays(arrays["idle_mw"], arrays["host_active_mw"], arrays.get("leakage_mw"))
    except (KeyError, ValueError, OSError, EOFError) as error:
        raise BundleError(f"{ARRAYS}: expected arrays idle_mw and host_active_mw ({error})") from error
    for name, array in found._asdict().items():
        shape = grid.shape[:1] if name == "host_active_mw" else grid.shape
        if array is None:
            continue
        if array.shape != shape or array.dtype != np.float32 or not np.isfinite(array).all() or (array < 0).any():
            raise BundleError(f"{ARRAYS}: {name} must be float32 of shape {shape}, finite and not negative")
    return found


def host_model(data: bytes) -> HostModel:
    """What the file of the host's issue times holds.

    Raises:
        BundleError: it is malformed.
    """
    try:
        file = convert(load_json(data), _HostFile)
    except DocumentError as error:
        raise BundleError(f"{HOST}: {error}") from error
    calls = {name: _four(written) for name, written in file.calls.items()}
    return HostModel(calls, _four(file.default), _four(file.per_tensor))


def _four(written: tuple[float, ...]) -> Coefficients:
    a, b, c, d = (*written, 0.0)[:4]
    return a, b, c, d
