# SPDX-License-Identifier: Apache-2.0
"""TorchScript primitives: metadata of a tensor, and a model's errors."""

from __future__ import annotations

from typing import Any

from ...errors import ShapeError
from ..recorder import DataDependent, Recorder
from ..registry import answered, operator
from ..values import ACCELERATOR, SCALAR_CODES, Number, Tensor, TensorDevice
from .arrays import array

_NEVER = ("requires_grad", "is_quantized", "is_sparse", "is_mkldnn", "is_nested", "is_meta")

answered(lambda self: False, *(f"prim::{name}" for name in _NEVER), of="Tensor")
answered(lambda self: True, "prim::is_cuda", of="Tensor")
answered(lambda self: ACCELERATOR, "prim::device", of="Tensor")
answered(lambda self: self.type, "prim::type")
answered(lambda self: SCALAR_CODES[self.dtype], "prim::dtype", of="Tensor")
answered(lambda self: 0, "prim::layout", "get_device", of="Tensor")  # strided, on the first device
answered(lambda self: list(self.shape), "prim::shape", of="Tensor")
answered(lambda future: future, "wait")  # of fork, whose task has run
# Inference without gradients or autocasting.
answered(lambda *_: False, "is_grad_enabled", "is_autocast_enabled", "is_autocast_cpu_enabled", "is_inference_mode_enabled")
answered(lambda *_, **__: None, "warn", "_assert", "_assert_async", "manual_seed", "set_grad_enabled")
# Of numbers, or of one list of numbers.
answered(min, "prim::min")
answered(max, "prim::max")
answered(abs, "prim::abs")


@operator("prim::RaiseException")
def raise_exception(recorder: Recorder, message: Any = "", kind: Any = "") -> None:
    raise ShapeError(f"the model refuses this input: {str(message)[:200]!r}")


@operator("prim::NumToTensor", "scalar_tensor")
def number_to_tensor(recorder: Recorder, value: Number, *_: Any, **__: Any) -> Tensor:
    recorder.host("scalar_tensor")
    return wrapped(value)


def wrapped(value: Number) -> Tensor:
    return array((), "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32", (value,))


def number_of(value: Any) -> Number:
    """Plain number, from its tensor if necessary. Raises DataDependent if unknown."""
    if isinstance(value, Tensor):
        known = value.load() if value.value is None and value.load is not None else value.value
        if known is None or len(known) != 1:
            raise DataDependent("a number is taken out of a tensor")
        return known[0]
    if not isinstance(value, (int, float)):
        return float(value)
    return value


answered(lambda value: int(number_of(value)), "builtin::int", "Int", "IntImplicit")
answered(lambda value: float(number_of(value)), "builtin::float", "Float", "FloatImplicit")
answered(lambda value: bool(number_of(value)), "builtin::bool", "Bool", "is_nonzero")
answered(lambda self: number_of(self), "item", "ScalarImplicit", "Scalar")


@operator("equal")
def equal(recorder: Recorder, self: Tensor, other: Tensor) -> bool:
    """A tensor equals itself, which ATen checks without a launch."""
    if self is not other and self.shape == other.shape:
        raise DataDependent("whether two tensors are equal")
    return self is other


#: Reason for refusing an enabled ``torch.autocast``.
AUTOCAST = "torch.autocast chooses element types as the network runs, which is not followed; convert the model with its half()"


@operator("get_autocast_dtype")
def autocast_dtype(recorder: Recorder, device_type: str) -> int:
    """PyTorch's default, which code reads even for a disabled autocast."""
    return SCALAR_CODES["bfloat16" if device_type == "cpu" else "float16"]


@operator("prim::unchecked_unwrap_optional", "_unwrap_optional")
def unwrap(recorder: Recorder, value: Any) -> Any:
    if value is None:
        raise ShapeError("the model needs a value where it has None")
    return value


@operator("device", "prim::Device")
def named_device(recorder: Recorder, kind: str, index: int | None = None) -> TensorDevice:
    return TensorDevice(str(kind)[:32], index)
