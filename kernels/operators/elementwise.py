# SPDX-License-Identifier: Apache-2.0
"""Element types and launches of pointwise work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ModelError, ShapeError
from .layout import broadcast, elementwise_strides
from .recorder import Recorder
from .values import SCALAR_TYPES, Tensor

_RANKS = {
    "bool": 0,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "float16": 6,
    "bfloat16": 6,
    "float32": 7,
    "float64": 8,
}
_RANKS |= {"complex64": 10, "complex128": 11}


def _category(dtype: str) -> int:
    rank = _RANKS.get(dtype, 7)
    return 0 if rank == 0 else 1 if rank < 6 else 2 if rank < 10 else 3


def as_floating(dtype: str) -> str:
    """Element type of a quotient or root: integers become float32."""
    return "float32" if _category(dtype) < 2 else dtype


def type_named(dtype: int | None, default: str) -> str:
    return default if dtype is None else SCALAR_TYPES[dtype]


def _of_number(value: Any) -> str:
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"


def _wider(first: str, second: str) -> str:
    if first == second:
        return first
    if {first, second} in ({"float16", "bfloat16"},):
        return "float32"
    if {first, second} == {"uint8", "int8"}:
        return "int16"
    return first if _RANKS.get(first, 7) >= _RANKS.get(second, 7) else second


def promoted(operands: Sequence[Any]) -> str:
    """Element type PyTorch computes in: tensors with dimensions first, then scalars of a higher category."""
    result = ""
    for ranked in (True, False):
        kinds = [x.dtype for x in operands if isinstance(x, Tensor) and (x.rank > 0) == ranked and not _is_number(x)]
        for dtype in kinds:
            if not result or (ranked or _category(dtype) > _category(result)):
                result = _wider(result, dtype) if result else dtype
    for number in operands:
        dtype = number.dtype if isinstance(number, Tensor) else _of_number(number)
        if dtype == "float64" and isinstance(number, Tensor) and _is_number(number):
            dtype = "float32"  # a wrapped Python float takes the default type
        if (not isinstance(number, Tensor) or _is_number(number)) and (not result or _category(dtype) > _category(result)):
            result = dtype
    return result


def is_host(value: Any) -> bool:
    """True for a tensor held by the host: arithmetic on it launches nothing."""
    return isinstance(value, Tensor) and value.value is not None


def _is_number(value: Tensor) -> bool:
    return value.rank == 0 and value.value is not None


def checked(value: Any) -> Any:
    """Result of arithmetic, if TorchScript can hold the number."""
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        raise ModelError("arithmetic leaves the range of 64-bit integers")
    return value


def launch_pointwise(
    recorder: Recorder,
    kind: str,
    operands: Sequence[Tensor],
    dtype: str,
    params: dict[str, Any] | None = None,
    *,
    beside_number: bool = False,
) -> Tensor:
    """Launch one pointwise kernel over broadcast tensors, and perhaps a number."""
    shape = operands[0].shape if len(operands) == 1 else broadcast([x.shape for x in operands])
    output = recorder.tensor(shape, dtype, elementwise_strides(shape, operands, beside_number))
    return recorder.launch(kind, operands, output, params)


def binary(
    recorder: Recorder, kind: str, first: Any, second: Any, compute: Callable[[Any, Any], Any], dtype: str | None = None
) -> Any:
    if not isinstance(first, Tensor) and not isinstance(second, Tensor):
        return checked(compute(_plain(first), _plain(second)))
    if not all(isinstance(x, (Tensor, int, float)) for x in (first, second)):
        raise TypeError(f"{kind} of a tensor and something that is not a number")
    tensors = [x for x in (first, second) if isinstance(x, Tensor) and not (is_host(x) and x.rank == 0)]
    name = kind if len(tensors) == 2 else f"{kind}_scalar"
    number = len(tensors) == 1 and kind != "pow"
    return launch_pointwise(recorder, name, tensors, dtype or promoted((first, second)), beside_number=number)


def _plain(value: Any) -> Any:
    """Non-tensor operand. Nested containers are refused: comparing them can take forever."""
    if isinstance(value, (list, tuple, dict)) and any(isinstance(item, (list, tuple, dict)) for item in value):
        raise ShapeError("containers of containers are not compared")
    return value


def unary(recorder: Recorder, kind: str, x: Tensor, *, floating: bool = False, params: dict[str, Any] | None = None) -> Tensor:
    """Pointwise operator of one tensor; ``floating`` ones turn integers into float32."""
    dtype = as_floating(x.dtype) if floating else x.dtype
    if kind in ("abs", "angle") and x.dtype.startswith("complex"):
        dtype = "float64" if x.dtype == "complex128" else "float32"
    return recorder.launch(kind, [x], recorder.tensor(x.shape, dtype, elementwise_strides(x.shape, (x,))), params)
