# SPDX-License-Identifier: Apache-2.0
"""Answers of children on networks and surfaces; the parent checks them, as a child may be compromised.

A network stays packed as a child made it (:mod:`.packing`); only the sweeping child reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field

from ...kernels.boundary import Boundary
from ...kernels.errors import CostModelError
from ...kernels.execution import Phase
from ...kernels.grid import FrequencyGrid
from ...kernels.surface import FIGURES, TERMS, Surface, SurfaceInfo
from ...profiles.documents import Count, DocumentError, Positive, Sha256, convert, load_json
from .framing import MESSAGE_CHARACTERS

if TYPE_CHECKING:
    import numpy as np
else:
    from ...kernels.lazy import numpy as np

NAME_CHARACTERS = 256
NETWORK_BYTES = 8 << 20
COMPRESSED_BYTES = 1 << 20

# Far beyond any network and board, without overflow of products and quantiles.
_MOST, _LEAST, _MOST_SIGMA = 1e30, 1e-30, 10.0
FIGURE = "<f8"
_ARRAYS = (*FIGURES, *TERMS)

_Restriction: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9 ()]{1,64}\Z")]


class NetworkInfo(Struct, frozen=True):
    """Description of a network, as ``Network`` of the interface."""

    name: Annotated[str, Meta(max_length=NAME_CHARACTERS)]
    digest: Annotated[str, Meta(pattern=r"^[0-9a-f]{24}\Z")]
    launches: Positive
    host_calls: Count
    kinds: Mapping[Annotated[str, Meta(max_length=1024)], Positive]
    flops: Count
    boundary: Boundary | None = None
    phase: Phase | None = None


class PreparedAnswer(Struct, frozen=True):
    """Checksums of models with damaged or missing node tables."""

    unusable: tuple[Sha256, ...] = ()


class Answer(Struct, frozen=True):
    error: Literal["", "input", "crash"] = ""
    message: Annotated[str, Meta(max_length=MESSAGE_CHARACTERS)] = ""
    type: Annotated[str, Meta(max_length=100)] = ""
    confinement: Annotated[tuple[_Restriction, ...], Meta(max_length=16)] = ()
    about: Mapping[str, Any] = field(default_factory=dict)


def read_header(data: bytes) -> Answer:
    return convert(load_json(data), Answer, exact=True)


def surface_bytes(grid: FrequencyGrid) -> int:
    return len(_ARRAYS) * prod(grid.shape) * np.dtype(FIGURE).itemsize


def unpacked_surface(about: Mapping[str, Any], payload: bytes, grid: FrequencyGrid, method: str) -> Surface:
    info = convert(about, SurfaceInfo, exact=True)
    if info.method != method:
        raise DocumentError(f"expected {method}, got {info.method!r}", ("method",))
    if info.terms and info.terms.unpredicted:
        raise DocumentError("expected a prediction", ("terms", "unpredicted"))
    if len(payload) != surface_bytes(grid):
        raise CostModelError(f"surface: {len(payload)} bytes of figures; expected {surface_bytes(grid)}")
    figures: dict[str, Any] = dict(zip(_ARRAYS, np.frombuffer(payload, FIGURE).reshape(len(_ARRAYS), *grid.shape), strict=True))
    for name, array in figures.items():
        most = 1.0 if name == "guessed_share" else _MOST_SIGMA if name.endswith("_sigma") else _MOST
        if not ((array == 0) | (array >= _LEAST)).all() or not (array <= most).all():
            raise CostModelError(f"surface: {name} holds values that are no figures; expected 0, or {_LEAST} to {most}")
    return Surface.of(grid, info, figures)
