# SPDX-License-Identifier: Apache-2.0
"""Trained region of a kernel kind's models, and a kernel's distance from it.

Kernels that a library implements differently have another form (a grouped convolution); other settings within a form are
varieties (a window of 7x7), within which sizes vary. A kernel is inside if its kind and variety were measured and no size
exceeds theirs by more than :data:`SLACK` doublings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..kinds import FeatureFamily, is_fused
from .features import family_of, feature_names

SLACK = math.log2(1.25)

LEAST_KERNELS = 3
"""Number of kernels that make a variety known."""

MOST_SIGMA = 0.7

_TYPE = ("element_bytes", "bfloat16")
_TYPES: Mapping[float, str] = {1: "int8", 2: "float16", 4: "float32"}
_IN_PART = 1.5  # tensors with more bytes than this multiple of the output's are read in part
# Derived features, shares and alignments: a new value there is nothing new.
_DERIVED = ("alignment", "tile", "_use", "traffic", "intensity", "reread", "winograd", "share", "unfolding", "_last")


class ModelPair(NamedTuple):
    time: float
    power: float


class Span(Struct, frozen=True):
    """Measured kernels of one variety: their number, each size's range in doublings, and number of each element type."""

    kernels: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    types: Mapping[str, int]


class UnseenKernel(Struct, frozen=True):
    """A kernel outside the region by ``doublings``; ``why`` gives its properties and the range measured.

    ``new`` is the level without measured kernels, or without its element type; None if only sizes are beyond.
    """

    why: str
    new: Literal["kind", "form", "variety"] | None = None
    doublings: float = 0.0


class Region(Struct, frozen=True):
    """Trained region of a kind's models.

    Attributes:
        kinds: measured kernels of each kind that its models serve, by element type.
        spans: measured ranges, by variety.
        kind_sigma: standard deviation of log(measured / predicted) of held-out kinds, equally weighted.
        form_sigma, variety_sigma: the same of held-out forms, and varieties or their element types.
        doubling_sigma: its growth per doubling beyond the ranges, by holding out the largest kernels.
    """

    kinds: Mapping[str, Mapping[str, int]]
    spans: Mapping[str, Span]
    kind_sigma: ModelPair
    form_sigma: ModelPair
    variety_sigma: ModelPair
    doubling_sigma: ModelPair

    def more_sigma(self, outside: UnseenKernel) -> ModelPair:
        new = {"kind": self.kind_sigma, "form": self.form_sigma, "variety": self.variety_sigma}
        grown = new[outside.new] if outside.new else ModelPair(*(each * outside.doublings for each in self.doubling_sigma))
        return ModelPair(*(min(each, MOST_SIGMA) for each in grown))


def form_of(variety: str) -> str:
    return variety.partition(", ")[0]


def of_new_kind(kind: str, dtype: str, region: Region) -> UnseenKernel | None:
    """Outside, if models serve this kind or element type without training on it; else None, and for fused kernels."""
    types = region.kinds.get(kind, {})
    if dtype in types or is_fused(kind):
        return None
    return UnseenKernel(f"{dtype}: of its kind measured {', '.join(types)}" if types else "none of its kind measured", "kind")


def outside(kind: str, row: Sequence[float], region: Region) -> UnseenKernel | None:
    """A kernel's distance from the measured region of a model's kind; None if inside."""
    names, sizes = names_and_sizes(kind)
    variety = variety_of(kind, names, row)
    span = region.spans.get(variety)
    if span is None and form_of(variety) not in map(form_of, region.spans):
        return UnseenKernel(f"{form_of(variety)}: none measured", "form")
    if span is None:
        return UnseenKernel(f"{variety}: none measured", "variety")
    if (dtype := type_of(names, row)) not in span.types:
        return UnseenKernel(f"{variety}, {dtype}: measured {', '.join(span.types)}".removeprefix(", "), "variety")
    furthest, why = 0.0, ""
    for at, low, high in zip(sizes, span.low, span.high, strict=True):
        value = doublings_of(names[at], row[at])
        if low - SLACK <= value <= high + SLACK:
            continue
        beyond = max(low - value, value - high)
        if beyond > furthest:
            furthest = beyond
            ends = dict.fromkeys(_size(names[at], end) for end in (low, high))
            title = names[at].removeprefix("log2_").replace("_", " ")
            why = f"{variety}: " if variety else ""
            why += f"{title} {_size(names[at], value)}, measured {' to '.join(ends)}"
    if why and span.kernels < LEAST_KERNELS:
        return UnseenKernel(f"{variety}: only {span.kernels} measured, of other sizes", "variety")
    return UnseenKernel(why, doublings=furthest) if why else None


def hold_batches(kind: str, rows: NDArray[np.float32], region: Region) -> None:
    """Limit each row's batch to the largest of its variety, in place; rows as in :func:`.features.feature_rows`.

    Trees mistake larger batches for another variety; other features and the bound keep the further work.
    """
    names, sizes = names_and_sizes(kind)
    if "batch" not in names or not region.spans:
        return
    column = names.index("batch")
    place = sizes.index(column)
    most = {variety: round(2 ** span.high[place] - 1) for variety, span in region.spans.items()}
    for number in np.flatnonzero(rows[:, column] > min(most.values())):
        row = rows[number]
        row[column] = min(row[column], most.get(variety_of(kind, names, row.tolist()), row[column]))


def size_names(kind: str) -> tuple[str, ...]:
    names, sizes = names_and_sizes(kind)
    return tuple(names[at] for at in sizes)


@cache
def names_and_sizes(kind: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    names = feature_names(kind)[:-3]
    told = _VARIETIES.get(family_of(kind), _VarietyFeatures((), lambda _: ""))
    sizes = tuple(
        at
        for at, name in enumerate(names)
        if name not in told.by and name not in _TYPE and not any(part in name for part in _DERIVED)
    )
    return names, sizes


def type_of(names: Sequence[str], row: Sequence[float]) -> str:
    element_bytes, bfloat16 = (row[names.index(name)] for name in _TYPE)
    return "bfloat16" if bfloat16 else _TYPES.get(element_bytes, f"elements of {element_bytes:g} bytes")


def doublings_of(name: str, value: float) -> float:
    return value if name.startswith("log2_") else math.copysign(math.log2(1 + abs(value)), value)


def _size(name: str, doublings: float) -> str:
    value = 2**doublings if name.startswith("log2_") else 2 ** abs(doublings) - 1
    return f"{value:.3g}" if value < 1e4 else f"{value:.2e}"


class _VarietyFeatures(NamedTuple):
    """Features that distinguish varieties, and the name of one: its form, and after a comma its settings."""

    by: tuple[str, ...]
    called: Callable[[Mapping[str, Any]], str]


def _convolution(row: Mapping[str, Any]) -> str:
    groups = "depthwise" if row["depthwise"] else "grouped" if row["log2_groups"] else "plain"
    window, stride, dilation = (
        f"{int(row[f'{name}_height'])}x{int(row[f'{name}_width'])}" for name in ("kernel", "stride", "dilation")
    )
    return f"{groups}, {window} by {stride}" + (f" dilated {dilation}" if dilation != "1x1" else "")


def _of_any_dimensions(row: Mapping[str, Any]) -> str:
    groups = "depthwise" if row["depthwise"] else "grouped" if row["log2_groups"] else "plain"
    return f"{groups}, window of {int(row['taps'])} by {int(row['stride'])}"


def _pool(row: Mapping[str, Any]) -> str:
    return f"{int(row['kernel_height'])}x{int(row['kernel_width'])} by {int(row['stride_height'])}x{int(row['stride_width'])}"


def _pointwise(row: Mapping[str, Any]) -> str:
    tensors = int(row["tensors"])
    # For a partly read tensor, such as a table or an image made smaller, all bytes count.
    times = 2 ** (row["log2_bytes"] - row["log2_elements"]) / row["element_bytes"]
    more = ", broadcast" if row["broadcast"] else ""
    return f"{tensors} tensors{more}" + (", read in part" if times > _IN_PART * (tensors + 1) else "")


def _batch_norm(row: Mapping[str, Any]) -> str:
    """Rows of features are as many as points or words; images are few."""
    return ("of images" if row["log2_plane"] else "of rows") + ("" if row["affine"] else ", not affine")


_WINDOW = ("kernel_height", "kernel_width", "stride_height", "stride_width")
_SETTINGS = ("dilation_height", "dilation_width", "depthwise", "log2_groups", "padding_height", "padding_width", "bias")
_VARIETIES: Mapping[FeatureFamily, _VarietyFeatures] = {
    "conv2d": _VarietyFeatures((*_WINDOW, *_SETTINGS, "epilogue"), _convolution),
    "matmul": _VarietyFeatures(
        ("two_activations", "bias"), lambda row: "two activations" if row["two_activations"] else "activation by weight"
    ),
    "pool2d": _VarietyFeatures((*_WINDOW, "padding_height", "padding_width"), _pool),
    "conv_nd": _VarietyFeatures(
        ("depthwise", "log2_groups", "taps", "window_last", "stride", "stride_last", "dilation_last", "bias"),
        _of_any_dimensions,
    ),
    "attention": _VarietyFeatures(
        ("mask", "causal", "math"), lambda row: "masked" if row["mask"] else "causal" if row["causal"] else "of all"
    ),
    "mean": _VarietyFeatures(
        ("reduced_dims", "inner_reduced"),
        lambda row: f"over {int(row['reduced_dims'])} dimensions" + ("" if row["inner_reduced"] else ", not the last"),
    ),
    "cat": _VarietyFeatures(("dim",), lambda row: f"along dimension {int(row['dim'])}"),
    "pointwise": _VarietyFeatures(("tensors", "broadcast"), _pointwise),
    "batch_norm": _VarietyFeatures(("affine",), _batch_norm),
}


def variety_of(kind: str, names: Sequence[str], row: Sequence[float]) -> str:
    told = _VARIETIES.get(family_of(kind))
    return told.called(dict(zip(names, row, strict=False))) if told else ""
