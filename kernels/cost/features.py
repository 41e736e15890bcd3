# SPDX-License-Identifier: Apache-2.0
"""Features of a kernel invocation by kind: its work, its shape as tiled by the device, its alignment.

The last three are the board's clocks in MHz, NaN in the rows made here: sweeps and training sets fill them in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CostModelError
from ..kinds import ELEMENTWISE, KINDS, FeatureFamily
from ..network import KernelInvocation, numel
from .products import (
    ATTENTION,
    CONV2D,
    CONV_ND,
    MATMUL,
    WORK,
    ProductFields,
    Row,
    alignment,
    attention,
    conv2d,
    conv_nd,
    log2,
    matmul,
    work,
)

FREQUENCY_FEATURES = ("cpu_mhz", "gpu_mhz", "emc_mhz")

MODELLED_KINDS: tuple[str, ...] = tuple(row.name for row in KINDS.values() if row.profiled)


def feature_names(kind: str) -> tuple[str, ...]:
    """Names of a kind's features, in the column order of :func:`feature_rows`, or CostModelError."""
    return _definition(kind)[0] + FREQUENCY_FEATURES


def columns(kind: str, names: Sequence[str]) -> list[int]:
    """Columns of some of a kind's features, the clocks last, or CostModelError."""
    known = feature_names(kind)
    strange = [name for name in names if name not in known]
    if strange or tuple(names[-3:]) != FREQUENCY_FEATURES or len(set(names)) < len(names):
        wrong = f"unknown: {', '.join(strange)}" if strange else "a name twice, or the clocks not at the end"
        raise CostModelError(f"{kind}: its features are not those of this release ({wrong}; known: {', '.join(known)})")
    return [known.index(name) for name in names]


def can_be_modelled(invocation: KernelInvocation) -> bool:
    row = KINDS.get(invocation.kind)
    return bool(family_of(invocation.kind)) or (row is not None and bool(row.served_by))


def feature_rows(kind: str, invocations: Sequence[KernelInvocation]) -> NDArray[np.float32]:
    """One row per invocation, float32 of shape ``(n, len(feature_names(kind)))``, with NaN in the three clock columns; raises
    CostModelError.

    With kind ``"elementwise"`` the invocations may be of any pointwise kind.
    """
    names = feature_names(kind)
    rows = np.full((len(invocations), len(names)), np.nan, np.float32)
    for index, call in enumerate(invocations):
        try:
            rows[index, :-3] = _row(kind, call.signature, call.flops, call.bytes)
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            raise CostModelError(
                f"{call.kind} {call.scope!r}: inputs {call.inputs} with {dict(call.params)} do not make a {kind} ({error!r})"
            ) from error
    return rows


@lru_cache(maxsize=8192)
def _row(kind: str, signature: tuple[Any, ...], flops: int, moved: int) -> tuple[float, ...]:
    """Features of one kernel without the clocks; cached."""
    _, inputs, output, dtype, params = signature
    return tuple(_definition(kind)[1](ProductFields(inputs, output, dtype, dict(params), flops, moved)))


_ROWS_OF = (*WORK, "log2_elements", "log2_last", "log2_rows", "last_alignment", "batch", "log2_normalized", "affine")


def _rows(call: ProductFields) -> Row:
    elements, last = numel(call.output), call.output[-1] if call.output else 1
    groups, shape = call.params.get("groups"), call.params.get("normalized_shape")
    dim = call.params.get("dim")
    if isinstance(groups, int):
        together = numel(call.output[1:]) // max(groups, 1)
    elif isinstance(shape, tuple):
        together = numel(shape)
    else:
        together = call.output[dim] if isinstance(dim, int) and call.output else last
    return [
        *work(call), log2(elements), log2(last), log2(elements // max(last, 1)), alignment(last),
        call.output[0] if call.output else 1, log2(together), bool(call.params.get("affine")),
    ]  # fmt: skip


_BATCH_NORM = (*WORK, "log2_elements", "batch", "channels", "log2_plane", "plane_alignment", "affine", "channels_last")


def _batch_norm(call: ProductFields) -> Row:
    batch, channels, *spatial = call.inputs[0]
    plane = numel(spatial)
    return [
        *work(call), log2(numel(call.output)), batch, channels, log2(plane), alignment(plane), bool(call.params["affine"]),
        bool(call.params.get("channels_last")),
    ]  # fmt: skip


_POOL = (
    *WORK, "log2_outputs", "batch", "channels", "in_height", "in_width", "out_height", "out_width", "width_alignment",
    "kernel_height", "kernel_width", "stride_height", "stride_width", "padding_height", "padding_width", "log2_input_bytes",
    "channels_last",
)  # fmt: skip


def _pool2d(call: ProductFields) -> Row:
    batch, channels, height, width = call.image(call.inputs[0])
    _, _, out_height, out_width = call.image(call.output)
    kernel = call.pair("kernel_size")
    stride = call.pair("stride", kernel) if call.params.get("stride") else kernel  # an empty stride is the kernel's size
    return [
        *work(call), log2(numel(call.output)), batch, channels, height, width, out_height, out_width, alignment(out_width),
        *kernel, *stride, *call.pair("padding", (0, 0)), log2(numel(call.inputs[0]) * call.element),
        bool(call.params.get("channels_last")),
    ]  # fmt: skip


_ADAPTIVE = (
    *WORK, "log2_outputs", "batch", "channels", "in_height", "in_width", "out_height", "out_width",
    "window_height", "window_width", "channels_last",
)  # fmt: skip


def _adaptive_pool2d(call: ProductFields) -> Row:
    batch, channels, height, width = call.image(call.inputs[0])
    _, _, out_height, out_width = call.image(call.output)
    return [
        *work(call), log2(numel(call.output)), batch, channels, height, width, out_height, out_width,
        height / max(out_height, 1), width / max(out_width, 1), bool(call.params.get("channels_last")),
    ]  # fmt: skip


_MEAN = (*WORK, "log2_outputs", "log2_reduced", "reduced_dims", "inner_reduced", "log2_inner", "batch")


def _mean(call: ProductFields) -> Row:
    shape, dim = call.inputs[0], call.params.get("dim")
    dims = range(len(shape)) if dim is None or dim == () else [dim] if isinstance(dim, int) else dim
    if isinstance(dims, (str, float)):
        raise TypeError("dim is not a list of integers")
    reduced = {index % len(shape) for index in dims} if shape else set()
    inner = shape[max(reduced) + 1 :] if reduced else shape
    return [
        *work(call), log2(numel(call.output)), log2(numel([shape[index] for index in reduced])), len(reduced),
        len(shape) - 1 in reduced, log2(numel(inner)), shape[0] if shape else 1,
    ]  # fmt: skip


_CAT = (
    *WORK, "log2_elements", "tensors", "dim", "batch", "log2_largest_run", "log2_smallest_run", "run_alignment",
    "largest_share",
)  # fmt: skip


def _cat(call: ProductFields) -> Row:
    dim = call.integer("dim") % max(len(call.output), 1)
    runs = [numel(shape[dim:]) for shape in call.inputs if len(shape) > dim]
    largest = max(numel(shape) for shape in call.inputs)
    return [
        *work(call), log2(numel(call.output)), len(call.inputs), dim, call.output[0], log2(max(runs)), log2(min(runs)),
        min(map(alignment, runs)), largest / max(numel(call.output), 1),
    ]  # fmt: skip


_POINTWISE = (
    *WORK, "log2_elements", "tensors", "broadcast", "element_alignment", "batch", "log2_inner", "log2_last", "last_alignment",
)  # fmt: skip


def _pointwise(call: ProductFields) -> Row:
    elements = numel(call.output)
    return [
        *work(call), log2(elements), len(call.inputs), any(numel(shape) != elements for shape in call.inputs),
        alignment(elements), call.output[0] if call.output else 1, log2(numel(call.output[2:])),
        log2(call.output[-1] if call.output else 1), alignment(call.output[-1] if call.output else 1),
    ]  # fmt: skip


_FAMILIES: Mapping[FeatureFamily, tuple[tuple[str, ...], Callable[[ProductFields], Row]]] = {
    "conv2d": (CONV2D, conv2d),
    "batch_norm": (_BATCH_NORM, _batch_norm),
    "matmul": (MATMUL, matmul),
    "pointwise": (_POINTWISE, _pointwise),
    "cat": (_CAT, _cat),
    "pool2d": (_POOL, _pool2d),
    "adaptive_pool2d": (_ADAPTIVE, _adaptive_pool2d),
    "mean": (_MEAN, _mean),
    "conv_nd": (CONV_ND, conv_nd),
    "attention": (ATTENTION, attention),
    "rows": (_ROWS_OF, _rows),
}


def family_of(kind: str) -> FeatureFamily:
    if kind == ELEMENTWISE:
        return "pointwise"
    row = KINDS.get(kind)
    return row.features if row is not None else ""


def _definition(kind: str) -> tuple[tuple[str, ...], Callable[[ProductFields], Row]]:
    family = family_of(kind)
    if not family:
        valid = [row.name for row in KINDS.values() if row.features]
        raise CostModelError(f"kind {kind!r} has no features; valid: {', '.join((*valid, ELEMENTWISE))}")
    return _FAMILIES[family]
