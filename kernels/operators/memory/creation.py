# SPDX-License-Identifier: Apache-2.0
"""Operators that make tensors, also random ones, or change their element type."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ShapeError
from ...network import Shape
from ..elementwise import is_host, promoted, type_named
from ..host import moving
from ..host.arrays import array
from ..host.prim import number_of, wrapped
from ..layout import channels_last, preserved, view_of
from ..recorder import Recorder
from ..registry import answered, operator
from ..values import SCALAR_CODES, SCALAR_TYPES, Tensor, TensorDevice


def _filled(name: str, *, launches: bool = True) -> None:
    """Register ``zeros``, ``zeros_like`` and ``new_zeros``, and similar ones."""

    def make(recorder: Recorder, shape: Sequence[int], dtype: str, strides: Shape | None = None) -> Tensor:
        output = recorder.tensor(tuple(int(number_of(size)) for size in shape), dtype, strides)
        if launches:
            return recorder.launch(name, [], output)
        recorder.host(name)
        return output

    value_first = name == "full"

    @operator(name)
    def filled(recorder: Recorder, size: Sequence[int], *arguments: Any, dtype: int | None = None, **_: Any) -> Tensor:
        positional = arguments[1:] if value_first else arguments
        code = dtype if dtype is not None or not positional or isinstance(positional[0], TensorDevice) else positional[0]
        default = "float32"
        if value_first and arguments:
            default = promoted((arguments[0],)) if not isinstance(arguments[0], float) else "float32"
        return make(recorder, size, type_named(code, default))

    @operator(f"{name}_like")
    def filled_like(
        recorder: Recorder, self: Tensor, *arguments: Any, dtype: int | None = None, memory_format: int | None = None, **_: Any
    ) -> Tensor:
        """By default with the other tensor's layout."""
        positional = arguments[1:] if value_first else arguments
        code = dtype if dtype is not None or not positional else positional[0]
        layout = positional[4] if len(positional) > 4 else memory_format
        strides = None if layout == 0 else channels_last(self.shape) if layout == 2 else preserved(self)
        return make(recorder, self.shape, type_named(code, self.dtype), strides)

    @operator(f"new_{name}")
    def filled_new(
        recorder: Recorder, self: Tensor, size: Sequence[int], *arguments: Any, dtype: int | None = None, **_: Any
    ) -> Tensor:
        positional = arguments[1:] if value_first else arguments
        code = dtype if dtype is not None or not positional else positional[0]
        return make(recorder, size, type_named(code, self.dtype))


_filled("zeros")
_filled("ones")
_filled("full")
_filled("empty", launches=False)


def _random(name: str) -> None:
    @operator(name)
    def rule(recorder: Recorder, size: Sequence[int], *_: Any, dtype: int | None = None, **__: Any) -> Tensor:
        return recorder.launch(name, [], recorder.tensor(size, type_named(dtype, "float32")))


_random("rand")
_random("randn")


@operator("arange")
def arange(recorder: Recorder, *arguments: Any, dtype: int | None = None, **_: Any) -> Tensor:
    """``arange(end)``, ``arange(start, end)`` or ``arange(start, end, step)``, then type, layout, device and pinning."""
    count = {5: 1, 6: 2, 7: 3}.get(len(arguments), len(arguments))
    if len(arguments) > 3:
        dtype = arguments[count] if dtype is None else dtype
    bounds = [number_of(bound) for bound in arguments[:count]]
    start, end, step = (0, bounds[0], 1) if count == 1 else (bounds[0], bounds[1], bounds[2] if count == 3 else 1)
    length = math.ceil((end - start) / step)
    default = "float32" if any(isinstance(bound, float) for bound in bounds) else "int64"
    return recorder.launch("arange", [], recorder.tensor((length,), type_named(dtype, default)))


@operator("linspace")
def linspace(recorder: Recorder, start: Any, end: Any, steps: int, dtype: int | None = None, *_: Any, **__: Any) -> Tensor:
    return recorder.launch("linspace", [], recorder.tensor((int(steps),), type_named(dtype, "float32")))


@operator("logspace")
def logspace(
    recorder: Recorder, start: Any, end: Any, steps: int, base: Any = 10.0, dtype: int | None = None, *_: Any, **__: Any
) -> Tensor:
    return recorder.launch("logspace", [], recorder.tensor((int(steps),), type_named(dtype, "float32")))


@operator("eye")
def eye(recorder: Recorder, n: int, m: Any = None, *_: Any, dtype: int | None = None, **__: Any) -> Tensor:
    return recorder.launch("eye", [], recorder.tensor((n, n if m is None else m), type_named(dtype, "float32")))


@operator("tensor", "as_tensor")
def tensor(recorder: Recorder, data: Any, dtype: int | None = None, *_: Any, **__: Any) -> Tensor:
    if isinstance(data, Tensor):
        return data
    recorder.host("tensor")
    if not isinstance(data, (list, tuple)):
        made = wrapped(data)
        return moving.cast(made, type_named(dtype, made.dtype))
    shape: list[int] = []
    level: Any = data
    while isinstance(level, (list, tuple)):
        shape.append(len(level))
        if len(shape) > recorder.account.budget.rank or not level:
            break
        level = level[0]
    if len(shape) == 1 and 0 < len(data) <= 64 and all(type(item) in (int, float, bool) for item in data):
        return array(shape, type_named(dtype, promoted((data[0],))), data)
    default = "float32" if isinstance(level, (list, tuple)) else promoted((level,))
    return recorder.tensor(shape, type_named(dtype, default))


def cast(recorder: Recorder, x: Tensor, dtype: str, copy: bool = False) -> Tensor:
    if is_host(x):
        recorder.host("to")
        return moving.cast(x, dtype)
    if x.dtype == dtype and not copy:
        return x
    return recorder.launch("to", [x], recorder.tensor(x.shape, dtype, preserved(x)))


@operator("to", "_to_copy")
def to(recorder: Recorder, self: Tensor, *arguments: Any, dtype: int | None = None, copy: bool = False, **_: Any) -> Tensor:
    """All overloads: the first element type counts, devices do not; the second of two flags requests a copy."""
    wanted = self.dtype if dtype is None else SCALAR_TYPES[dtype]
    for argument in arguments:
        if isinstance(argument, Tensor) or type(argument) is int:
            wanted = argument.dtype if isinstance(argument, Tensor) else SCALAR_TYPES[argument]
            break
    flags = [argument for argument in arguments if isinstance(argument, bool)]
    return cast(recorder, self, wanted, copy or flags[1:2] == [True])


@operator("type_as")
def type_as(recorder: Recorder, self: Tensor, other: Tensor) -> Tensor:
    return cast(recorder, self, other.dtype)


def _named_cast(name: str, dtype: str) -> None:
    @operator(name)
    def rule(recorder: Recorder, self: Tensor, *_: Any) -> Tensor:
        return cast(recorder, self, dtype)


for _name, _dtype in moving.CASTS.items():
    _named_cast(_name, _dtype)


answered(lambda self, *_: self, "cuda", "cpu", "pin_memory", of="Tensor")


@operator("copy_")
def copy(recorder: Recorder, self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    recorder.launch("fill" if src.rank == 0 else "copy", [src] if src.rank else [], self)
    return self


@operator("fill_", "zero_")
def fill(recorder: Recorder, self: Tensor, value: Any = 0) -> Tensor:
    recorder.launch("fill", [], self)
    return self


answered(lambda tensor, other: SCALAR_CODES[promoted((tensor, other))], "result_type")


@operator("one_hot")
def one_hot(recorder: Recorder, self: Tensor, num_classes: int = -1) -> Tensor:
    if num_classes < 1:
        raise ShapeError("one_hot without a number of classes depends on the largest index")
    output = recorder.launch("zeros", [], recorder.tensor((*self.shape, num_classes), "int64"))
    recorder.host("unsqueeze")
    places = recorder.tensor((*self.shape, 1), self.dtype, of=self)
    return recorder.launch("scatter", [output, places], output)


def _random_like(name: str) -> None:
    @operator(name)
    def rule(recorder: Recorder, self: Tensor, *_: Any, dtype: int | None = None, **__: Any) -> Tensor:
        return recorder.launch(name, [self], recorder.tensor(self.shape, type_named(dtype, self.dtype)))


_random_like("rand_like")
_random_like("randn_like")


def _drawn(name: str) -> None:
    @operator(f"{name}_")
    def rule(recorder: Recorder, self: Tensor, *_: Any, **__: Any) -> Tensor:
        return recorder.launch(name, [self], self)


for _name in ("normal", "uniform", "exponential", "bernoulli"):
    _drawn(_name)


@operator("randint")
def randint(recorder: Recorder, *arguments: Any, dtype: int | None = None, **_: Any) -> Tensor:
    size = next(item for item in arguments if isinstance(item, (list, tuple)))
    return recorder.launch("randint", [], recorder.tensor(tuple(size), type_named(dtype, "int64")))


@operator("multinomial")
def multinomial(recorder: Recorder, self: Tensor, num_samples: int, *_: Any, **__: Any) -> Tensor:
    return recorder.launch("multinomial", [self], recorder.tensor((*self.shape[:-1], num_samples), "int64"))


def _window(name: str) -> None:
    @operator(name)
    def rule(recorder: Recorder, window_length: int, *options: Any, dtype: int | None = None, **_: Any) -> Tensor:
        """Cosine window in ATen's five launches; a periodic one is cut from a longer one."""
        longer = 0 if options[:1] == (False,) else 1
        output = recorder.tensor((window_length,), type_named(dtype, "float32"))
        if window_length < 2:
            return recorder.launch("ones", [], output)
        made = recorder.launch("arange", [], recorder.tensor((window_length + longer,), output.dtype))
        for kind in ("mul_scalar", "cos", "mul_scalar", "add_scalar"):
            made = recorder.launch(kind, [made], recorder.tensor(made.shape, made.dtype))
        return view_of(recorder, made, (window_length,), None, "slice") if longer else made


_window("hann_window")
_window("hamming_window")


def _corner(name: str, inside: Callable[[int, int], bool]) -> None:
    @operator(name)
    def rule(recorder: Recorder, row: int, col: int, offset: int = 0, *_: Any, **__: Any) -> Tensor:
        recorder.account.items(row * col)
        count = sum(inside(column - line, offset) for line, column in itertools.product(range(row), range(col)))
        return recorder.launch(name, [], recorder.tensor((2, count), "int64"))


_corner("tril_indices", lambda distance, offset: distance <= offset)
_corner("triu_indices", lambda distance, offset: distance >= offset)
