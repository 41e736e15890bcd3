# SPDX-License-Identifier: Apache-2.0
"""Kernel invocations from sizes in tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TypeAlias

from ....kernels.kinds import flops, kind_of
from ....kernels.network import DTYPE_BYTES, KernelInvocation, ParamValue, Shape
from ...twin.measured.mapping import Form

Params: TypeAlias = Mapping[str, ParamValue]


def kernel_of(form: Form, kind: str, sizes: Mapping[str, int], dtype: str) -> KernelInvocation:
    """Kernel from its sizes. Raises ValueError if they make none.

    Args:
        form: ``convolution``; ``linear``, activation by weight; ``product`` of two activations; ``elements``, pointwise on
            tensors of all the sizes, in order.
        kind: of ``elements``; other forms are ``conv2d`` or ``matmul``.
    """
    made = _FORMS[form](kind, sizes, dtype)
    if min(map(min, (*made.inputs, made.output))) < 1:
        raise ValueError(f"a tensor of {' x '.join(map(str, made.output))}")
    return made


def invocation(
    kind: str, inputs: Sequence[Shape], output: Shape, params: Params, weights: int = 0, dtype: str = "float32"
) -> KernelInvocation:
    """Kernel that moves its tensors and ``weights`` elements once."""
    moved = DTYPE_BYTES[dtype] * (sum(map(prod, (*inputs, output))) + weights)
    return KernelInvocation(kind, "", tuple(inputs), output, dtype, params, flops(kind, inputs, output, params), moved)


def _convolution(kind: str, sizes: Mapping[str, int], dtype: str) -> KernelInvocation:
    batch, channels, filters, window, groups = (sizes[name] for name in ("batch", "channels", "filters", "window", "groups"))
    if channels % groups or filters % groups:
        raise ValueError(f"{groups} groups of {channels} channels and {filters} filters")
    stride, padding, dilation = (sizes[name] for name in ("stride", "padding", "dilation"))
    height, width = ((sizes[side] + 2 * padding - dilation * (window - 1) - 1) // stride + 1 for side in ("height", "width"))
    weight = (filters, channels // groups, window, window)
    params: dict[str, ParamValue] = {
        "weight": weight, "bias": bool(sizes["bias"]), "groups": groups,
        "stride": (stride, stride), "padding": (padding, padding), "dilation": (dilation, dilation),
    }  # fmt: skip
    image = (batch, channels, sizes["height"], sizes["width"])
    parameters = prod(weight) + (filters if sizes["bias"] else 0)
    return invocation("conv2d", (image,), (batch, filters, height, width), params, parameters, dtype)


def _linear(kind: str, sizes: Mapping[str, int], dtype: str) -> KernelInvocation:
    m, n, k = (sizes[name] for name in ("m", "n", "k"))
    params: dict[str, ParamValue] = {"m": m, "k": k, "n": n, "batch": 1, "bias": bool(sizes["bias"])}
    return invocation("matmul", ((m, k),), (m, n), params, k * n + (n if sizes["bias"] else 0), dtype)


def _product(kind: str, sizes: Mapping[str, int], dtype: str) -> KernelInvocation:
    m, n, k, batch = (sizes[name] for name in ("m", "n", "k", "batch"))
    params: dict[str, ParamValue] = {"m": m, "k": k, "n": n, "batch": batch, "bias": False}
    return invocation("matmul", ((batch, m, k), (batch, k, n)), (batch, m, n), params, 0, dtype)


def _elements(kind: str, sizes: Mapping[str, int], dtype: str) -> KernelInvocation:
    shape = tuple(sizes.values())
    return invocation(kind, (shape,) * max(kind_of(kind).operands, 1), shape, {}, 0, dtype)


_FORMS: Mapping[str, Callable[[str, Mapping[str, int], str], KernelInvocation]] = {
    "convolution": _convolution,
    "linear": _linear,
    "product": _product,
    "elements": _elements,
}
