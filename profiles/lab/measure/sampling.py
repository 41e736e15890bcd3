# SPDX-License-Identifier: Apache-2.0
"""Random kernel invocations in the ranges of given networks, after MIRAGE (SEC '21), section 4.2.

Limits are :data:`MOST_MACS` multiply-adds and :data:`MOST_ELEMENTS` elements per tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from ....kernels.grid import FrequencyConfiguration, FrequencyGrid
from ....kernels.kinds import FeatureFamily, kind_of
from ....kernels.network import KernelInvocation, Network, ParamValue, Shape
from ...errors import ProfilesError
from .sized_kernels import invocation

MOST_MACS = 12e9
MOST_ELEMENTS = 16e6
_MARGIN = 0.10
_OUTLIER = 2.0  # a gap by at least this factor, beyond the bulk, starts a range of its own
_MODERATE = 4096  # below this a gap is not an outlier's

Params = dict[str, ParamValue]


class Sampler:
    """Draws kernel invocations like those of ``networks``; ``seed`` fixes the draws."""

    def __init__(self, networks: Sequence[Network], seed: int = 0) -> None:
        self._random = np.random.default_rng([0x5A3, seed])
        self._seen: dict[str, list[KernelInvocation]] = {}
        unique = {launch.signature: launch for network in networks for launch in network.launches}
        for launch in unique.values():
            self._seen.setdefault(launch.kind, []).append(launch)

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(sorted(self._seen))

    def draw(self, kind: str, count: int, *, real_share: float = 0.0) -> list[KernelInvocation]:
        """Draw invocations of one kind, some of the networks' own with probability ``real_share``.

        Raises:
            ProfilesError: the networks have no such kernel.
            UnsupportedOperator: its kind is unknown or made by fusion.
        """
        seen = self._seen.get(kind)
        if not seen:
            raise ProfilesError(f"no kernel of kind {kind!r} in the networks; valid: {', '.join(self.kinds)}")
        real = self._random.random(count) < real_share
        picks = self._random.integers(0, len(seen), count)
        make = _MAKERS.get(kind_of(kind).features, _pointwise)
        source = _Ranges(seen, self._random)
        return [seen[pick] if own else _until_bounded(make, kind, source) for own, pick in zip(real, picks, strict=True)]


def random_configurations(grid: FrequencyGrid, count: int, random: np.random.Generator) -> list[FrequencyConfiguration]:
    configurations = list(grid)
    return [configurations[index] for index in random.integers(0, len(configurations), count)]


class _Ranges:
    def __init__(self, launches: Sequence[KernelInvocation], random: np.random.Generator) -> None:
        self.seen = launches
        self.random = random
        self._ranges: dict[object, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def size(self, name: str, value: Callable[[KernelInvocation], int], least: int = 1) -> int:
        """Size drawn from the ranges of ``value`` over known kernels."""
        if name not in self._ranges:
            self._ranges[name] = _ranges(sorted({value(call) for call in self.seen}), least)
        low, high = self._ranges[name]
        which = self.random.choice(len(low), p=(high - low + 1) / (high - low + 1).sum()) if len(low) > 1 else 0
        return int(self.random.integers(low[which], high[which], endpoint=True))

    @cached_property
    def of_images(self) -> _Ranges:
        return _Ranges([call for call in self.seen if len(call.output) == 4], self.random)

    def like(self) -> KernelInvocation:
        return self.seen[int(self.random.integers(len(self.seen)))]


def _ranges(values: Sequence[int], least: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    groups = [[values[0]]]
    for before, value in pairwise(values):
        if value > _MODERATE and value >= _OUTLIER * before:
            groups.append([])
        groups[-1].append(value)
    margin = [max(1, round(_MARGIN * (group[-1] - group[0])), round(0.02 * group[-1])) for group in groups]
    low = [max(least, group[0] - extra) for group, extra in zip(groups, margin, strict=True)]
    high = [group[-1] + extra for group, extra in zip(groups, margin, strict=True)]
    return np.array(low), np.array(high)


def _until_bounded(make: Callable[[str, _Ranges], KernelInvocation | None], kind: str, source: _Ranges) -> KernelInvocation:
    while True:
        call = make(kind, source)
        if call is not None and call.flops <= 2 * MOST_MACS and max(map(prod, (*call.inputs, call.output))) <= MOST_ELEMENTS:
            return call


def _pair(call: KernelInvocation, name: str) -> tuple[int, int]:
    value = call.params[name]
    if isinstance(value, tuple) and len(value) == 2:
        return (value[0], value[1])
    return (int(value), int(value)) if isinstance(value, int) else (1, 1)


def _outputs(size: int, kernel: int, stride: int, padding: int) -> int:
    return (size + 2 * padding - kernel) // stride + 1


def _image(source: _Ranges) -> tuple[int, int, int]:
    channels = source.size("channels", lambda call: call.inputs[0][1])
    side = source.size("side", lambda call: call.inputs[0][2])
    return channels, side, side


def _conv2d(kind: str, source: _Ranges) -> KernelInvocation | None:
    channels = source.size("channels", lambda call: call.inputs[0][1])
    height = width = source.size("side", lambda call: call.inputs[0][2])
    window, steps, edge = source.like(), source.like(), source.like()
    weight = window.params["weight"]
    assert isinstance(weight, tuple)
    kernel, stride, padding = weight[2:], _pair(steps, "stride"), _pair(edge, "padding")
    filters = source.size("filters", lambda call: call.output[1])
    depthwise = window.params["groups"] != 1
    if depthwise:
        filters = channels
    out = tuple(_outputs(*each) for each in zip((height, width), kernel, stride, padding, strict=True))
    if min(out) < 1:
        return None
    params: Params = {
        "weight": (filters, 1 if depthwise else channels, *kernel),
        "bias": bool(source.like().params["bias"]),
        "stride": stride,
        "padding": padding,
        "dilation": (1, 1),
        "groups": channels if depthwise else 1,
    }
    parameters = filters * (1 if depthwise else channels) * prod(kernel) + (filters if params["bias"] else 0)
    return invocation(kind, [(1, channels, height, width)], (1, filters, *out), params, parameters)


def _batch_norm(kind: str, source: _Ranges) -> KernelInvocation:
    shape = (1, *_image(source))
    return invocation(kind, [shape], shape, {"affine": True}, 4 * shape[1])


def _matmul(kind: str, source: _Ranges) -> KernelInvocation:
    like = source.like()
    k = source.size("k", lambda call: int(call.params["k"]))  # type: ignore[arg-type]
    n = source.size("n", lambda call: int(call.params["n"]))  # type: ignore[arg-type]
    params: Params = {"m": 1, "k": k, "n": n, "batch": 1, "bias": like.params["bias"]}
    return invocation(kind, [(1, k)], (1, n), params, k * n + (n if like.params["bias"] else 0))


def _pointwise(kind: str, source: _Ranges) -> KernelInvocation:
    like = source.like()
    if len(like.output) == 4:
        shape: Shape = (1, *_image(source.of_images))
    else:
        shape = tuple(max(1, round(size * source.random.uniform(0.7, 1.4))) if size > 4 else size for size in like.output)
    return invocation(kind, [shape] * len(like.inputs), shape, dict(like.params))


def _pool(kind: str, source: _Ranges) -> KernelInvocation | None:
    channels, height, width = _image(source)
    like = source.like()
    kernel, stride, padding = _pair(like, "kernel_size"), _pair(like, "stride"), _pair(like, "padding")
    out = tuple(_outputs(*each) for each in zip((height, width), kernel, stride, padding, strict=True))
    if min(out) < 1:
        return None
    return invocation(kind, [(1, channels, height, width)], (1, channels, *out), dict(like.params))


def _adaptive_pool(kind: str, source: _Ranges) -> KernelInvocation:
    channels = source.size("channels", lambda call: call.inputs[0][1])
    side = source.size("side", lambda call: call.inputs[0][2])
    out = int(source.random.integers(1, side, endpoint=True))
    return invocation(kind, [(1, channels, side, side)], (1, channels, out, out), {"output_size": (out, out)})


def _mean(kind: str, source: _Ranges) -> KernelInvocation:
    channels, height, width = _image(source)
    like = source.like()
    out: Shape = (1, channels, 1, 1) if like.params.get("keepdim") else (1, channels)
    return invocation(kind, [(1, channels, height, width)], out, dict(like.params))


def _cat(kind: str, source: _Ranges) -> KernelInvocation:
    parts = source.size("parts", lambda call: len(call.inputs))
    side = source.size("side", lambda call: call.inputs[0][2])
    channels = [source.size("channels", lambda call: max(shape[1] for shape in call.inputs)) for _ in range(parts)]
    total = source.size("total", lambda call: call.output[1])
    scale = min(1.0, total / sum(channels))  # many tensors are thin ones
    channels = [max(1, round(count * scale)) for count in channels]
    if parts > 2 and source.random.random() < 0.5:  # a tensor grown by earlier concatenations, and thin ones joined to it
        grown = source.random.uniform(0.2, 0.9)
        channels = [max(1, round(grown * total)), *(max(1, round(count * (1 - grown))) for count in channels[1:])]
    inputs = [(1, count, side, side) for count in channels]
    return invocation(kind, inputs, (1, sum(channels), side, side), {"dim": 1})


_MAKERS: dict[FeatureFamily, Callable[[str, _Ranges], KernelInvocation | None]] = {
    "conv2d": _conv2d,
    "batch_norm": _batch_norm,
    "matmul": _matmul,
    "pool2d": _pool,
    "adaptive_pool2d": _adaptive_pool,
    "mean": _mean,
    "cat": _cat,
}
