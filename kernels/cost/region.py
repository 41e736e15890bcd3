# SPDX-License-Identifier: Apache-2.0
"""Where the models of a kernel kind were trained, and how far outside of it a kernel lies.

A model may serve other kinds than its own (that of copies serves pads). What a library does by other means has another form
(a grouped convolution); kernels of one form with other settings are its varieties (a window of 7x7); within a variety sizes
vary. A kernel is inside where kernels of its kind and of its variety were measured and none of its sizes is beyond theirs by
more than :data:`SLACK`. Sizes count in doublings: twice the largest is one doubling beyond.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kinds import FeatureFamily, is_fused
from .features import family_of, feature_names

SLACK = math.log2(1.25)
"""How many doublings beyond what was measured still count as measured."""

LEAST_KERNELS = 3
"""So many kernels of a variety are taken to show how it behaves."""

MOST_SIGMA = 0.7
"""No kernel is less certain than one without a model, for lying outside."""

_TYPE = ("element_bytes", "bfloat16")
_TYPES: Mapping[float, str] = {1: "int8", 2: "float16", 4: "float32"}
_IN_PART = 1.5  # times as many bytes as tensors of the output's size have are more than is read of them
# What follows from other features, or is a share or an alignment: there a new value is nothing new.
_DERIVED = ("alignment", "tile", "_use", "traffic", "intensity", "reread", "winograd", "share", "unfolding", "_last")


class Pair(NamedTuple):
    """One figure for the model of time and one for that of power."""

    time: float
    power: float


@dataclass(frozen=True)
class Span:
    """The kernels of one variety that were measured.

    Attributes:
        kernels: how many they are.
        low, high: the ends of each size's range, in doublings.
        types: how many are of each element type.
    """

    kernels: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    types: Mapping[str, int]


@dataclass(frozen=True)
class Outside:
    """How a kernel lies outside.

    Attributes:
        why: in words: what it is or has, and what was measured.
        new: of what no kernel was measured, or none of its element type; None where sizes alone are beyond.
        doublings: how far beyond the ranges they are.
    """

    why: str
    new: Literal["kind", "form", "variety"] | None = None
    doublings: float = 0.0


@dataclass(frozen=True)
class Region:
    """Where the models of a kind were trained.

    Attributes:
        kinds: how many kernels were measured of each kind, its own and those that its models serve, by element type.
        spans: what was measured, by variety.
        kind_sigma: standard deviation of log(measured / predicted) of kernels whose kind was left out of training; all kinds
            weigh alike.
        form_sigma: of those whose form was.
        variety_sigma: of those whose variety was; it stands for varieties that were measured with other element types as well.
        doubling_sigma: what it grows by with each doubling beyond the ranges, found by leaving the largest kernels out.
    """

    kinds: Mapping[str, Mapping[str, int]]
    spans: Mapping[str, Span]
    kind_sigma: Pair
    form_sigma: Pair
    variety_sigma: Pair
    doubling_sigma: Pair

    def more_sigma(self, outside: Outside) -> Pair:
        """By how much, in quadrature, a kernel that lies outside is less certain than one inside."""
        new = {"kind": self.kind_sigma, "form": self.form_sigma, "variety": self.variety_sigma}
        grown = new[outside.new] if outside.new else Pair(*(each * outside.doublings for each in self.doubling_sigma))
        return Pair(*(min(each, MOST_SIGMA) for each in grown))


def form_of(variety: str) -> str:
    """The form that kernels of a variety have."""
    return variety.partition(", ")[0]


def of_new_kind(kind: str, dtype: str, region: Region) -> Outside | None:
    """That models serve kernels of a kind, or of a type of that, and were trained on none; None where they were on some.

    How far the models can be relied on that stand in for what fusion makes is known otherwise.
    """
    types = region.kinds.get(kind, {})
    if dtype in types or is_fused(kind):
        return None
    return Outside(f"{dtype}: of its kind measured {', '.join(types)}" if types else "none of its kind measured", "kind")


def outside(kind: str, row: Sequence[float], region: Region) -> Outside | None:
    """How a kernel with these features lies outside what was measured of a model's kind; None where it is inside."""
    names, sizes = names_and_sizes(kind)
    variety = variety_of(kind, names, row)
    span = region.spans.get(variety)
    if span is None and form_of(variety) not in map(form_of, region.spans):
        return Outside(f"{form_of(variety)}: none measured", "form")
    if span is None:
        return Outside(f"{variety}: none measured", "variety")
    if (dtype := type_of(names, row)) not in span.types:
        return Outside(f"{variety}, {dtype}: measured {', '.join(span.types)}".removeprefix(", "), "variety")
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
        return Outside(f"{variety}: only {span.kernels} measured, of other sizes", "variety")
    return Outside(why, doublings=furthest) if why else None


def hold_batches(kind: str, rows: NDArray[np.float32], region: Region) -> None:
    """Let no row say a larger batch than was measured of its variety, in place; rows as of :func:`.features.feature_rows`.

    Beyond, trees take a kernel for one of another variety that has such batches (norms of as many rows as there are points);
    how much more there is to do stands in the other features and in the bound.
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
    """The features whose ranges are kept, in the order of :attr:`Span.low`."""
    names, sizes = names_and_sizes(kind)
    return tuple(names[at] for at in sizes)


@cache
def names_and_sizes(kind: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The features of a kind's kernels but for the clocks, and the places of those that are sizes."""
    names = feature_names(kind)[:-3]
    told = _VARIETIES.get(family_of(kind), _Told((), lambda _: ""))
    sizes = tuple(
        at
        for at, name in enumerate(names)
        if name not in told.by and name not in _TYPE and not any(part in name for part in _DERIVED)
    )
    return names, sizes


def type_of(names: Sequence[str], row: Sequence[float]) -> str:
    """The element type of a kernel with these features."""
    element_bytes, bfloat16 = (row[names.index(name)] for name in _TYPE)
    return "bfloat16" if bfloat16 else _TYPES.get(element_bytes, f"elements of {element_bytes:g} bytes")


def doublings_of(name: str, value: float) -> float:
    """A feature's value in doublings."""
    return value if name.startswith("log2_") else math.copysign(math.log2(1 + abs(value)), value)


def _size(name: str, doublings: float) -> str:
    value = 2**doublings if name.startswith("log2_") else 2 ** abs(doublings) - 1
    return f"{value:.3g}" if value < 1e4 else f"{value:.2e}"


class _Told(NamedTuple):
    """By which features varieties are told apart, and how one is called: its form, and after a comma its settings."""

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
    # Of what is read in part, such as a table or an image made smaller, the bytes count all.
    times = 2 ** (row["log2_bytes"] - row["log2_elements"]) / row["element_bytes"]
    more = ", broadcast" if row["broadcast"] else ""
    return f"{tensors} tensors{more}" + (", read in part" if times > _IN_PART * (tensors + 1) else "")


def _batch_norm(row: Mapping[str, Any]) -> str:
    """Rows of features are as many as there are points or words, images come a few at a time."""
    return ("of images" if row["log2_plane"] else "of rows") + ("" if row["affine"] else ", not affine")


_WINDOW = ("kernel_height", "kernel_width", "stride_height", "stride_width")
_SETTINGS = ("dilation_height", "dilation_width", "depthwise", "log2_groups", "padding_height", "padding_width", "bias")
_VARIETIES: Mapping[FeatureFamily, _Told] = {
    "conv2d": _Told((*_WINDOW, *_SETTINGS, "epilogue"), _convolution),
    "matmul": _Told(
        ("two_activations", "bias"), lambda row: "two activations" if row["two_activations"] else "activation by weight"
    ),
    "pool2d": _Told((*_WINDOW, "padding_height", "padding_width"), _pool),
    "conv_nd": _Told(
        ("depthwise", "log2_groups", "taps", "window_last", "stride", "stride_last", "dilation_last", "bias"),
        _of_any_dimensions,
    ),
    "attention": _Told(("mask", "causal"), lambda row: "masked" if row["mask"] else "causal" if row["causal"] else "of all"),
    "mean": _Told(
        ("reduced_dims", "inner_reduced"),
        lambda row: f"over {int(row['reduced_dims'])} dimensions" + ("" if row["inner_reduced"] else ", not the last"),
    ),
    "cat": _Told(("dim",), lambda row: f"along dimension {int(row['dim'])}"),
    "pointwise": _Told(
        ("tensors", "broadcast"),
        _pointwise,
    ),
    "batch_norm": _Told(("affine",), _batch_norm),
}


def variety_of(kind: str, names: Sequence[str], row: Sequence[float]) -> str:
    """The variety of a kernel with these features."""
    told = _VARIETIES.get(family_of(kind))
    return told.called(dict(zip(names, row, strict=False))) if told else ""
