# SPDX-License-Identifier: Apache-2.0
"""8-bit networks of ``torch.ao``: each call as the launches of its parts, with their working types.

PyTorch runs these on a CPU only; a GPU engine fuses these kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ShapeError, UnsupportedOperator
from .. import pointwise
from ..elementwise import launch_pointwise, unary
from ..layout import preserved, show
from ..memory import indexing
from ..recorder import Recorder
from ..registry import operator
from ..values import SCALAR_TYPES, ScriptObject, Tensor
from .convolution import convolve
from .matrix import linear
from .normalization import batch_norm


def quantize(recorder: Recorder, x: Tensor, dtype: str, kind: str = "quantize_per_tensor") -> Tensor:
    return recorder.launch(kind, [x], recorder.tensor(x.shape, dtype, preserved(x)))


@operator("quantize_per_tensor")
def quantize_per_tensor(recorder: Recorder, self: Tensor, scale: Any, zero_point: Any, dtype: int) -> Tensor:
    return quantize(recorder, self, SCALAR_TYPES[dtype])


@operator("quantize_per_channel")
def quantize_per_channel(
    recorder: Recorder, self: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: int
) -> Tensor:
    return quantize(recorder, self, SCALAR_TYPES[dtype], "quantize_per_channel")


@operator("quantize_per_tensor_dynamic")
def quantize_per_tensor_dynamic(recorder: Recorder, self: Tensor, dtype: int, reduce_range: bool) -> Tensor:
    return _measured(recorder, self, SCALAR_TYPES[dtype])


def _measured(recorder: Recorder, x: Tensor, dtype: str) -> Tensor:
    recorder.launch("aminmax", [x], recorder.tensor((), x.dtype))
    return quantize(recorder, x, dtype)


@operator("dequantize")
def dequantize(recorder: Recorder, self: Any) -> Any:
    if isinstance(self, (list, tuple)):
        return [dequantize(recorder, x) for x in self]
    if not isinstance(self, Tensor):
        raise TypeError("dequantize takes a tensor or a list of them")
    if not self.is_quantized:
        return self
    output = recorder.tensor(self.shape, "float32", preserved(self), parameter=self.parameter)
    return output if self.parameter else recorder.launch("dequantize", [self], output)


@operator("int_repr")
def int_repr(recorder: Recorder, self: Tensor) -> Tensor:
    dtype = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}.get(self.dtype, self.dtype)
    return recorder.launch("clone", [self], recorder.tensor(self.shape, dtype))


# Quantised and back in one kernel, for training for 8 bits.


@operator("fake_quantize_per_tensor_affine")
def fake_quantize_per_tensor_affine(recorder: Recorder, self: Tensor, *_: Any, **__: Any) -> Tensor:
    return unary(recorder, "fake_quantize_per_tensor_affine_cachemask", self)


@operator("fake_quantize_per_channel_affine")
def fake_quantize_per_channel_affine(
    recorder: Recorder, self: Tensor, scale: Tensor, zero_point: Tensor, *_: Any, **__: Any
) -> Tensor:
    output = recorder.tensor(self.shape, self.dtype, preserved(self))
    return recorder.launch("fake_quantize_per_channel_affine_cachemask", [self, scale, zero_point], output)


# Packed for a CPU


class PackedWeight:
    __slots__ = ("bias", "options", "weight")

    def __init__(self, weight: Tensor, bias: Tensor | None, **options: Any) -> None:
        self.weight = weight
        self.bias = bias
        self.options = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, **options}


def _packed(value: Any, kind: str) -> PackedWeight:
    if isinstance(value, ScriptObject):  # PyTorch's saved form: weight, bias, and a convolution's parameters
        tensors = [item for item in _leaves(value.state) if isinstance(item, Tensor)]
        weights = [x for x in tensors if x.is_quantized or x.rank > 1]
        if weights and kind == "linear":
            return PackedWeight(weights[-1], next((x for x in tensors if x.rank == 1 and x is not weights[-1]), None))
    if not isinstance(value, PackedWeight):
        raise UnsupportedOperator(f"operator quantized::{kind} with weights packed in a way that is not followed")
    return value


def _leaves(value: Any, depth: int = 0) -> list[Any]:
    if isinstance(value, (list, tuple)) and depth < 4 and len(value) <= 64:
        return [leaf for item in value for leaf in _leaves(item, depth + 1)]
    return [value]


def _prepack(rank: int) -> None:
    @operator(f"quantized::conv{rank}d_prepack")
    def rule(
        recorder: Recorder, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> PackedWeight:
        return PackedWeight(weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups)

    @operator(f"quantized::conv_transpose{rank}d_prepack")
    def turned(
        recorder: Recorder,
        weight: Tensor,
        bias: Tensor | None,
        stride: Any,
        padding: Any,
        output_padding: Any,
        dilation: Any,
        groups: int,
    ) -> PackedWeight:
        moved = {"stride": stride, "padding": padding, "output_padding": output_padding, "dilation": dilation}
        return PackedWeight(weight, bias, **moved, groups=groups, transposed=True)

    def convolution(relu: bool, dynamic: bool) -> Callable[..., Tensor]:
        def rule(recorder: Recorder, x: Tensor, packed: Any, *_: Any) -> Tensor:
            weights = _packed(packed, f"conv{rank}d")
            source = _measured(recorder, x, "quint8") if dynamic else x
            made = convolve(recorder, source, weights.weight, weights.bias, rank=rank, **weights.options)
            made = dequantize(recorder, made) if dynamic else made
            return unary(recorder, "relu", made) if relu else made

        return rule

    operator(f"quantized::conv{rank}d", f"quantized::conv_transpose{rank}d")(convolution(False, False))
    operator(f"quantized::conv{rank}d_relu")(convolution(True, False))
    operator(f"quantized::conv{rank}d_dynamic", f"quantized::conv_transpose{rank}d_dynamic")(convolution(False, True))


for _rank in (1, 2, 3):
    _prepack(_rank)


@operator("quantized::linear_prepack", "quantized::linear_prepack_fp16")
def linear_prepack(recorder: Recorder, weight: Tensor, bias: Tensor | None = None) -> PackedWeight:
    return PackedWeight(weight, bias)


def _linear(relu: bool, dynamic: bool) -> Callable[..., Tensor]:
    def rule(recorder: Recorder, x: Tensor, packed: Any, *_: Any) -> Tensor:
        """A dynamic one measures and quantises its input first, and makes floating-point numbers."""
        weights = _packed(packed, "linear")
        source = _measured(recorder, x, "quint8") if dynamic else x
        with recorder.as_floats(dynamic):
            made = linear(recorder, source, weights.weight, weights.bias)
        return unary(recorder, "relu", made) if relu else made

    return rule


operator("quantized::linear")(_linear(False, False))
operator("quantized::linear_relu")(_linear(True, False))
operator("quantized::linear_dynamic")(_linear(False, True))
operator("quantized::linear_relu_dynamic")(_linear(True, True))


@operator("quantized::linear_dynamic_fp16")
def linear_in_halves(recorder: Recorder, x: Tensor, packed: Any, *_: Any) -> Tensor:
    """The weight is stored in half precision and converted at each use."""
    weights = _packed(packed, "linear")
    weight = weights.weight
    half = recorder.tensor(weight.shape, "float16", weight.strides, parameter=True, of=weight)
    full = recorder.launch("to", [half], recorder.tensor(weight.shape, x.dtype, weight.strides))
    return linear(recorder, x, full, weights.bias)


def _two(name: str) -> None:
    @operator(f"quantized::{name}")
    def rule(recorder: Recorder, a: Tensor, b: Any, *_: Any) -> Any:
        return (
            launch_pointwise(recorder, name, [a, b], a.dtype) if isinstance(b, Tensor) else unary(recorder, f"{name}_scalar", a)
        )

    @operator(f"quantized::{name}_relu")
    def rectified(recorder: Recorder, a: Tensor, b: Any, *_: Any) -> Any:
        return unary(recorder, "relu", rule(recorder, a, b))

    @operator(f"quantized::{name}_scalar")
    def scalar(recorder: Recorder, a: Tensor, b: Any, *_: Any) -> Any:
        return unary(recorder, f"{name}_scalar", a)


_two("add")
_two("mul")


def _one(name: str, kind: str) -> None:
    @operator(f"quantized::{name}")
    def rule(recorder: Recorder, x: Tensor, *_: Any) -> Tensor:
        return unary(recorder, kind, x)


for _name, _kind in (
    ("hardswish", "hardswish"),
    ("leaky_relu", "leaky_relu"),
    ("elu", "elu"),
    ("celu", "celu"),
    ("sigmoid", "sigmoid"),
    ("relu6", "hardtanh"),
):
    _one(_name, _kind)


@operator("quantized::cat")
def cat(recorder: Recorder, qx: Sequence[Tensor], dim: int, *_: Any) -> Tensor:
    return indexing.cat(recorder, qx, dim)


@operator("quantized::matmul")
def matmul(recorder: Recorder, qa: Tensor, qb: Tensor, *_: Any) -> Any:
    from .matrix import matmul as product

    return product(recorder, qa, qb)


@operator("quantized::softmax")
def softmax(recorder: Recorder, qx: Tensor, dim: int, *_: Any) -> Tensor:
    return recorder.launch("softmax", [qx], recorder.tensor(qx.shape, qx.dtype), {"dim": dim % max(qx.rank, 1)})


@operator("quantized::batch_norm1d", "quantized::batch_norm2d", "quantized::batch_norm3d", "quantized::batch_norm")
def normalised(
    recorder: Recorder, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float, *_: Any
) -> Tensor:
    if x.rank < 2:
        raise ShapeError(f"batch_norm of an input of shape {show(x.shape)}")
    return batch_norm(recorder, x, weight, bias, mean, var, False, 0.1, eps)


@operator("quantized::add_out", "quantized::mul_out")
def into(recorder: Recorder, a: Tensor, b: Tensor, out: Tensor) -> Any:
    return pointwise.add(recorder, a, b)
