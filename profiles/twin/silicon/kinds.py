# SPDX-License-Identifier: Apache-2.0
"""Kernel kinds of simulated boards, one row each: GPU work and issue cost.

Independent of the predictor's table (``kernels/kinds.py``). A kind without a row is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from ....kernels.network import KernelInvocation
from ...errors import TwinError
from .chip import Array, Chip
from .conv import convolution
from .kernels import Family, adaptive_pool, batch_norm, cat, copy, pool, reduce, rowwise
from .kernels import pointwise as pointwise_of
from .passes import CodePass, column, element, number
from .products import attention, matmul, transposed


class SiliconKind(Struct, frozen=True):
    """One kernel kind on a simulated board.

    Attributes:
        work: passes on the GPU.
        call_us: issue cost on an AGX Xavier at 2265.6 MHz and 2133 MHz memory; None: as any launch.
        depthwise_us: the same of a depthwise one outside a library call.
        tensor_us: additional cost per gathered tensor.
    """

    work: Family
    call_us: float | None = None
    depthwise_us: float | None = None
    tensor_us: float = 0.0


# Assumed: that of 13 operands. More are in fused launches alone; without a bound, 26 would have no bandwidth at all.
_LEAST_SHARE = 0.5
pointwise = partial(pointwise_of, least_share=_LEAST_SHARE)
"""Vector access even for odd sizes.

On five GPUs, additions and ReLU of sizes divisible by four are no faster than other sizes (sitar-lab/NeuSight, to 0.1%).
"""
# Instructions for each element, by hardware support: a few plain ones, a reciprocal or a table, a series.
_PLAIN, _MODERATE, _DEAR = 2.0, 8.0, 24.0
_LAST_DIMENSIONS = 2


def _convolved(chip: Chip, calls: Sequence[KernelInvocation]) -> list[CodePass]:
    return convolution(chip, [flat(call) for call in calls])


def flat(call: KernelInvocation) -> KernelInvocation:
    """Two-dimensional form of a convolution of the same work."""
    batch, channels, *image = call.inputs[0]
    params: dict[str, Any] = dict(call.params)
    filters, per_group, *window = params["weight"]
    filters_out, *out = call.output[1:]
    missing = _LAST_DIMENSIONS - len(image)
    steps = {name: _of_length(params[name], len(image)) for name in ("stride", "padding", "dilation")}
    if missing >= 0:
        ones = (1,) * missing
        params |= {name: (*((0,) * missing if name == "padding" else ones), *value) for name, value in steps.items()}
        params["weight"] = (filters, per_group, *ones, *window)
        shape, output = (batch, channels, *ones, *image), (batch, filters_out, *ones, *out)
    else:
        deep, taps = prod(out[:-2]), prod(window[:-2])
        params |= {name: value[-2:] for name, value in steps.items()}
        params["weight"] = (filters, per_group * taps, *window[-2:])
        shape, output = (batch * deep, channels * taps, *image[-2:]), (batch * deep, filters_out, *out[-2:])
    return replace(call, inputs=(shape, *call.inputs[1:]), output=output, params=params)


def _of_length(value: Any, length: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, (tuple, list)) else (int(value),)
    return values if len(values) == length else values[:1] * length


def _joined(chip: Chip, calls: Sequence[KernelInvocation]) -> list[CodePass]:
    """Pointwise operators as one launch: all instructions, external bytes."""
    work = column(calls, lambda call: sum(_instructions(kind) for kind in _members(call)))
    whole = pointwise(0.0)(chip, calls)[0]
    plain = pointwise(1.0)(chip, calls)[0]
    more = {name: getattr(whole, name) + work * (getattr(plain, name) - getattr(whole, name)) for name in _WORK}
    written = column(calls, lambda call: max(number(call, "outputs", 1.0) - 1.0, 0.0) * prod(call.output) * element(call))
    moved = whole.dram_bytes / np.maximum(whole.l2_bytes, 1.0)
    return [replace(whole, **more, l2_bytes=whole.l2_bytes + written, dram_bytes=whole.dram_bytes + written * moved)]


_WORK = ("cycles", "operations")


def _members(call: KernelInvocation) -> list[str]:
    return str(call.params.get("kinds", "")).split("+")


def _instructions(kind: str) -> float:
    known = COSTS.get(kind.removesuffix("_scalar"), _AS_ARITHMETIC.get(kind))
    if known is not None:
        return known
    raise TwinError(f"simulated silicon knows no pointwise kernel {kind!r} that could be fused; valid: {', '.join(COSTS)}")


def _recurrent(gates: int, chip: Chip, calls: Sequence[KernelInvocation]) -> list[CodePass]:
    """Recurrent layer in one launch: a product per step, in sequence."""
    steps, products = [], []
    for call in calls:
        sequence = call.inputs[0]
        hidden, layers, directions = (int(number(call, name, 1.0)) for name in ("hidden", "layers", "directions"))
        state = call.inputs[1] if len(call.inputs) > 1 else ()
        # The batch comes first or second; the state has it in one place.
        batch = max(state[-2], 1) if len(state) == 3 else prod(sequence[:-1]) // max(sequence[0], 1)
        params = {"m": batch, "k": sequence[-1] + hidden, "n": gates * hidden, "batch": 1, "bias": False}
        products.append(KernelInvocation("matmul", "", ((batch, hidden),), (batch, gates * hidden), call.dtype, params))
        steps.append(float(prod(sequence[:-1]) / batch * layers * directions))
    many = np.array(steps)
    return [_times(work, many) for work in matmul(chip, products)]


def _times(work: CodePass, many: Array) -> CodePass:
    scaled = ("cycles", "serial_cycles", "round_trips", "l2_bytes", "dram_bytes", "operations")
    values = asdict(work)
    return CodePass(**{name: value * many if name in scaled else value for name, value in values.items()})


def _alike(names: str, work: Family, call_us: float | None = None) -> Iterator[tuple[str, SiliconKind]]:
    row = SiliconKind(work, call_us)
    return ((name, row) for name in names.split())


_PLAIN_KINDS = """hardtanh add sub bitwise_and bitwise_not bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift ceil
clamp clamp_max clamp_min complex copysign deg2rad eq floor fmax fmin frac ge gt hardshrink heaviside isinf isnan isneginf
isposinf le leaky_relu lerp logical_and logical_not logical_or logical_xor lt maximum minimum nan_to_num ne nextafter prelu
rad2deg round rsub sgn sign signbit softshrink threshold trunc where masked_fill to addcmul dequantize quantize_per_tensor
quantize_per_channel rrelu_with_noise"""
_MODERATE_KINDS = """div sqrt exp addcdiv elu celu erf exp2 log log2 log10 log1p reciprocal rsqrt sin cos remainder fmod
floor_divide glu hypot softplus log_sigmoid fake_quantize_per_tensor_affine_cachemask
fake_quantize_per_channel_affine_cachemask mse_loss smooth_l1_loss huber_loss lstm_cell gru_cell rnn_cell rand rand_like randn
randn_like randint uniform normal bernoulli exponential"""
_DEAR_KINDS = """acos acosh angle asin asinh atan atan2 atanh cosh digamma erfc erfinv expm1 i0 ldexp lgamma logaddexp
logaddexp2 logit mish polar sinc sinh tan xlogy binary_cross_entropy_with_logits"""
COSTS: Mapping[str, float] = {
    **dict.fromkeys(("relu", "mul", "neg", "abs"), 1.0),
    **dict.fromkeys(_PLAIN_KINDS.split(), _PLAIN),
    **dict.fromkeys(_MODERATE_KINDS.split(), _MODERATE),
    **dict.fromkeys(_DEAR_KINDS.split(), _DEAR),
    "hardsigmoid": 4.0,
    "hardswish": 6.0,
    "sigmoid": 14.0,
    "silu": 16.0,
    "pow": 16.0,
    "tanh": 20.0,
    "gelu": 22.0,
}
"""Instructions per element of each pointwise kind, also with a scalar operand."""
_AS_ARITHMETIC = {"batch_norm": 3.0, "cat": 6.0}

_WITH_NUMBERS = """add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign div eq
floor_divide fmax fmin fmod ge gt heaviside hypot ldexp le logaddexp logaddexp2 logical_and logical_or logical_xor lt maximum
minimum mul ne nextafter polar pow remainder rsub sub xlogy"""
_COPIES = """arange block_diag channel_shuffle col2im constant_pad_nd copy diag_embed diagonal_copy embedding eye fill flip full
gather im2col index index_add index_copy index_fill index_put index_select linspace logspace masked_scatter ones pixel_shuffle
pixel_unshuffle reflection_pad1d reflection_pad2d reflection_pad3d repeat replication_pad1d replication_pad2d
replication_pad3d roll rot90 scatter scatter_add scatter_reduce index_reduce take tril tril_indices triu triu_indices
unfold_backward upsample_nearest1d upsample_nearest2d upsample_nearest3d zeros embedding_bag max_unpool2d max_unpool3d"""
_REDUCTIONS = """all any aminmax count_nonzero dist logsumexp min nansum norm prod std std_mean trace var var_mean"""

_ROWS: Mapping[str, SiliconKind] = {
    "conv2d": SiliconKind(convolution, 41.0, depthwise_us=27.0),
    "conv_transpose2d": SiliconKind(transposed, 47.0),
    "matmul": SiliconKind(matmul, 26.0),
    "attention": SiliconKind(attention, 90.0),
    "batch_norm": SiliconKind(batch_norm, 19.5),
    "layer_norm": SiliconKind(rowwise(2.0, 12.0), 28.0),
    "group_norm": SiliconKind(rowwise(2.0, 12.0)),
    "softmax": SiliconKind(rowwise(3.0, 24.0), 19.0),
    "log_softmax": SiliconKind(rowwise(3.0, 26.0)),
    "cat": SiliconKind(cat, 48.0, tensor_us=5.0),
    "stack": SiliconKind(cat, 48.0, tensor_us=5.0),
    "clone": SiliconKind(copy, 36.0),
    "max_pool2d": SiliconKind(pool, 17.0),
    "avg_pool2d": SiliconKind(pool, 16.0),
    "adaptive_avg_pool2d": SiliconKind(adaptive_pool, 19.0),
    "adaptive_max_pool2d": SiliconKind(adaptive_pool),
    "mean": SiliconKind(reduce, 26.0),
    "sum": SiliconKind(reduce, 26.0),
    "max": SiliconKind(reduce),
    "amax": SiliconKind(reduce),
    "argmax": SiliconKind(reduce),
}
_CALL_US = {"relu": 10.5, "hardtanh": 13.0, "add": 14.0, "mul": 14.0}
"""Issue costs of pointwise kinds that differ from the usual."""

ROWS: Mapping[str, SiliconKind] = {
    **{name: SiliconKind(pointwise(work), _CALL_US.get(name)) for name, work in COSTS.items()},
    **{f"{name}_scalar": SiliconKind(pointwise(COSTS[name])) for name in _WITH_NUMBERS.split()},
    **dict(_alike(_COPIES, copy, 22.0)),
    **dict(_alike(_REDUCTIONS, reduce, 26.0)),
    **dict(_alike("max_pool3d avg_pool3d", pool, 18.0)),
    **dict(_alike("adaptive_avg_pool3d adaptive_max_pool3d", reduce, 20.0)),
    **dict(_alike("upsample_bilinear2d upsample_linear1d upsample_trilinear3d", pointwise(40.0), 20.0)),
    **dict(_alike("upsample_bicubic2d grid_sampler_2d grid_sampler_3d roi_align", pointwise(120.0), 24.0)),
    **dict(_alike("cumsum cumprod cummax cummin logcumsumexp", rowwise(2.0, 30.0), 26.0)),
    **dict(_alike("sort topk median kthvalue mode searchsorted bucketize", rowwise(8.0, 160.0), 60.0)),
    **dict(_alike("_fft_r2c _fft_c2r _fft_c2c", rowwise(4.0, 90.0), 60.0)),
    "rms_norm": SiliconKind(rowwise(2.0, 9.0), 28.0),
    "conv1d": SiliconKind(_convolved, 43.0),
    "conv3d": SiliconKind(_convolved, 46.0),
    **{f"conv_transpose{n}d": _ROWS["conv_transpose2d"] for n in (1, 3)},
    "lstm": SiliconKind(partial(_recurrent, 4), 160.0),
    "gru": SiliconKind(partial(_recurrent, 3), 150.0),
    "rnn": SiliconKind(partial(_recurrent, 1), 140.0),
    "fused_pointwise": SiliconKind(_joined, 30.0),
    **_ROWS,
}
"""Known kinds by name, without fused products. A new operator has its row here."""
HOST_US: Mapping[str, float] = {**_CALL_US, **{name: row.call_us for name, row in _ROWS.items() if row.call_us is not None}}
"""Costs of calls that the host computes itself."""
