# SPDX-License-Identifier: Apache-2.0
"""Operators that scatter, stack, split and reorder elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import ShapeError
from ..layout import broadcast, dim_of, reshape, view_of
from ..recorder import Recorder
from ..registry import operator
from ..values import Tensor
from . import indexing, views


def _scattered(kind: str, *names: str) -> None:
    @operator(*names)
    def rule(recorder: Recorder, self: Tensor, *arguments: Any, **options: Any) -> Tensor:
        inputs = [self, *_tensors([*arguments, *options.values()])]
        return recorder.launch(kind, inputs, recorder.tensor(self.shape, self.dtype))


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        found += [x for x in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(x, Tensor)]
    return found


for _name in ("scatter", "scatter_add", "index_fill", "index_add", "index_copy", "index_reduce", "masked_scatter", "index_put"):
    _scattered(_name, _name, f"{_name}_")
_scattered("scatter_reduce", "scatter_reduce", "scatter_reduce_")


@operator("take_along_dim")
def take_along_dim(recorder: Recorder, self: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    if dim is None:
        return indexing.gather(
            recorder, reshape(recorder, self, (self.numel,)), 0, reshape(recorder, indices, (indices.numel,))
        )
    return indexing.gather(recorder, self, dim, indices)


@operator("diagonal")
def diagonal(recorder: Recorder, self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    one, two = dim_of(self.rank, dim1), dim_of(self.rank, dim2)
    length = max(min(self.shape[one] + min(offset, 0), self.shape[two] - max(offset, 0)), 0)
    kept = [place for place in range(self.rank) if place not in (one, two)]
    strides = (*(self.strides[place] for place in kept), self.strides[one] + self.strides[two])
    return view_of(recorder, self, (*(self.shape[place] for place in kept), length), strides, "diagonal")


@operator("diag")
def diag(recorder: Recorder, self: Tensor, diagonal: int = 0) -> Tensor:
    size = self.shape[0] + abs(diagonal) if self.rank == 1 else 0
    if self.rank == 1:
        return recorder.launch("diag_embed", [self], recorder.tensor((size, size), self.dtype))
    length = max(min(self.shape[0] + min(diagonal, 0), self.shape[1] - max(diagonal, 0)), 0)
    return recorder.launch("diagonal_copy", [self], recorder.tensor((length,), self.dtype))


@operator("diag_embed")
def diag_embed(recorder: Recorder, self: Tensor, offset: int = 0, *_: int) -> Tensor:
    size = self.shape[-1] + abs(offset)
    return recorder.launch("diag_embed", [self], recorder.tensor((*self.shape[:-1], size, size), self.dtype))


@operator("block_diag")
def block_diag(recorder: Recorder, tensors: Sequence[Tensor]) -> Tensor:
    sides = [((1, 1, *x.shape))[-2:] for x in tensors]
    shape = (sum(rows for rows, _ in sides), sum(columns for _, columns in sides))
    return recorder.launch("block_diag", list(tensors), recorder.tensor(shape, tensors[0].dtype))


def _at_least(recorder: Recorder, x: Tensor, rank: int) -> Tensor:
    if x.rank >= rank:
        return x
    shape = {1: (1,) * (1 - x.rank) + x.shape, 2: (1, *(x.shape or (1,)))}.get(rank)
    if shape is None:
        shape = (1, 1, 1) if x.rank == 0 else (1, *x.shape, 1) if x.rank == 1 else (*x.shape, 1)
    return view_of(recorder, x, shape, None, "unsqueeze")


for _rank in (1, 2, 3):

    @operator(f"atleast_{_rank}d")
    def at_least(recorder: Recorder, self: Any, rank: int = _rank) -> Any:
        return [_at_least(recorder, x, rank) for x in self] if isinstance(self, list) else _at_least(recorder, self, rank)


@operator("hstack")
def hstack(recorder: Recorder, tensors: Sequence[Tensor]) -> Tensor:
    parts = [_at_least(recorder, x, 1) for x in tensors]
    return indexing.cat(recorder, parts, 0 if parts[0].rank == 1 else 1)


@operator("vstack", "row_stack")
def vstack(recorder: Recorder, tensors: Sequence[Tensor]) -> Tensor:
    return indexing.cat(recorder, [_at_least(recorder, x, 2) for x in tensors], 0)


@operator("dstack")
def dstack(recorder: Recorder, tensors: Sequence[Tensor]) -> Tensor:
    return indexing.cat(recorder, [_at_least(recorder, x, 3) for x in tensors], 2)


@operator("column_stack")
def column_stack(recorder: Recorder, tensors: Sequence[Tensor]) -> Tensor:
    columns = [x if x.rank > 1 else view_of(recorder, x, (x.numel, 1), None, "view") for x in tensors]
    return indexing.cat(recorder, columns, 1)


def _split_along(name: str, place: int) -> None:
    @operator(name)
    def rule(recorder: Recorder, self: Tensor, indices_or_sections: Any) -> list[Tensor]:
        return views.tensor_split(recorder, self, indices_or_sections, 0 if self.rank == 1 else place)


_split_along("hsplit", 1)
_split_along("vsplit", 0)
_split_along("dsplit", 2)


@operator("fliplr", "flipud")
def flip(recorder: Recorder, self: Tensor) -> Tensor:
    return recorder.launch("flip", [self], recorder.tensor(self.shape, self.dtype))


@operator("ravel")
def ravel(recorder: Recorder, self: Tensor) -> Tensor:
    return reshape(recorder, self, (self.numel,))


@operator("as_strided")
def as_strided(
    recorder: Recorder, self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: Any = None
) -> Tensor:
    if len(size) != len(stride):
        raise ShapeError(f"as_strided to {len(size)} sizes by {len(stride)} strides")
    return view_of(recorder, self, tuple(size), tuple(stride), "as_strided")


@operator("broadcast_tensors")
def broadcast_tensors(recorder: Recorder, tensors: Sequence[Tensor]) -> list[Tensor]:
    shape = broadcast([x.shape for x in tensors])
    return [views.expand(recorder, x, shape) for x in tensors]


@operator("view_as_complex")
def view_as_complex(recorder: Recorder, self: Tensor) -> Tensor:
    recorder.host("view_as_complex")
    return recorder.tensor(self.shape[:-1], "complex128" if self.dtype == "float64" else "complex64")


@operator("view_as_real")
def view_as_real(recorder: Recorder, self: Tensor) -> Tensor:
    recorder.host("view_as_real")
    return recorder.tensor((*self.shape, 2), "float64" if self.dtype == "complex128" else "float32")


@operator("embedding_bag")
def embedding_bag(
    recorder: Recorder,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    *_: Any,
) -> tuple[Tensor, ...]:
    """The selected rows count as read, not the table."""
    rows = recorder.tensor((indices.numel, weight.shape[1]), weight.dtype, of=weight)
    output = recorder.tensor((offsets.shape[0] - include_last_offset, weight.shape[1]), weight.dtype)
    inputs = [indices, offsets, *([] if per_sample_weights is None else [per_sample_weights])]
    made = recorder.launch("embedding_bag", inputs, output, {"weight": weight.shape}, (rows,))
    return (made, *(recorder.tensor(offsets.shape, "int64") for _ in range(3)))
