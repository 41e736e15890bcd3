# SPDX-License-Identifier: Apache-2.0
"""Plain values: numbers, strings, lists and dictionaries, which cost the device nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ShapeError
from ..recorder import Recorder
from ..values import Tensor
from .layout import dim_of
from .registry import operator


@operator("len", "builtin::len")
def length(run: Recorder, self: Any) -> int:
    if isinstance(self, Tensor):
        return self.shape[0]
    return len(self)


@operator("size")
def size(run: Recorder, self: Tensor, dim: int | None = None) -> Any:
    return list(self.shape) if dim is None else self.shape[dim_of(self.rank, dim)]


@operator("dim", "ndimension", "prim::ndim")
def dim(run: Recorder, self: Tensor) -> int:
    return self.rank


@operator("numel", "prim::numel")
def numel(run: Recorder, self: Tensor) -> int:
    return self.numel


@operator("stride")
def stride(run: Recorder, self: Tensor, dim: int | None = None) -> Any:
    return list(self.strides) if dim is None else self.strides[dim_of(self.rank, dim)]


@operator("is_floating_point")
def is_floating_point(run: Recorder, self: Tensor) -> bool:
    return self.is_floating


@operator("is_contiguous")
def is_contiguous(run: Recorder, self: Tensor, memory_format: int = 0) -> bool:
    return self.is_channels_last() if memory_format == 2 else self.is_contiguous()


@operator("builtin::range")
def range_(run: Recorder, *bounds: int) -> range:
    return range(*bounds)


@operator("append")
def append(run: Recorder, self: list[Any], item: Any) -> list[Any]:
    run.meter.items(len(self) + 1)
    self.append(item)
    return self


@operator("extend")
def extend(run: Recorder, self: list[Any], other: Sequence[Any]) -> None:
    run.meter.items(len(self) + len(other))
    self.extend(other)


@operator("__getitem__")
def getitem(run: Recorder, self: Any, index: Any) -> Any:
    if isinstance(self, (list, tuple, str)) and not -len(self) <= index < len(self):
        raise ShapeError(f"item {index} of {len(self)}; an input has another number of dimensions?")
    return self[index]


@operator("copy")
def copy(run: Recorder, self: Any) -> Any:
    return self.copy()


@operator("_set_item")
def set_item(run: Recorder, self: Any, key: Any, value: Any) -> None:
    run.meter.items(len(self) + 1)
    self[key] = value


@operator("__contains__")
def contains(run: Recorder, self: Any, item: Any) -> bool:
    if not isinstance(item, (str, int, float)):
        raise TypeError("only strings and numbers are looked up")
    return any(entry == item for entry in self if isinstance(entry, (str, int, float)))


@operator("builtin::in")
def is_in(run: Recorder, item: Any, self: Any) -> bool:
    return contains(run, self, item)


@operator("builtin::dict")
def dictionary(run: Recorder, items: Sequence[tuple[Any, Any]] = ()) -> dict[Any, Any]:
    return {key: value for key, value in items if _hashable(key)}


def _hashable(key: Any) -> bool:
    if not isinstance(key, (str, int, float, Tensor)):
        raise TypeError("a dictionary's keys are strings, numbers or tensors")
    return True


@operator("__not__", "not")
def negation(run: Recorder, value: Any) -> bool:
    return not value


@operator("__is__")
def identical(run: Recorder, self: Any, other: Any) -> bool:
    return self is other


@operator("__isnot__")
def distinct(run: Recorder, self: Any, other: Any) -> bool:
    return self is not other


def _shown(value: Any) -> str:
    return str(value)[:80] if isinstance(value, (str, int, float, type(None))) else f"<{type(value).__name__}>"


@operator("format")
def format_(run: Recorder, self: str, *values: Any) -> str:
    pieces = self[:1000].split("{}")
    shown = [_shown(value) for value in values[:16]] + [""] * len(pieces)
    return "".join(piece + value for piece, value in zip(pieces, shown, strict=False))[:1000]


@operator("keys")
def keys(run: Recorder, self: dict[Any, Any]) -> list[Any]:
    return list(self.keys())


@operator("values")
def values(run: Recorder, self: dict[Any, Any]) -> list[Any]:
    return list(self.values())


@operator("items")
def items(run: Recorder, self: dict[Any, Any]) -> list[Any]:
    return list(self.items())


def plain_items(self: Any) -> list[Any]:
    """The items of a list, if they are numbers or strings: comparing others may take forever.

    Raises:
        TypeError: they are not.
    """
    if not isinstance(self, (list, tuple)) or not all(isinstance(item, (int, float, str)) for item in self):
        raise TypeError("only lists of numbers or strings are compared")
    return list(self)
