# SPDX-License-Identifier: Apache-2.0
"""TorchScript primitives: metadata of a tensor, and a model's errors."""

from __future__ import annotations

from typing import Any

from ...errors import ShapeError
from ..recorder import DataDependent, Recorder
from ..registry import operator
from ..values import ACCELERATOR, SCALAR_CODES, Number, Tensor, TensorDevice
from .arrays import array


@operator("prim::RaiseException")
def raise_exception(recorder: Recorder, message: Any = "", kind: Any = "") -> None:
    raise ShapeError(f"the model refuses this input: {str(message)[:200]!r}")


@operator("prim::requires_grad", "prim::is_quantized", "prim::is_sparse", "prim::is_mkldnn", "prim::is_nested", "prim::is_meta")
def false_of_every_tensor(recorder: Recorder, self: Tensor) -> bool:
    return False


@operator("prim::is_cuda")
def is_cuda(recorder: Recorder, self: Tensor) -> bool:
    return True


@operator("prim::device")
def device(recorder: Recorder, self: Tensor) -> TensorDevice:
    return ACCELERATOR


@operator("prim::type")
def device_type(recorder: Recorder, self: TensorDevice) -> str:
    return self.type


@operator("prim::dtype")
def dtype(recorder: Recorder, self: Tensor) -> int:
    return SCALAR_CODES[self.dtype]


@operator("prim::layout")
def layout(recorder: Recorder, self: Tensor) -> int:
    """Strided, as every tensor here."""
    return 0


@operator("prim::shape")
def shape(recorder: Recorder, self: Tensor) -> list[int]:
    return list(self.shape)


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


@operator("builtin::int", "Int", "IntImplicit")
def to_int(recorder: Recorder, value: Any) -> int:
    return int(number_of(value))


@operator("builtin::float", "Float", "FloatImplicit")
def to_float(recorder: Recorder, value: Any) -> float:
    return float(number_of(value))


@operator("builtin::bool", "Bool", "is_nonzero")
def to_bool(recorder: Recorder, value: Any) -> bool:
    return bool(number_of(value))


@operator("item", "ScalarImplicit", "Scalar")
def item(recorder: Recorder, self: Any) -> Number:
    return number_of(self)


@operator("equal")
def equal(recorder: Recorder, self: Tensor, other: Tensor) -> bool:
    """A tensor equals itself, which ATen checks without a launch."""
    if self is not other and self.shape == other.shape:
        raise DataDependent("whether two tensors are equal")
    return self is other


@operator("wait")
def wait(recorder: Recorder, future: Any) -> Any:
    """Result of ``fork``, whose task has run."""
    return future


@operator("warn")
def warn(recorder: Recorder, message: str, stacklevel: int = 2) -> None:
    return None


@operator("is_grad_enabled", "is_autocast_enabled", "is_autocast_cpu_enabled", "is_inference_mode_enabled")
def mode_is_off(recorder: Recorder, *_: Any) -> bool:
    """Inference without gradients or autocasting."""
    return False


#: Reason for refusing an enabled ``torch.autocast``.
AUTOCAST = "torch.autocast chooses element types as the network runs, which is not followed; convert the model with its half()"


@operator("get_autocast_dtype")
def autocast_dtype(recorder: Recorder, device_type: str) -> int:
    """PyTorch's default, which code reads even for a disabled autocast."""
    return SCALAR_CODES["bfloat16" if device_type == "cpu" else "float16"]


@operator("_assert", "_assert_async", "manual_seed", "set_grad_enabled")
def no_effect(recorder: Recorder, *_: Any) -> None:
    return None


@operator("prim::unchecked_unwrap_optional", "_unwrap_optional")
def unwrap(recorder: Recorder, value: Any) -> Any:
    if value is None:
        raise ShapeError("the model needs a value where it has None")
    return value


@operator("device", "prim::Device")
def named_device(recorder: Recorder, kind: str, index: int | None = None) -> TensorDevice:
    return TensorDevice(str(kind)[:32], index)


@operator("get_device")
def device_index(recorder: Recorder, self: Tensor) -> int:
    return 0


def _plain(name: str, compute: Any) -> None:
    @operator(f"prim::{name}")
    def rule(recorder: Recorder, *values: Any) -> Any:
        """Of numbers, or of one list of numbers."""
        return compute(*values)


_plain("min", min)
_plain("max", max)
_plain("abs", abs)
