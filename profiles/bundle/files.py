# SPDX-License-Identifier: Apache-2.0
"""Files of a bundle: names, and content of the small ones."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ...kernels.cost.host import Coefficients, HostModel
from ...kernels.grid import FrequencyGrid
from ...kernels.npz import check_npz
from ...kernels.text import printable
from ..documents import DocumentError, NotNegative, convert, load_json
from ..errors import BundleError

ARRAYS = "board.npz"
HOST = "host.json"
TREELITE_SUFFIX = ".treelite.xz"
_MAX_HOST_BYTES = 2 << 20
_MAX_CALLS = 10_000

_Coefficients: TypeAlias = Annotated[
    tuple[NotNegative, ...], msgspec.Meta(min_length=3, max_length=4, description="four numbers that are not negative")
]


class _HostFile(Struct, frozen=True):
    """Coefficients a, b, c, d by call name, per gathered tensor, and by default; older files lack d."""

    default: _Coefficients
    per_tensor: _Coefficients
    calls: Mapping[str, _Coefficients]


def stored_model(checksums: Collection[str], kind: str, what: str) -> str:
    compact, treelite = model_files(kind, what)
    return treelite if treelite in checksums and compact not in checksums else compact


def model_files(kind: str, what: str) -> tuple[str, str]:
    """Possible files of a kind's ``time`` or ``power`` model: compact, and treelite's."""
    return f"{kind}.{what}.trees.xz", f"{kind}.{what}{TREELITE_SUFFIX}"


class BoardArrays(NamedTuple):
    """Power of a bundle's board in mW: idle over the grid, and the host's active power by CPU level.

    ``leakage_mw`` is the temperature-dependent part of idle power; None if unknown.
    """

    idle_mw: NDArray[np.float32]
    host_active_mw: NDArray[np.float32]
    leakage_mw: NDArray[np.float32] | None


def board_arrays(data: bytes, grid: FrequencyGrid) -> BoardArrays:
    """Power arrays. Raises BundleError if missing or invalid."""
    most_bytes = (2 * grid.size + grid.shape[0]) * np.dtype(np.float32).itemsize
    try:
        check_npz(io.BytesIO(data), most_bytes)
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
    """Host model in the file of issue times. Raises BundleError."""
    if len(data) > _MAX_HOST_BYTES:
        raise BundleError(f"{HOST} is larger than {_MAX_HOST_BYTES >> 20} MiB")
    try:
        file = convert(load_json(data), _HostFile)
    except DocumentError as error:
        raise BundleError(f"{HOST}: {error}") from error
    if len(file.calls) > _MAX_CALLS:
        raise BundleError(f"{HOST}: {len(file.calls)} calls; expected at most {_MAX_CALLS}")
    calls = {printable(name): _four(written) for name, written in file.calls.items()}
    return HostModel(calls, _four(file.default), _four(file.per_tensor))


def _four(written: tuple[float, ...]) -> Coefficients:
    a, b, c, d = (*written, 0.0)[:4]
    return a, b, c, d
