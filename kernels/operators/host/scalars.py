# SPDX-License-Identifier: Apache-2.0
"""Plain values: numbers, strings, lists and dictionaries, which cost the device nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import ShapeError
from ...network import DTYPE_BYTES
from ..layout import dim_of
from ..recorder import Recorder
from ..registry import operator
from ..values import NamedInputs, Tensor


@operator("len", "builtin::len")
def length(run: Recorder, self: Any) -> int:
    if isinstance(self, Tensor):
        return self.shape[0]
    return len(self)


@operator("size", "sym_size")
def size(run: Recorder, self: Tensor, dim: int | None = None) -> Any:
    return list(self.shape) if dim is None else self.shape[dim_of(self.rank, dim)]


@operator("dim", "ndimension", "prim::ndim")
def dim(run: Recorder, self: Tensor) -> int:
    return self.rank


@operator("numel", "prim::numel", "sym_numel")
def numel(run: Recorder, self: Tensor) -> int:
    return self.numel


@operator("stride", "sym_stride")
def stride(run: Recorder, self: Tensor, dim: int | None = None) -> Any:
    return list(self.strides) if dim is None else self.strides[dim_of(self.rank, dim)]


@operator("is_floating_point")
def is_floating_point(run: Recorder, self: Tensor) -> bool:
    return self.is_floating


@operator("is_complex")
def is_complex(run: Recorder, self: Tensor) -> bool:
    return self.dtype.startswith("complex")


@operator("is_same_size")
def is_same_size(run: Recorder, self: Tensor, other: Tensor) -> bool:
    return self.shape == other.shape


@operator("element_size", "prim::itemsize")
def element_size(run: Recorder, self: Tensor) -> int:
    return DTYPE_BYTES[self.dtype]


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
    found = any(entry == item for entry in self if isinstance(entry, (str, int, float)))
    return found or (isinstance(self, NamedInputs) and self.claim(item))


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


@operator("list")
def list_(run: Recorder, self: Any) -> list[Any]:
    run.meter.items(len(self))
    return list(self)


@operator("dict")
def dict_(run: Recorder, items: Any = ()) -> dict[Any, Any]:
    return dictionary(run, list(items.items()) if isinstance(items, dict) else items)


@operator("update")
def update(run: Recorder, self: dict[Any, Any], other: dict[Any, Any]) -> None:
    run.meter.items(len(self) + len(other))
    self.update(other)


@operator("get")
def get(run: Recorder, self: dict[Any, Any], key: Any, default: Any = None) -> Any:
    return self.get(key, default)


@operator("setdefault")
def setdefault(run: Recorder, self: dict[Any, Any], key: Any, default: Any = None) -> Any:
    run.meter.items(len(self) + 1)
    return self.setdefault(key, default) if _hashable(key) else None


@operator("builtin::sorted", "sorted")
def sorted_(run: Recorder, self: Sequence[Any], *_: Any) -> list[Any]:
    return sorted(plain_items(self))


@operator("count")
def count(run: Recorder, self: Any, item: Any, *bounds: int) -> int:
    if isinstance(self, str):
        return self.count(str(item), *bounds)
    return plain_items(self).count(item)


@operator("remove")
def remove(run: Recorder, self: list[Any], item: Any) -> None:
    del self[plain_items(self).index(item)]


@operator("splitlines")
def splitlines(run: Recorder, self: str) -> list[str]:
    return self.splitlines()


@operator("hex")
def hexadecimal(run: Recorder, value: int) -> str:
    return hex(value)


@operator("percentFormat")
def percent_format(run: Recorder, self: str, *values: Any) -> str:
    """Close to what it would say; nothing but a message depends on it."""
    return (self[:1000] + "".join(_shown(value) for value in values[:16]))[:1000]


@operator("builtin::print", "Print")
def print_(run: Recorder, *_: Any) -> None:
    return None


@operator("insert")
def insert(run: Recorder, self: list[Any], place: int, item: Any) -> None:
    run.meter.items(len(self) + 1)
    self.insert(place, item)


@operator("pop", "popitem")
def pop(run: Recorder, self: Any, *arguments: Any) -> Any:
    return self.pop(*arguments)


@operator("clear")
def clear(run: Recorder, self: Any) -> None:
    self.clear()


@operator("reverse")
def reverse(run: Recorder, self: list[Any]) -> None:
    self.reverse()


@operator("__delitem__", "Delete")
def delete_item(run: Recorder, self: Any, key: Any) -> None:
    del self[key]


@operator("__range_length")
def range_length(run: Recorder, low: int, high: int, step: int) -> int:
    return len(range(low, high, step))


@operator("__derive_index")
def derive_index(run: Recorder, index: int, start: int, step: int) -> int:
    return start + index * step


def _of_text(name: str) -> None:
    @operator(name)
    def rule(run: Recorder, self: str, *arguments: Any) -> Any:
        if not isinstance(self, str):
            raise TypeError(f"{name} takes a string")
        return getattr(self, name)(*arguments)


for _name in ("lower", "upper", "strip", "startswith", "endswith", "isdigit", "find"):
    _of_text(_name)


@operator("str", "builtin::str")
def to_text(run: Recorder, value: Any) -> str:
    return _shown(value)


@operator("join")
def join(run: Recorder, self: str, items: Sequence[str]) -> str:
    run.meter.items(sum(len(item) + len(self) for item in items))
    return self.join(items)
