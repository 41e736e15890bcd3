# SPDX-License-Identifier: Apache-2.0
"""Moving, joining and converting arrays of known numbers, by ATen's names."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ...errors import ShapeError
from ...network import numel
from ..elementwise import promoted, type_named
from ..layout import broadcast, dim_of, inferred, show
from ..registry import host_operator
from ..values import SCALAR_TYPES, Number, Tensor, contiguous_strides
from .arrays import FEW, array, is_large, joined, like, numbers, padded, permuted, picked, spread, strided


@host_operator("view", "_unsafe_view", "reshape")
def reshape(self: Tensor, size: Sequence[int]) -> Tensor:
    return like(self, inferred(size, self.numel), numbers(self))


@host_operator("flatten")
def flatten(self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    start, end = dim_of(self.rank, start_dim), dim_of(self.rank, end_dim)
    shape = (*self.shape[:start], numel(self.shape[start : end + 1]), *self.shape[end + 1 :])
    return reshape(self, shape if self.rank else (1,))


@host_operator("contiguous", "clone", "detach", "alias")
def same(self: Tensor, *_: Any, **__: Any) -> Tensor:
    return like(self, self.shape, numbers(self))


@host_operator("unsqueeze")
def unsqueeze(self: Tensor, dim: int) -> Tensor:
    place = dim_of(self.rank + 1, dim)
    return reshape(self, (*self.shape[:place], 1, *self.shape[place:]))


@host_operator("squeeze")
def squeeze(self: Tensor, dim: Any = None) -> Tensor:
    wanted = range(self.rank) if dim is None else [dim] if isinstance(dim, int) else dim
    dims = {dim_of(self.rank, d) for d in wanted}
    return reshape(self, [size for d, size in enumerate(self.shape) if d not in dims or size != 1])


@host_operator("permute")
def permute(self: Tensor, dims: Sequence[int]) -> Tensor:
    return permuted(self, [dim_of(self.rank, dim) for dim in dims])


@host_operator("transpose", "swapaxes", "swapdims")
def transpose(self: Tensor, dim0: int, dim1: int) -> Tensor:
    order = list(range(self.rank))
    if order:
        one, two = dim_of(self.rank, dim0), dim_of(self.rank, dim1)
        order[one], order[two] = two, one
    return permuted(self, order)


@host_operator("t", "numpy_T")
def t(self: Tensor) -> Tensor:
    return permuted(self, range(self.rank)[::-1])


@host_operator("expand", "broadcast_to")
def expand(self: Tensor, size: Sequence[int], implicit: bool = False) -> Tensor | None:
    own = (1,) * (len(size) - self.rank) + self.shape
    if len(own) != len(size):
        raise ShapeError(f"expand of shape {show(self.shape)} to fewer dimensions")
    shape = tuple(have if wanted == -1 else wanted for wanted, have in zip(size, own, strict=True))
    if broadcast([shape, self.shape]) != shape:
        raise ShapeError(f"expand of shape {show(self.shape)} to {list(size)[:16]}")
    return like(self, shape, spread(self, shape)) if not is_large(shape) else None


@host_operator("select")
def select(self: Tensor, dim: int, index: int) -> Tensor:
    return picked(self, dim, [int(index)], ())


@host_operator("slice")
def slice_(self: Tensor, dim: Any = None, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    place = dim_of(self.rank, dim or 0)
    if step < 1:
        raise ShapeError(f"slice with step {step}")
    chosen = range(self.shape[place])[start:end:step]
    return picked(self, place, chosen, (len(chosen),))


@host_operator("flip")
def flip(self: Tensor, dims: Sequence[int]) -> Tensor:
    made = self
    for dim in dims:
        length = self.shape[dim_of(self.rank, dim)]
        made = picked(made, dim, range(length)[::-1], (length,))
    return made


@host_operator("index_select")
def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    return picked(self, dim, map(int, numbers(index)), (index.numel,)) if self.rank else self


@host_operator("gather")
def gather(self: Tensor, dim: int, index: Tensor, *_: Any, **__: Any) -> Tensor:
    axis, strides = dim_of(self.rank, dim), contiguous_strides(self.shape)
    items: list[Number] = []
    for place, at in zip(itertools.product(*map(range, index.shape)), numbers(index), strict=True):
        within = list(place)
        if within:
            within[axis] = _wrapped(int(at), self.shape[axis])
        items.append(numbers(self)[sum(a * b for a, b in zip(within, strides, strict=True))])
    return like(self, index.shape, items)


def _wrapped(index: int, length: int) -> int:
    if not -length <= index < length:
        raise ShapeError(f"index {index} along a dimension of size {length}")
    return index % length


def _places(self: Tensor, indices: Sequence[Tensor | None]) -> tuple[list[int], tuple[int, ...]]:
    given = [*indices, *[None] * (self.rank - len(indices))]
    if len(given) > self.rank or any(x is not None and x.dtype in ("bool", "uint8") for x in given):
        raise ShapeError(f"{len(indices)} indices into an array of shape {show(self.shape)}")
    used = [place for place, x in enumerate(given) if x is not None]
    shape = broadcast([x.shape for x in given if x is not None])
    together = used == list(range(used[0], used[-1] + 1))
    rest = [place for place in range(self.rank) if place not in used]
    lead = sum(place < used[0] for place in rest) if together else 0
    whole = (*(self.shape[d] for d in rest[:lead]), *shape, *(self.shape[d] for d in rest[lead:]))
    if is_large(whole):
        raise ShapeError(f"indexing makes an array of shape {show(whole)}, which is not followed")
    strides = contiguous_strides(self.shape)
    columns = [[_wrapped(int(i), self.shape[d]) for i in spread(x, shape)] for d, x in enumerate(given) if x is not None]
    places = []
    for place in itertools.product(*map(range, whole)):
        before, middle, after = place[:lead], place[lead : lead + len(shape)], place[lead + len(shape) :]
        at = sum(a * b for a, b in zip(middle, contiguous_strides(shape), strict=True))
        offset = sum(column[at] * strides[d] for d, column in zip(used, columns, strict=True))
        places.append(offset + sum(i * strides[d] for i, d in zip((*before, *after), rest, strict=True)))
    return places, whole


@host_operator("index", "_unsafe_index")
def index(self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    places, shape = _places(self, indices)
    return like(self, shape, [numbers(self)[place] for place in places])


@host_operator("index_put")
def index_put(self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    places, shape = _places(self, indices)
    items = list(numbers(self))
    for place, value in zip(places, spread(values, shape), strict=True):
        items[place] = items[place] + value if accumulate else value
    return like(self, self.shape, items)


@host_operator("scatter")
def scatter(self: Tensor, dim: int, index: Tensor, src: Any, *_: Any, **__: Any) -> Tensor | None:
    if _ or __:
        return None
    axis, strides = dim_of(self.rank, dim), contiguous_strides(self.shape)
    items = list(numbers(self))
    own = contiguous_strides(src.shape) if isinstance(src, Tensor) else ()
    for place, at in zip(itertools.product(*map(range, index.shape)), numbers(index), strict=True):
        within = list(place)
        within[axis] = _wrapped(int(at), self.shape[axis])
        value = numbers(src)[sum(a * b for a, b in zip(place, own, strict=True))] if isinstance(src, Tensor) else src
        items[sum(a * b for a, b in zip(within, strides, strict=True))] = value
    return like(self, self.shape, items)


@host_operator("cat", "concat", "concatenate")
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor | None:
    parts = [x for x in tensors if x.shape != (0,)] or list(tensors[:1])
    return joined(parts, dim, promoted(parts)) if sum(x.numel for x in parts) <= FEW else None


@host_operator("stack")
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor | None:
    return cat([unsqueeze(x, dim) for x in tensors], dim)


@host_operator("split_with_sizes", "unsafe_split_with_sizes")
def split_with_sizes(self: Tensor, split_sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    place = dim_of(self.rank, dim)
    if sum(split_sizes) != self.shape[place] or min(split_sizes, default=0) < 0:
        raise ShapeError(f"split into {list(split_sizes)[:8]} of dimension {place} of an array of shape {show(self.shape)}")
    return [slice_(self, place, start, end) for start, end in pairwise([0, *itertools.accumulate(split_sizes)])]


@host_operator("split", "unsafe_split")
def split(self: Tensor, split_size: Any, dim: int = 0) -> list[Tensor]:
    if not isinstance(split_size, int):
        return split_with_sizes(self, split_size, dim)
    if split_size < 1:
        raise ShapeError(f"a split into pieces of {split_size}")
    length = self.shape[dim_of(self.rank, dim)]
    return [slice_(self, dim, start, start + split_size) for start in range(0, length, split_size)]


@host_operator("chunk", "unsafe_chunk")
def chunk(self: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    return split(self, max(-(-self.shape[dim_of(self.rank, dim)] // chunks), 1), dim)


@host_operator("unbind")
def unbind(self: Tensor, dim: int = 0) -> list[Tensor]:
    return [select(self, dim, place) for place in range(self.shape[dim_of(self.rank, dim)])]


@host_operator("repeat")
def repeat(self: Tensor, repeats: Sequence[int]) -> Tensor | None:
    lead = len(repeats) - self.rank
    shape = tuple(size * times for size, times in zip((1,) * lead + self.shape, repeats, strict=True))
    if lead < 0 or is_large(shape):
        return None
    own = (1,) * lead + self.shape
    wrapped = [[place % size for place in range(full)] for size, full in zip(own, shape, strict=True)]
    strides = contiguous_strides(own)
    places = itertools.product(*wrapped)
    return like(self, shape, [numbers(self)[sum(a * b for a, b in zip(at, strides, strict=True))] for at in places])


@host_operator("constant_pad_nd")
def constant_pad(self: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    pairs = [(0, 0)] * (self.rank - len(pad) // 2) + [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)][::-1]
    return padded(self, pairs, 0 if value is None else value)


@host_operator("unfold")
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    place, strides = dim_of(self.rank, dimension), contiguous_strides(self.shape)
    if step < 1 or not 0 <= size <= self.shape[place]:
        raise ShapeError(f"unfold of {show(self.shape)} into windows of {size}")
    shape = (*self.shape[:place], (self.shape[place] - size) // step + 1, *self.shape[place + 1 :], size)
    steps = (*strides[:place], strides[place] * step, *strides[place + 1 :], strides[place])
    return like(self, shape, strided(numbers(self), shape, steps))


host_operator("view_as", "reshape_as")(lambda self, other: reshape(self, other.shape))
host_operator("ravel")(lambda self: reshape(self, (-1,)))
host_operator("expand_as")(lambda self, other: expand(self, other.shape))
host_operator("narrow")(lambda self, dim, start, length: slice_(self, dim, start, start + length))
host_operator("tile")(lambda self, dims: repeat(self, [1] * (self.rank - len(dims)) + list(dims)))


# Element types


def cast(x: Tensor, dtype: str) -> Tensor:
    return array(x.shape, dtype, numbers(x), parameter=x.parameter)


@host_operator("to", "_to_copy")
def to(self: Tensor, *arguments: Any, dtype: int | None = None, **_: Any) -> Tensor:
    """All overloads: the first element type among the arguments counts."""
    for argument in arguments:
        if isinstance(argument, Tensor):
            return cast(self, argument.dtype)
        if type(argument) is int:
            dtype = argument
            break
    return self if dtype is None else cast(self, SCALAR_TYPES[dtype])


host_operator("type_as")(lambda self, other: cast(self, other.dtype))

#: Operators named after the type that they convert to.
CASTS = {"float": "float32", "half": "float16", "double": "float64", "bfloat16": "bfloat16", "long": "int64", "int": "int32"}


def _named_cast(name: str, dtype: str) -> None:
    @host_operator(name)
    def rule(self: Tensor, *_: Any) -> Tensor:
        return cast(self, dtype)


for _name, _dtype in CASTS.items():
    _named_cast(_name, _dtype)


def _filled_like(name: str, filler: Number | None) -> None:
    @host_operator(f"{name}_like")
    def rule(self: Tensor, *arguments: Any, dtype: int | None = None, **_: Any) -> Tensor:
        value = arguments[0] if filler is None else filler
        rest = arguments[1:] if filler is None else arguments
        code = dtype if dtype is not None or not rest else rest[0]
        return array(self.shape, type_named(code, self.dtype), [value] * self.numel, parameter=self.parameter)


_filled_like("zeros", 0)
_filled_like("ones", 1)
_filled_like("full", None)
