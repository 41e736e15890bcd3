# SPDX-License-Identifier: Apache-2.0
"""Operators that view memory, or copy it if necessary."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ...errors import ShapeError
from ...network import numel
from ..host.prim import number_of
from ..layout import channels_last, contiguous, dim_of, inferred, preserved, reshape, show, view_of, view_strides
from ..recorder import Recorder
from ..registry import answered, operator
from ..values import Tensor


@operator("view", "_unsafe_view")
def view(recorder: Recorder, self: Tensor, size: Sequence[int]) -> Tensor:
    shape = inferred(size, self.numel)
    strides = view_strides(self.shape, self.strides, shape)
    if strides is None:
        raise ShapeError(f"a view of shape {show(shape)} needs a contiguous tensor, not one of shape {show(self.shape)}")
    return view_of(recorder, self, shape, strides, "view")


@operator("reshape")
def reshape_(recorder: Recorder, self: Tensor, shape: Sequence[int]) -> Tensor:
    return reshape(recorder, self, shape)


@operator("view_as", "reshape_as")
def view_as(recorder: Recorder, self: Tensor, other: Tensor) -> Tensor:
    return reshape(recorder, self, other.shape)


@operator("flatten")
def flatten(recorder: Recorder, self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    if self.rank == 0:
        return reshape(recorder, self, (1,))
    start, end = dim_of(self.rank, start_dim), dim_of(self.rank, end_dim)
    if start == end:
        return self
    if start > end:
        raise ShapeError(f"flatten from dimension {start} to {end}")
    return reshape(recorder, self, (*self.shape[:start], numel(self.shape[start : end + 1]), *self.shape[end + 1 :]))


@operator("unflatten")
def unflatten(recorder: Recorder, self: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    place = dim_of(self.rank, dim)
    return view(recorder, self, (*self.shape[:place], *inferred(sizes, self.shape[place]), *self.shape[place + 1 :]))


@operator("contiguous")
def contiguous_(recorder: Recorder, self: Tensor, memory_format: int = 0) -> Tensor:
    if memory_format == 2:
        if self.is_channels_last():
            return self
        return recorder.launch("clone", [self], recorder.tensor(self.shape, self.dtype, channels_last(self.shape)))
    return contiguous(recorder, self)


@operator("clone")
def clone(recorder: Recorder, self: Tensor, memory_format: int | None = None) -> Tensor:
    strides = None if memory_format == 0 else preserved(self)
    return recorder.launch("clone", [self], recorder.tensor(self.shape, self.dtype, strides))


@operator("transpose", "transpose_", "swapaxes", "swapdims")
def transpose(recorder: Recorder, self: Tensor, dim0: int, dim1: int) -> Tensor:
    if self.rank == 0:
        return self
    one, two = dim_of(self.rank, dim0), dim_of(self.rank, dim1)
    shape, strides = list(self.shape), list(self.strides)
    shape[one], shape[two] = shape[two], shape[one]
    strides[one], strides[two] = strides[two], strides[one]
    return view_of(recorder, self, shape, strides, "transpose")


@operator("mT", "mH", "adjoint")
def matrix_transpose(recorder: Recorder, self: Tensor) -> Tensor:
    return transpose(recorder, self, -2, -1)


@operator("t", "numpy_T")
def t(recorder: Recorder, self: Tensor) -> Tensor:
    return view_of(recorder, self, self.shape[::-1], self.strides[::-1], "t")


@operator("permute")
def permute(recorder: Recorder, self: Tensor, dims: Sequence[int]) -> Tensor:
    order = [dim_of(self.rank, dim) for dim in dims]
    if sorted(order) != list(range(self.rank)):
        raise ShapeError(f"permute of a tensor with {self.rank} dimensions by {list(dims)}")
    return view_of(recorder, self, [self.shape[d] for d in order], [self.strides[d] for d in order], "permute")


@operator("movedim", "moveaxis")
def movedim(recorder: Recorder, self: Tensor, source: Any, destination: Any) -> Tensor:
    sources = [dim_of(self.rank, d) for d in ([source] if isinstance(source, int) else source)]
    targets = [dim_of(self.rank, d) for d in ([destination] if isinstance(destination, int) else destination)]
    rest = iter([d for d in range(self.rank) if d not in sources])
    placed = dict(zip(targets, sources, strict=True))
    return permute(recorder, self, [placed[d] if d in placed else next(rest) for d in range(self.rank)])


@operator("unsqueeze", "unsqueeze_")
def unsqueeze(recorder: Recorder, self: Tensor, dim: int) -> Tensor:
    place = dim_of(self.rank + 1, dim)
    step = self.shape[place] * self.strides[place] if place < self.rank else 1
    shape = (*self.shape[:place], 1, *self.shape[place:])
    return view_of(recorder, self, shape, (*self.strides[:place], step, *self.strides[place:]), "unsqueeze")


@operator("squeeze", "squeeze_")
def squeeze(recorder: Recorder, self: Tensor, dim: Any = None) -> Tensor:
    wanted = range(self.rank) if dim is None else [dim] if isinstance(dim, int) else dim
    dims = {dim_of(self.rank, d) for d in wanted}
    kept = [d for d in range(self.rank) if d not in dims or self.shape[d] != 1]
    return view_of(recorder, self, [self.shape[d] for d in kept], [self.strides[d] for d in kept], "squeeze")


@operator("expand")
def expand(recorder: Recorder, self: Tensor, size: Sequence[int], implicit: bool = False) -> Tensor:
    lead = len(size) - self.rank
    if lead < 0:
        raise ShapeError(f"expand of shape {show(self.shape)} to fewer dimensions")
    shape, strides = [], []
    for place, wanted in enumerate(size):
        own = self.shape[place - lead] if place >= lead else 1
        step = self.strides[place - lead] if place >= lead else 0
        if wanted not in (-1, own) and own != 1:
            raise ShapeError(f"expand of shape {show(self.shape)} to {list(size)}")
        shape.append(own if wanted == -1 else wanted)
        strides.append(step if shape[-1] == own else 0)
    return view_of(recorder, self, shape, strides, "expand")


@operator("expand_as")
def expand_as(recorder: Recorder, self: Tensor, other: Tensor) -> Tensor:
    return expand(recorder, self, other.shape)


operator("broadcast_to")(expand)


@operator("select")
def select(recorder: Recorder, self: Any, dim: int, index: int | None = None) -> Any:
    if isinstance(self, (list, tuple)):
        return self[dim]
    if index is None:
        raise ShapeError("select needs an index")
    place = dim_of(self.rank, dim)
    if not -self.shape[place] <= int(index) < self.shape[place]:
        raise ShapeError(f"index {index} of dimension {place} of a tensor of shape {show(self.shape)}")
    shape = self.shape[:place] + self.shape[place + 1 :]
    return view_of(recorder, self, shape, self.strides[:place] + self.strides[place + 1 :], "select")


@operator("slice")
def slice_(recorder: Recorder, self: Any, first: Any = None, second: Any = None, third: Any = None, step: int = 1) -> Any:
    """Of a tensor: (dim, start, end, step); of a list or string: (start, end, step)."""
    if isinstance(self, (list, tuple, str)):
        return self[first : second : 1 if third is None else third]
    start, end = (None if bound is None else int(number_of(bound)) for bound in (second, third))
    place = dim_of(self.rank, first or 0)
    if step < 1:
        raise ShapeError(f"slice with step {step}")
    length = len(range(*slice(start, end, step).indices(self.shape[place])))
    shape = (*self.shape[:place], length, *self.shape[place + 1 :])
    strides = (*self.strides[:place], self.strides[place] * step, *self.strides[place + 1 :])
    return view_of(recorder, self, shape, strides, "slice")


@operator("narrow")
def narrow(recorder: Recorder, self: Tensor, dim: int, start: int, length: int) -> Tensor:
    return narrowed(recorder, self, dim_of(self.rank, dim), int(start), length)


def narrowed(recorder: Recorder, x: Tensor, place: int, start: int, length: int) -> Tensor:
    if start < 0:
        start += x.shape[place]
    if start < 0 or length < 0 or start + length > x.shape[place]:
        raise ShapeError(f"narrow to {start}..{start + length} of dimension {place} of a tensor of shape {show(x.shape)}")
    return view_of(recorder, x, (*x.shape[:place], length, *x.shape[place + 1 :]), x.strides, "slice")


def _pieces(recorder: Recorder, x: Tensor, place: int, sizes: Sequence[int], name: str) -> list[Tensor]:
    if sum(sizes) != x.shape[place] or min(sizes, default=0) < 0:
        raise ShapeError(f"{name} into {list(sizes)[:8]} of dimension {place} of a tensor of shape {show(x.shape)}")
    recorder.host(name)
    recorder.account.items(len(sizes))
    pieces = []
    for size in sizes:
        shape = (*x.shape[:place], size, *x.shape[place + 1 :])
        pieces.append(recorder.tensor(shape, x.dtype, x.strides, parameter=x.parameter, requires_grad=x.requires_grad, of=x))
    return pieces


@operator("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes")
def split(recorder: Recorder, self: Any, split_size: Any = None, dim: int = 0) -> Any:
    """Of a tensor, into pieces; of a string, at a separator."""
    if isinstance(self, str):
        return self.split(split_size)
    place = dim_of(self.rank, dim)
    if isinstance(split_size, int):
        return _pieces(recorder, self, place, _even(recorder, self.shape[place], split_size), "split")
    return _pieces(recorder, self, place, split_size, "split_with_sizes")


def _even(recorder: Recorder, length: int, size: int) -> list[int]:
    if size < 1:
        raise ShapeError(f"a split into pieces of {size}")
    recorder.account.items(length // size + 1)
    sizes = [size] * (length // size) + ([length % size] if length % size else [])
    return sizes or [0]


@operator("chunk", "unsafe_chunk")
def chunk(recorder: Recorder, self: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    if chunks < 1:
        raise ShapeError(f"chunk into {chunks} pieces")
    length = self.shape[dim_of(self.rank, dim)]
    return _pieces(recorder, self, dim_of(self.rank, dim), _even(recorder, length, max(-(-length // chunks), 1)), "split")


@operator("tensor_split")
def tensor_split(recorder: Recorder, self: Tensor, indices_or_sections: Any, dim: int = 0) -> list[Tensor]:
    place = dim_of(self.rank, dim)
    length = self.shape[place]
    if isinstance(indices_or_sections, int):
        count = recorder.account.items(indices_or_sections)
        sizes = [length // count + (1 if piece < length % count else 0) for piece in range(count)]
        edges = [sum(sizes[:piece]) for piece in range(count + 1)]
    else:
        edges = [0, *(min(max(int(edge), 0), length) for edge in indices_or_sections), length]
    return [narrowed(recorder, self, place, start, max(end - start, 0)) for start, end in pairwise(edges)]


@operator("unbind")
def unbind(recorder: Recorder, self: Tensor, dim: int = 0) -> list[Tensor]:
    place = dim_of(self.rank, dim)
    count = recorder.account.items(self.shape[place])
    recorder.host("unbind")
    shape, strides = self.shape[:place] + self.shape[place + 1 :], self.strides[:place] + self.strides[place + 1 :]
    trainable = self.requires_grad
    return [
        recorder.tensor(shape, self.dtype, strides, parameter=self.parameter, requires_grad=trainable, of=self)
        for _ in range(count)
    ]


answered(lambda self, *_: self, "detach", "alias", "requires_grad_", "detach_", "data", "prim::data", of="Tensor")


@operator("unfold")
def unfold(recorder: Recorder, self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    place = dim_of(self.rank, dimension)
    if step < 1 or not 0 <= size <= self.shape[place]:
        raise ShapeError(f"unfold of {show(self.shape)} into windows of {size}")
    shape = (*self.shape[:place], (self.shape[place] - size) // step + 1, *self.shape[place + 1 :], size)
    strides = (*self.strides[:place], self.strides[place] * step, *self.strides[place + 1 :], self.strides[place])
    return view_of(recorder, self, shape, strides, "unfold")
