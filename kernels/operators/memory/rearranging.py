# SPDX-License-Identifier: Apache-2.0
"""Linear algebra outside plain products, scattering, stacking, splitting and random numbers, as ATen dispatches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ShapeError, UnsupportedOperator
from ...network import numel
from ..elements import pointwise
from ..elements.reduction import reduce, type_named
from ..layers.matrix import matmul, multiply
from ..layout import broadcast, dim_of, reshape, show, view_of
from ..recorder import Recorder
from ..registry import operator
from ..values import Tensor
from . import indexing, views

# Linear algebra


@operator("outer", "ger")
def outer(run: Recorder, self: Tensor, vec2: Tensor) -> Any:
    if self.rank != 1 or vec2.rank != 1:
        raise ShapeError(f"outer product of shapes {show(self.shape)} and {show(vec2.shape)}")
    return pointwise.mul(run, view_of(run, self, (*self.shape, 1), None, "view"), vec2)


@operator("inner")
def inner(run: Recorder, self: Tensor, other: Tensor) -> Tensor:
    return matmul(run, self, views.transpose(run, other, -1, -2) if other.rank > 1 else other)


@operator("linalg_norm")
def linalg_norm(run: Recorder, self: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *_: Any) -> Tensor:
    if ord is not None and (self.rank > 1 if dim is None else not isinstance(dim, int) and len(dim) > 1):
        raise UnsupportedOperator("operator aten::linalg_norm of matrices has no shape rule")
    return reduce(run, "norm", self, dim, keepdim)


def _as_is(kind: str, shape: Callable[..., Sequence[int]], *names: str) -> None:
    """An operator that is one launch over all the tensors it is given."""

    @operator(*(names or (kind,)))
    def rule(run: Recorder, *arguments: Any, **_: Any) -> Tensor:
        tensors = [x for x in arguments if isinstance(x, Tensor)]
        return run.launch(kind, tensors, run.tensor(tuple(shape(*arguments)), tensors[0].dtype))


_as_is("addmv", lambda x, matrix, vector, *_: matrix.shape[:1])
_as_is("addr", lambda x, one, other, *_: (*one.shape, *other.shape))
_as_is("addbmm", lambda x, one, other, *_: (one.shape[1], other.shape[2]))
_as_is("linalg_cross", lambda x, y, *_: broadcast([x.shape, y.shape]), "linalg_cross", "cross")
_as_is("_cdist_forward", lambda x, y, *_: (*broadcast([x.shape[:-2], y.shape[:-2]]), x.shape[-2], y.shape[-2]), "cdist")
_as_is("dist", lambda x, y, *_: ())
_as_is("trace", lambda x: ())
_as_is("take", lambda x, indices: indices.shape)
_as_is("rot90", lambda x, k=1, dims=(0, 1): _turned(x, k, dims))
_as_is("renorm", lambda x, *_: x.shape)
_as_is("affine_grid_generator", lambda theta, size, *_: (size[0], *size[2:], len(size) - 2))


def _turned(x: Tensor, times: int, dims: Sequence[int]) -> list[int]:
    shape = list(x.shape)
    first, second = (dim_of(x.rank, dim) for dim in dims)
    if times % 2:
        shape[first], shape[second] = shape[second], shape[first]
    return shape


@operator("bilinear")
def bilinear(run: Recorder, input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    flat = [reshape(run, x, (numel(x.shape[:-1]), x.shape[-1])) for x in (input1, input2)]
    made = run.launch("_trilinear", [flat[0], weight, flat[1]], run.tensor((flat[0].shape[0], weight.shape[0]), input1.dtype))
    made = view_of(run, made, (*input1.shape[:-1], weight.shape[0]), None, "view")
    return made if bias is None else pointwise.add(run, made, bias)


@operator("linalg_multi_dot", "chain_matmul")
def multi_dot(run: Recorder, tensors: Sequence[Tensor]) -> Tensor:
    """Two or three matrices; in which order more are multiplied depends on their sizes."""
    if not 2 <= len(tensors) <= 3:
        raise UnsupportedOperator("a product of more than three matrices has no shape rule")
    made = multiply(run, tensors[0], tensors[1])
    return made if len(tensors) == 2 else multiply(run, made, tensors[2])


# Moving elements


def _scattered(kind: str, *names: str) -> None:
    @operator(*names)
    def rule(run: Recorder, self: Tensor, *arguments: Any, **options: Any) -> Tensor:
        inputs = [self, *_tensors([*arguments, *options.values()])]
        return run.launch(kind, inputs, run.tensor(self.shape, self.dtype))


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        found += [x for x in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(x, Tensor)]
    return found


for _name in ("scatter", "scatter_add", "index_fill", "index_add", "index_copy", "masked_scatter", "index_put"):
    _scattered(_name, _name, f"{_name}_")
_scattered("scatter_reduce", "scatter_reduce", "scatter_reduce_")


@operator("take_along_dim")
def take_along_dim(run: Recorder, self: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    if dim is None:
        return indexing.gather(run, reshape(run, self, (self.numel,)), 0, reshape(run, indices, (indices.numel,)))
    return indexing.gather(run, self, dim, indices)


@operator("diagonal")
def diagonal(run: Recorder, self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    one, two = dim_of(self.rank, dim1), dim_of(self.rank, dim2)
    length = max(min(self.shape[one] + min(offset, 0), self.shape[two] - max(offset, 0)), 0)
    kept = [place for place in range(self.rank) if place not in (one, two)]
    strides = (*(self.strides[place] for place in kept), self.strides[one] + self.strides[two])
    return view_of(run, self, (*(self.shape[place] for place in kept), length), strides, "diagonal")


@operator("diag")
def diag(run: Recorder, self: Tensor, diagonal: int = 0) -> Tensor:
    size = self.shape[0] + abs(diagonal) if self.rank == 1 else 0
    if self.rank == 1:
        return run.launch("diag_embed", [self], run.tensor((size, size), self.dtype))
    length = max(min(self.shape[0] + min(diagonal, 0), self.shape[1] - max(diagonal, 0)), 0)
    return run.launch("diagonal_copy", [self], run.tensor((length,), self.dtype))


@operator("diag_embed")
def diag_embed(run: Recorder, self: Tensor, offset: int = 0, *_: int) -> Tensor:
    size = self.shape[-1] + abs(offset)
    return run.launch("diag_embed", [self], run.tensor((*self.shape[:-1], size, size), self.dtype))


@operator("block_diag")
def block_diag(run: Recorder, tensors: Sequence[Tensor]) -> Tensor:
    sides = [((1, 1, *x.shape))[-2:] for x in tensors]
    shape = (sum(rows for rows, _ in sides), sum(columns for _, columns in sides))
    return run.launch("block_diag", list(tensors), run.tensor(shape, tensors[0].dtype))


def _at_least(run: Recorder, x: Tensor, rank: int) -> Tensor:
    if x.rank >= rank:
        return x
    shape = {1: (1,) * (1 - x.rank) + x.shape, 2: (1, *(x.shape or (1,)))}.get(rank)
    if shape is None:
        shape = (1, 1, 1) if x.rank == 0 else (1, *x.shape, 1) if x.rank == 1 else (*x.shape, 1)
    return view_of(run, x, shape, None, "unsqueeze")


for _rank in (1, 2, 3):

    @operator(f"atleast_{_rank}d")
    def at_least(run: Recorder, self: Any, rank: int = _rank) -> Any:
        return [_at_least(run, x, rank) for x in self] if isinstance(self, list) else _at_least(run, self, rank)


@operator("hstack")
def hstack(run: Recorder, tensors: Sequence[Tensor]) -> Tensor:
    parts = [_at_least(run, x, 1) for x in tensors]
    return indexing.cat(run, parts, 0 if parts[0].rank == 1 else 1)


@operator("vstack", "row_stack")
def vstack(run: Recorder, tensors: Sequence[Tensor]) -> Tensor:
    return indexing.cat(run, [_at_least(run, x, 2) for x in tensors], 0)


@operator("dstack")
def dstack(run: Recorder, tensors: Sequence[Tensor]) -> Tensor:
    return indexing.cat(run, [_at_least(run, x, 3) for x in tensors], 2)


@operator("column_stack")
def column_stack(run: Recorder, tensors: Sequence[Tensor]) -> Tensor:
    columns = [x if x.rank > 1 else view_of(run, x, (x.numel, 1), None, "view") for x in tensors]
    return indexing.cat(run, columns, 1)


def _split_along(name: str, place: int) -> None:
    @operator(name)
    def rule(run: Recorder, self: Tensor, indices_or_sections: Any) -> list[Tensor]:
        return views.tensor_split(run, self, indices_or_sections, 0 if self.rank == 1 else place)


_split_along("hsplit", 1)
_split_along("vsplit", 0)
_split_along("dsplit", 2)


@operator("fliplr", "flipud")
def flip(run: Recorder, self: Tensor) -> Tensor:
    return run.launch("flip", [self], run.tensor(self.shape, self.dtype))


@operator("ravel")
def ravel(run: Recorder, self: Tensor) -> Tensor:
    return reshape(run, self, (self.numel,))


@operator("as_strided")
def as_strided(run: Recorder, self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: Any = None) -> Tensor:
    if len(size) != len(stride):
        raise ShapeError(f"as_strided to {len(size)} sizes by {len(stride)} strides")
    return view_of(run, self, tuple(size), tuple(stride), "as_strided")


@operator("broadcast_tensors")
def broadcast_tensors(run: Recorder, tensors: Sequence[Tensor]) -> list[Tensor]:
    shape = broadcast([x.shape for x in tensors])
    return [views.expand(run, x, shape) for x in tensors]


@operator("view_as_complex")
def view_as_complex(run: Recorder, self: Tensor) -> Tensor:
    run.host("view_as_complex")
    return run.tensor(self.shape[:-1], "complex128" if self.dtype == "float64" else "complex64")


@operator("view_as_real")
def view_as_real(run: Recorder, self: Tensor) -> Tensor:
    run.host("view_as_real")
    return run.tensor((*self.shape, 2), "float64" if self.dtype == "complex128" else "float32")


@operator("embedding_bag")
def embedding_bag(
    run: Recorder,
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
    """The rows that are looked up count as read, not the table."""
    rows = run.tensor((indices.numel, weight.shape[1]), weight.dtype)
    output = run.tensor((offsets.shape[0] - include_last_offset, weight.shape[1]), weight.dtype)
    inputs = [indices, offsets, *([] if per_sample_weights is None else [per_sample_weights])]
    made = run.launch("embedding_bag", inputs, output, {"weight": weight.shape}, (rows,))
    return (made, *(run.tensor(offsets.shape, "int64") for _ in range(3)))


# Making tensors


def _random_like(name: str) -> None:
    @operator(name)
    def rule(run: Recorder, self: Tensor, *_: Any, dtype: int | None = None, **__: Any) -> Tensor:
        return run.launch(name, [self], run.tensor(self.shape, type_named(dtype, self.dtype)))


_random_like("rand_like")
_random_like("randn_like")


def _drawn(name: str) -> None:
    @operator(f"{name}_")
    def rule(run: Recorder, self: Tensor, *_: Any, **__: Any) -> Tensor:
        return run.launch(name, [self], self)


for _name in ("normal", "uniform", "exponential", "bernoulli"):
    _drawn(_name)


@operator("randint")
def randint(run: Recorder, *arguments: Any, dtype: int | None = None, **_: Any) -> Tensor:
    size = next(item for item in arguments if isinstance(item, (list, tuple)))
    return run.launch("randint", [], run.tensor(tuple(size), type_named(dtype, "int64")))


def _corner(name: str, inside: Callable[[int, int], bool]) -> None:
    @operator(name)
    def rule(run: Recorder, row: int, col: int, offset: int = 0, *_: Any, **__: Any) -> Tensor:
        run.meter.items(row * col)
        count = sum(inside(column - line, offset) for line, column in itertools.product(range(row), range(col)))
        return run.launch(name, [], run.tensor((2, count), "int64"))


_corner("tril_indices", lambda distance, offset: distance <= offset)
_corner("triu_indices", lambda distance, offset: distance >= offset)
