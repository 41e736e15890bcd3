# SPDX-License-Identifier: Apache-2.0
"""Operators that gather, join, pad and move elements."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ShapeError
from ..recorder import Recorder
from ..values import Tensor
from .layout import channels_last, dim_of, show
from .pointwise import promoted
from .registry import operator


@operator("cat", "concat", "concatenate")
def cat(run: Recorder, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    parts = [x for x in tensors if x.shape != (0,)]
    if not parts:
        raise ShapeError("cat of no tensors")
    first = parts[0]
    place = dim_of(first.rank, dim)
    total = 0
    for x in parts:
        if x.rank != first.rank or x.shape[:place] + x.shape[place + 1 :] != first.shape[:place] + first.shape[place + 1 :]:
            raise ShapeError(f"cat along dimension {place} of shapes {', '.join(show(part.shape) for part in parts[:8])}")
        total += x.shape[place]
    shape = (*first.shape[:place], total, *first.shape[place + 1 :])
    same_format = all(x.is_channels_last() for x in parts)
    strides = channels_last(shape) if same_format else None
    return run.launch("cat", parts, run.tensor(shape, promoted(parts), strides), {"dim": place})


@operator("stack")
def stack(run: Recorder, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    first = tensors[0]
    place = dim_of(first.rank + 1, dim)
    if any(x.shape != first.shape for x in tensors):
        raise ShapeError(f"stack of shapes {', '.join(show(x.shape) for x in tensors[:8])}")
    shape = (*first.shape[:place], len(tensors), *first.shape[place:])
    return run.launch("stack", list(tensors), run.tensor(shape, promoted(tensors)), {"dim": place})
