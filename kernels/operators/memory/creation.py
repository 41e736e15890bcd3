# SPDX-License-Identifier: Apache-2.0
"""Operators that make tensors or change their element type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...errors import ShapeError
from ..elements.pointwise import host_map, host_tensor, is_host, promoted
from ..elements.reduction import type_named
from ..host.prim import number_of, wrapped
from ..layout import preserved
from ..recorder import Recorder
from ..registry import operator
from ..values import SCALAR_CODES, SCALAR_TYPES, Device, Tensor


def _filled(name: str, *, launches: bool = True) -> None:
    """Register ``zeros``, ``zeros_like`` and ``new_zeros``, and the like."""

    def make(run: Recorder, shape: Sequence[int], dtype: str) -> Tensor:
        output = run.tensor(tuple(int(number_of(size)) for size in shape), dtype)
        if launches:
            return run.launch(name, [], output)
        run.host(name)
        return output

    value_first = name == "full"

    @operator(name)
    def plain(run: Recorder, size: Sequence[int], *arguments: Any, dtype: int | None = None, **_: Any) -> Tensor:
        positional = arguments[1:] if value_first else arguments
        code = dtype if dtype is not None or not positional or isinstance(positional[0], Device) else positional[0]
        default = "float32"
        if value_first and arguments:
            default = promoted((arguments[0],)) if not isinstance(arguments[0], float) else "float32"
        return make(run, size, type_named(code, default))

    @operator(f"{name}_like")
    def like(run: Recorder, self: Tensor, *arguments: Any, dtype: int | None = None, **_: Any) -> Tensor:
        positional = arguments[1:] if value_first else arguments
        code = dtype if dtype is not None or not positional else positional[0]
        return make(run, self.shape, type_named(code, self.dtype))

    @operator(f"new_{name}")
    def new(run: Recorder, self: Tensor, size: Sequence[int], *arguments: Any, dtype: int | None = None, **_: Any) -> Tensor:
        positional = arguments[1:] if value_first else arguments
        code = dtype if dtype is not None or not positional else positional[0]
        return make(run, size, type_named(code, self.dtype))


_filled("zeros")
_filled("ones")
_filled("full")
_filled("empty", launches=False)


def _random(name: str) -> None:
    @operator(name)
    def rule(run: Recorder, size: Sequence[int], *_: Any, dtype: int | None = None, **__: Any) -> Tensor:
        return run.launch(name, [], run.tensor(size, type_named(dtype, "float32")))


_random("rand")
_random("randn")


@operator("arange")
def arange(run: Recorder, *arguments: Any, dtype: int | None = None, **_: Any) -> Tensor:
    """``arange(end)``, ``arange(start, end)`` or ``arange(start, end, step)``, then type, layout, device and pinning."""
    count = {5: 1, 6: 2, 7: 3}.get(len(arguments), len(arguments))
    if len(arguments) > 3:
        dtype = arguments[count] if dtype is None else dtype
    bounds = [number_of(bound) for bound in arguments[:count]]
    start, end, step = (0, bounds[0], 1) if count == 1 else (bounds[0], bounds[1], bounds[2] if count == 3 else 1)
    length = math.ceil((end - start) / step)
    default = "float32" if any(isinstance(bound, float) for bound in bounds) else "int64"
    return run.launch("arange", [], run.tensor((length,), type_named(dtype, default)))


@operator("linspace")
def linspace(run: Recorder, start: Any, end: Any, steps: int, dtype: int | None = None, *_: Any, **__: Any) -> Tensor:
    return run.launch("linspace", [], run.tensor((int(steps),), type_named(dtype, "float32")))


@operator("logspace")
def logspace(
    run: Recorder, start: Any, end: Any, steps: int, base: Any = 10.0, dtype: int | None = None, *_: Any, **__: Any
) -> Tensor:
    return run.launch("logspace", [], run.tensor((int(steps),), type_named(dtype, "float32")))


@operator("eye")
def eye(run: Recorder, n: int, m: Any = None, *_: Any, dtype: int | None = None, **__: Any) -> Tensor:
    return run.launch("eye", [], run.tensor((n, n if m is None else m), type_named(dtype, "float32")))


@operator("tensor", "as_tensor")
def tensor(run: Recorder, data: Any, dtype: int | None = None, *_: Any, **__: Any) -> Tensor:
    """A tensor from numbers that the host holds."""
    if isinstance(data, Tensor):
        return data
    run.host("tensor")
    if not isinstance(data, (list, tuple)):
        made = wrapped(data)
        made.dtype = type_named(dtype, made.dtype)
        return made
    shape: list[int] = []
    level: Any = data
    while isinstance(level, (list, tuple)):
        shape.append(len(level))
        if len(shape) > run.meter.budget.rank or not level:
            break
        level = level[0]
    if len(shape) == 1 and 0 < len(data) <= 64 and all(type(item) in (int, float, bool) for item in data):
        return host_tensor(tuple(data), type_named(dtype, promoted((data[0],))))
    default = "float32" if isinstance(level, (list, tuple)) else promoted((level,))
    return run.tensor(shape, type_named(dtype, default))


def cast(run: Recorder, x: Tensor, dtype: str, copy: bool = False) -> Tensor:
    """A tensor in another element type; itself where it has it already."""
    if is_host(x):
        convert = float if dtype.startswith(("float", "bfloat")) else bool if dtype == "bool" else int
        made = host_map(run, "to", convert, (x,))
        made.dtype = dtype
        return made
    if x.dtype == dtype and not copy:
        return x
    return run.launch("to", [x], run.tensor(x.shape, dtype, preserved(x)))


@operator("to", "_to_copy")
def to(run: Recorder, self: Tensor, *arguments: Any, dtype: int | None = None, **_: Any) -> Tensor:
    """All overloads: the first element type among the arguments counts; devices do not, there is one."""
    for argument in arguments:
        if isinstance(argument, Tensor):
            return cast(run, self, argument.dtype)
        if type(argument) is int:
            dtype = argument
            break
    return self if dtype is None else cast(run, self, SCALAR_TYPES[dtype])


@operator("type_as")
def type_as(run: Recorder, self: Tensor, other: Tensor) -> Tensor:
    return cast(run, self, other.dtype)


def _named_cast(name: str, dtype: str) -> None:
    @operator(name)
    def rule(run: Recorder, self: Tensor, *_: Any) -> Tensor:
        return cast(run, self, dtype)


_CASTS = {"float": "float32", "half": "float16", "double": "float64", "bfloat16": "bfloat16", "long": "int64", "int": "int32"}
for _name, _dtype in _CASTS.items():
    _named_cast(_name, _dtype)


@operator("cuda", "cpu", "pin_memory")
def move(run: Recorder, self: Tensor, *_: Any) -> Tensor:
    return self


@operator("copy_")
def copy(run: Recorder, self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    run.launch("fill" if src.rank == 0 else "copy", [src] if src.rank else [], self)
    return self


@operator("fill_", "zero_")
def fill(run: Recorder, self: Tensor, value: Any = 0) -> Tensor:
    run.launch("fill", [], self)
    return self


@operator("result_type")
def result_type(run: Recorder, tensor: Any, other: Any) -> int:
    return SCALAR_CODES[promoted((tensor, other))]


@operator("one_hot")
def one_hot(run: Recorder, self: Tensor, num_classes: int = -1) -> Tensor:
    if num_classes < 1:
        raise ShapeError("one_hot without a number of classes depends on the largest index")
    output = run.launch("zeros", [], run.tensor((*self.shape, num_classes), "int64"))
    run.host("unsqueeze")
    places = run.tensor((*self.shape, 1), self.dtype, written_by=self.written_by)
    return run.launch("scatter", [output, places], output)
