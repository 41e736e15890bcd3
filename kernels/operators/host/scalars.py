# SPDX-License-Identifier: Apache-2.0
"""Numbers, strings, lists and dictionaries, without launches."""

from __future__ import annotations

import operator as python
from collections.abc import Sequence
from typing import Any

from ...errors import ShapeError
from ...network import DTYPE_BYTES
from ..layout import dim_of
from ..recorder import Recorder
from ..registry import answered, operator
from ..values import NamedInputs, Tensor

answered(lambda self: self.rank, "dim", "ndimension", "prim::ndim", of="Tensor")
answered(lambda self: self.numel, "numel", "prim::numel", "sym_numel", of="Tensor")
answered(lambda self: self.is_floating, "is_floating_point", of="Tensor")
answered(lambda self: self.dtype.startswith("complex"), "is_complex", of="Tensor")
answered(lambda self, other: self.shape == other.shape, "is_same_size", of="Tensor")
answered(lambda self: DTYPE_BYTES[self.dtype], "element_size", "prim::itemsize", of="Tensor")
answered(range, "builtin::range")
answered(lambda low, high, step: len(range(low, high, step)), "__range_length", of="int")
answered(python.not_, "__not__", "not")
answered(python.is_, "__is__")
answered(python.is_not, "__isnot__")
answered(hex, "hex", of="int")
answered(lambda *_: None, "builtin::print", "Print")
answered(lambda self: self.copy(), "copy")
answered(lambda self, *arguments: self.pop(*arguments), "pop", "popitem")
answered(lambda self: self.clear(), "clear")
answered(list.reverse, "reverse", of="list[Any]")
answered(lambda self: list(dict.keys(self)), "keys", of="dict[Any, Any]")
answered(lambda self: list(dict.values(self)), "values", of="dict[Any, Any]")
answered(lambda self: list(dict.items(self)), "items", of="dict[Any, Any]")
answered(dict.get, "get", of="dict[Any, Any]")


@operator("len", "builtin::len")
def length(recorder: Recorder, self: Any) -> int:
    if isinstance(self, Tensor):
        return self.shape[0]
    return len(self)


@operator("size", "sym_size")
def size(recorder: Recorder, self: Tensor, dim: int | None = None) -> Any:
    return list(self.shape) if dim is None else self.shape[dim_of(self.rank, dim)]


@operator("stride", "sym_stride")
def stride(recorder: Recorder, self: Tensor, dim: int | None = None) -> Any:
    return list(self.strides) if dim is None else self.strides[dim_of(self.rank, dim)]


@operator("is_contiguous")
def is_contiguous(recorder: Recorder, self: Tensor, memory_format: int = 0) -> bool:
    return self.is_channels_last() if memory_format == 2 else self.is_contiguous()


@operator("append")
def append(recorder: Recorder, self: list[Any], item: Any) -> list[Any]:
    recorder.account.items(len(self) + 1)
    self.append(item)
    return self


@operator("extend")
def extend(recorder: Recorder, self: list[Any], other: Sequence[Any]) -> None:
    recorder.account.items(len(self) + len(other))
    self.extend(other)


@operator("__getitem__")
def getitem(recorder: Recorder, self: Any, index: Any) -> Any:
    if isinstance(self, (list, tuple, str)) and not -len(self) <= index < len(self):
        raise ShapeError(f"item {index} of {len(self)}; an input has another number of dimensions?")
    return self[index]


@operator("_set_item")
def set_item(recorder: Recorder, self: Any, key: Any, value: Any) -> None:
    recorder.account.items(len(self) + 1)
    self[key] = value


@operator("__contains__")
def contains(recorder: Recorder, self: Any, item: Any) -> bool:
    if not isinstance(item, (str, int, float)):
        raise TypeError("only strings and numbers are looked up")
    found = any(entry == item for entry in self if isinstance(entry, (str, int, float)))
    return found or (isinstance(self, NamedInputs) and self.claim(item))


@operator("builtin::in")
def is_in(recorder: Recorder, item: Any, self: Any) -> bool:
    return contains(recorder, self, item)


@operator("builtin::dict")
def dictionary(recorder: Recorder, items: Sequence[tuple[Any, Any]] = ()) -> dict[Any, Any]:
    return {key: value for key, value in items if _hashable(key)}


def _hashable(key: Any) -> bool:
    if not isinstance(key, (str, int, float, Tensor)):
        raise TypeError("a dictionary's keys are strings, numbers or tensors")
    return True


def _shown(value: Any) -> str:
    return str(value)[:80] if isinstance(value, (str, int, float, type(None))) else f"<{type(value).__name__}>"


@operator("format")
def format_(recorder: Recorder, self: str, *values: Any) -> str:
    pieces = self[:1000].split("{}")
    shown = [_shown(value) for value in values[:16]] + [""] * len(pieces)
    return "".join(piece + value for piece, value in zip(pieces, shown, strict=False))[:1000]


def plain_items(self: Any) -> list[Any]:
    """Items of a list of numbers or strings, else TypeError: other comparisons may take forever."""
    if not isinstance(self, (list, tuple)) or not all(isinstance(item, (int, float, str)) for item in self):
        raise TypeError("only lists of numbers or strings are compared")
    return list(self)


@operator("list")
def list_(recorder: Recorder, self: Any) -> list[Any]:
    recorder.account.items(len(self))
    return list(self)


@operator("dict")
def dict_(recorder: Recorder, items: Any = ()) -> dict[Any, Any]:
    return dictionary(recorder, list(items.items()) if isinstance(items, dict) else items)


@operator("update")
def update(recorder: Recorder, self: dict[Any, Any], other: dict[Any, Any]) -> None:
    recorder.account.items(len(self) + len(other))
    self.update(other)


@operator("setdefault")
def setdefault(recorder: Recorder, self: dict[Any, Any], key: Any, default: Any = None) -> Any:
    recorder.account.items(len(self) + 1)
    return self.setdefault(key, default) if _hashable(key) else None


answered(lambda self, *_: sorted(plain_items(self)), "builtin::sorted", "sorted", of="Sequence[Any]")
answered(_shown, "str", "builtin::str")


@operator("count")
def count(recorder: Recorder, self: Any, item: Any, *bounds: int) -> int:
    if isinstance(self, str):
        return self.count(str(item), *bounds)
    return plain_items(self).count(item)


@operator("remove")
def remove(recorder: Recorder, self: list[Any], item: Any) -> None:
    del self[plain_items(self).index(item)]


@operator("percentFormat")
def percent_format(recorder: Recorder, self: str, *values: Any) -> str:
    """Approximate result; only messages depend on it."""
    return (self[:1000] + "".join(_shown(value) for value in values[:16]))[:1000]


@operator("insert")
def insert(recorder: Recorder, self: list[Any], place: int, item: Any) -> None:
    recorder.account.items(len(self) + 1)
    self.insert(place, item)


@operator("__delitem__", "Delete")
def delete_item(recorder: Recorder, self: Any, key: Any) -> None:
    del self[key]


@operator("__derive_index")
def derive_index(recorder: Recorder, index: int, start: int, step: int) -> int:
    return start + index * step


def _of_text(name: str) -> None:
    @operator(name)
    def rule(recorder: Recorder, self: str, *arguments: Any) -> Any:
        if not isinstance(self, str):
            raise TypeError(f"{name} takes a string")
        return getattr(self, name)(*arguments)


for _name in ("lower", "upper", "strip", "startswith", "endswith", "isdigit", "find", "splitlines"):
    _of_text(_name)


@operator("join")
def join(recorder: Recorder, self: str, items: Sequence[str]) -> str:
    recorder.account.items(sum(len(item) + len(self) for item in items))
    return self.join(items)
