# SPDX-License-Identifier: Apache-2.0
"""Random kernel invocations around those of given networks: their sizes, batches and element types varied.

MIRAGE (SEC '21, section 4.2) draws every size from the whole range seen; what networks are made of lies on few of the
combinations. Here each kernel begins as one of the networks' own. Most differ from it by less than a factor of two in each
size, some by up to eight, so that what lies between networks and beyond them is measured as well.

Most convolutions of networks are of 1x1 windows, most of their time goes into others. So kernels are not drawn as often as
networks have a variety of them (:mod:`jetdvfs.kernels.cost.region`), but as the square root of the work that networks do in it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ...kernels.cost.features import feature_rows
from ...kernels.cost.region import varieties_of
from ...kernels.kinds import flops, kind_of, served_by
from ...kernels.network import DTYPE_BYTES, KernelInvocation, Network, ParamValue, Shape
from ...kernels.operators.layers.pooling import pooled
from ..errors import ProfilesError

MOST_FLOPS, MOST_ELEMENTS = 60e9, 64e6
"""What no campaign could wait for, or no board has the memory for, is not drawn."""

Params = dict[str, ParamValue]

_NEAR, _FAR = 1.0, 3.0  # doublings, up and down, of sizes that are varied
_FAR_SHARE = 0.25
_KEPT = 0.3  # of the sizes of a kernel: as the network has them
_ALIGNED = 0.6  # of the sizes that are varied: a multiple of eight
_MULTIPLE = 8
_SMALL = 4  # sizes up to this are a matter of form
_MOST_BATCH_DOUBLINGS = 6
_FLOATS = ("float32", "float16", "bfloat16")
_TYPES = (0.5, 0.3, 0.2)
_INTEGER_SHARE = 0.15
_INTEGER_KINDS = ("conv2d", "matmul", "add", "relu")
_ATTEMPTS = 100
_CANDIDATES = 4  # drawn for each random kernel that is measured
_OWN_SHARE = 3


@dataclass(frozen=True)
class Draw:
    """How kernels are varied, in parts of one.

    Attributes:
        batch_alone: as a network has them, but for a larger batch and the element type.
        one_at_a_time: of the others, those of a batch of one.
        powers: of the larger batches, a power of two, as people take them.
        by_intensity: of all, those spread over operations per byte as well.
        dtype: the element type of all of them; an empty string mixes types.
    """

    batch_alone: float = 0.0
    one_at_a_time: float = 0.5
    powers: float = 0.0
    by_intensity: float = 0.0
    dtype: str = ""


FEW, MANY = Draw(), Draw(batch_alone=0.25, one_at_a_time=2 / 3, powers=0.75, by_intensity=0.25)
"""For campaigns of some thousand kernels, and of tens of thousands: few are of more use near those of networks."""


class Variations:
    """Draws kernel invocations around those of some networks.

    Args:
        networks: whose kernels the draws begin with.
        seed: the same seed draws the same invocations.
        draw: how they are varied.
        without: networks none of whose kernels is made by varying another; what they have in common with ``networks`` stays.
    """

    def __init__(self, networks: Sequence[Network], seed: int = 0, draw: Draw = FEW, without: Sequence[Network] = ()) -> None:
        self._draw = draw
        self._without = {launch.signature for network in without for launch in network.launches}
        self._random = np.random.default_rng([0x7A4, seed])
        unique = {launch.signature: launch for network in networks for launch in network.launches}
        self._seen: dict[str, list[KernelInvocation]] = {}
        for launch in unique.values():
            self._seen.setdefault(launch.kind, []).append(launch)
        self._work = _work_of(networks)

    def own(self, model: str) -> list[KernelInvocation]:
        """The networks' own kernels that a model is of, or that it serves and that have no other of their own."""
        kinds = {model, *(kind for kind in served_by(model) if not kind_of(kind).profiled)}
        return [call for kind in sorted(kinds) for call in self._seen.get(kind, ())]

    def draw(self, model: str, count: int) -> list[KernelInvocation]:
        """Draw invocations of a model's kinds.

        Raises:
            ProfilesError: the networks have no such kernel.
        """
        return [call for seen, share in self._shared(model, count) for call in self._around(seen, share)]

    def some(
        self, model: str, count: int, wanted: Callable[[KernelInvocation], bool] = lambda call: True
    ) -> list[KernelInvocation]:
        """Of the kernels that networks have, as many as make up a third; the others around them, spread over sizes.

        Args:
            wanted: which kernels are taken.
        """
        own = [call for call in self.own(model) if wanted(call)]
        chosen = np.random.default_rng([count, len(own)]).permutation(len(own))[: count // _OWN_SHARE]
        some = [own[index] for index in chosen]
        for seen, share in self._shared(model, count - len(chosen)):
            candidates = [call for call in self._around(seen, _CANDIDATES * share) if wanted(call)]
            some += spread_over_sizes(candidates, share, self._draw.by_intensity)
        return some

    def _shared(self, model: str, count: int) -> list[tuple[list[KernelInvocation], int]]:
        """The networks' kernels by variety, and how many of so many are drawn around those of each."""
        seen = self.own(model)
        if not seen:
            raise ProfilesError(f"no kernel of kind {model!r} in the networks; valid: {', '.join(sorted(self._seen))}")
        varieties: dict[tuple[str, str], list[KernelInvocation]] = {}
        for call, variety in zip(seen, varieties_of(model, feature_rows(model, seen)), strict=True):
            varieties.setdefault((call.kind, variety), []).append(call)
        often = np.sqrt([sum(self._work[call.signature] for call in own) for own in varieties.values()])
        ends = np.rint(count * np.cumsum(often) / often.sum()).astype(int).tolist()
        return [(own, end - start) for own, start, end in zip(varieties.values(), [0, *ends], ends, strict=False)]

    def _around(self, seen: Sequence[KernelInvocation], count: int) -> list[KernelInvocation]:
        return [self._bounded(seen[index]) for index in self._random.integers(0, len(seen), count)]

    def _bounded(self, like: KernelInvocation) -> KernelInvocation:
        for _ in range(_ATTEMPTS):
            call = self._varied(like)
            if call is None or call.signature in self._without:
                continue
            if call.flops <= MOST_FLOPS and max(map(prod, (*call.inputs, call.output))) <= MOST_ELEMENTS:
                return call
        return like

    def _varied(self, like: KernelInvocation) -> KernelInvocation | None:
        change = _MAKERS.get(like.kind, _renamed)
        if self._draw.batch_alone and self._random.random() < self._draw.batch_alone:
            call = change(like, Sizes(self._random, 0.0), self._larger_batch())
        else:
            call = change(like, self._sizes(), self._batch())
        return None if call is None else _typed(call, self._type(like))

    def _sizes(self) -> Sizes:
        return Sizes(self._random, _FAR if self._random.random() < _FAR_SHARE else _NEAR)

    def _batch(self) -> int:
        return 1 if self._random.random() < self._draw.one_at_a_time else self._larger_batch()

    def _larger_batch(self) -> int:
        if self._draw.powers and self._random.random() < self._draw.powers:
            return int(2 ** self._random.integers(1, _MOST_BATCH_DOUBLINGS + 1))
        return max(int(2 ** self._random.uniform(0, _MOST_BATCH_DOUBLINGS)), 1)

    def _type(self, like: KernelInvocation) -> str:
        if like.dtype not in _FLOATS:
            return like.dtype
        if self._draw.dtype:
            return self._draw.dtype
        if like.kind in _INTEGER_KINDS and self._random.random() < _INTEGER_SHARE:
            return "int8"
        return str(self._random.choice(_FLOATS, p=_TYPES))


def _work_of(networks: Sequence[Network]) -> Mapping[Any, float]:
    """What part of a network's operations and bytes each kernel is, by signature; the mean of both, added up over networks."""
    work: defaultdict[Any, float] = defaultdict(float)
    for network in networks:
        operations = max(sum(launch.flops for launch in network.launches), 1)
        moved = max(sum(launch.bytes for launch in network.launches), 1)
        for launch in network.launches:
            work[launch.signature] += (launch.flops / operations + launch.bytes / moved) / 2
    return work


def spread_over_sizes(candidates: Sequence[KernelInvocation], count: int, by_intensity: float = 0.0) -> list[KernelInvocation]:
    """Choose kernels so that every octave of bytes moved is as well represented as the candidates allow, and, with a part of
    them, every octave of operations per byte within it.

    Drawing each dimension evenly makes nearly all kernels large, while networks are made of small and middling ones as well;
    and nearly all of them broad, while networks begin and end with kernels of few channels.
    """
    chosen = _in_turns(candidates, lambda kernel: (_octave(kernel.bytes),), count - round(by_intensity * count))
    taken = set(map(id, chosen))
    others = [kernel for kernel in candidates if id(kernel) not in taken]
    return chosen + _in_turns(
        others, lambda one: (_octave(one.bytes), _octave(one.flops // max(one.bytes, 1))), count - len(chosen)
    )


def _in_turns(
    candidates: Sequence[KernelInvocation], octaves: Callable[[KernelInvocation], tuple[int, ...]], count: int
) -> list[KernelInvocation]:
    """So many of the candidates: one of each octave in turn."""
    alike: dict[tuple[int, ...], list[KernelInvocation]] = {}
    for kernel in candidates:
        alike.setdefault(octaves(kernel), []).append(kernel)
    turns = sorted((turn, octave) for octave, kernels in alike.items() for turn in range(len(kernels)))
    return [alike[octave][turn] for turn, octave in turns[:count]]


def _octave(value: int) -> int:
    return max(value, 1).bit_length()


class Sizes:
    """How the sizes of one kernel are varied: equal ones alike.

    Args:
        spread: by how many doublings at most, up and down; 0 to leave them as they are.
    """

    def __init__(self, random: np.random.Generator, spread: float) -> None:
        self._random, self._spread = random, spread
        self._new: dict[int, int] = {}

    def __call__(self, size: int) -> int:
        """What becomes of a size."""
        if size <= _SMALL:
            return size
        if size not in self._new:
            self._new[size] = self.anew(size)
        return self._new[size]

    def anew(self, size: int) -> int:
        """What becomes of a size by itself, a small one too."""
        if not self._spread or self._random.random() < _KEPT:
            return size
        varied = size * 2 ** self._random.uniform(-self._spread, self._spread)
        if varied > _MULTIPLE and self._random.random() < _ALIGNED:
            return round(varied / _MULTIPLE) * _MULTIPLE
        return max(round(varied), 1)


def _typed(call: KernelInvocation, dtype: str) -> KernelInvocation:
    """The same in another element type."""
    if dtype == call.dtype:
        return call
    return replace(call, dtype=dtype, bytes=round(call.bytes * DTYPE_BYTES[dtype] / DTYPE_BYTES[call.dtype]))


def _again(
    like: KernelInvocation,
    inputs: Sequence[Shape],
    output: Shape,
    params: Mapping[str, ParamValue],
    parameters: int | None = None,
) -> KernelInvocation:
    """A kernel of other sizes.

    Args:
        parameters: elements of its weights; None: the bytes it moves go with the elements of its tensors.
    """
    tensors = sum(map(prod, inputs)) + prod(output)
    if parameters is None:
        moved = round(like.bytes * tensors / max(sum(map(prod, like.inputs)) + prod(like.output), 1))
    else:
        moved = DTYPE_BYTES[like.dtype] * (tensors + parameters)
    return KernelInvocation(
        like.kind, "", tuple(inputs), output, like.dtype, params, flops(like.kind, inputs, output, params), moved
    )


def _renamed(like: KernelInvocation, sizes: Sizes, batch: int) -> KernelInvocation:
    """Every size of its tensors and parameters replaced by another, the same by the same."""
    first = like.output[0] if like.output else 0

    def shape(old: Shape) -> Shape:
        new = tuple(map(sizes, old))
        whole = len(old) > 1 and len(old) == len(like.output) and old[0] == first
        return (batch * new[0], *new[1:]) if whole else new

    params = {
        name: shape(value) if name in ("normalized_shape", "weight") and isinstance(value, tuple) else value
        for name, value in like.params.items()
    }
    if like.kind == "group_norm":  # as many channels in a group as before
        groups, channels = int(like.params["groups"] or 1), shape(like.output)[1]  # type: ignore[arg-type]
        params["groups"] = math.gcd(groups, channels)
    return _again(like, tuple(map(shape, like.inputs)), shape(like.output), params)


def _matmul(like: KernelInvocation, sizes: Sizes, batch: int) -> KernelInvocation:
    m, n, k, count = (int(like.params[name] or 1) for name in ("m", "n", "k", "batch"))  # type: ignore[arg-type]
    bias, two = bool(like.params.get("bias")), len(like.inputs) > 1
    n, k = sizes.anew(n), sizes.anew(k)
    if two:
        m, count = sizes.anew(m), sizes.anew(count) * batch
    else:
        m = (m if m == 1 else sizes.anew(m)) * batch
    params: Params = {**like.params, "m": m, "n": n, "k": k, "batch": count}
    inputs: list[Shape] = [(count, m, k), (count, k, n)] if two else [(m, k)]
    output: Shape = (count, m, n) if two else (m, n)
    return _again(like, inputs, output, params, 0 if two else k * n + (n if bias else 0))


def _convolution(like: KernelInvocation, sizes: Sizes, batch: int) -> KernelInvocation | None:
    weight, groups = like.params["weight"], int(like.params["groups"] or 1)  # type: ignore[arg-type]
    assert isinstance(weight, tuple)
    transposed = "output_padding" in like.params
    channels, filters = like.inputs[0][1], like.output[1]
    depthwise = groups > 1 and groups == channels
    if depthwise:
        times = filters // channels
        groups = channels = sizes.anew(channels)
        filters = times * channels
    else:
        groups = groups if groups == 1 else sizes(groups)
        channels, filters = (max(round(sizes.anew(one) / groups), 1) * groups for one in (channels, filters))
    window = weight[2:]
    image = tuple(map(sizes, like.inputs[0][2:]))
    out = tuple(
        _outputs(size, *each, transposed=transposed)
        for size, *each in zip(
            image, window, *(_steps(like, name, len(window)) for name in ("stride", "padding", "dilation")), strict=True
        )
    )
    if min(out) < 1:
        return None
    shape = (channels, filters // groups, *window) if transposed else (filters, channels // groups, *window)
    params: Params = {**like.params, "weight": shape, "groups": groups}
    inputs: list[Shape] = [(batch * like.inputs[0][0], channels, *image)]
    parameters = prod(shape) + (filters if like.params.get("bias") else 0)
    return _again(like, inputs, (inputs[0][0], filters, *out), params, parameters)


def _pool(like: KernelInvocation, sizes: Sizes, batch: int) -> KernelInvocation | None:
    channels, image = sizes.anew(like.inputs[0][1]), tuple(map(sizes, like.inputs[0][2:]))
    if "output_size" in like.params:
        out = tuple(min(sizes(size), side) for size, side in zip(like.output[2:], image, strict=True))
        params: Params = {**like.params, "output_size": out}
    else:
        params = dict(like.params)
        names = ("kernel_size", "stride", "padding", "dilation")
        steps = zip(image, *(_steps(like, name, len(image)) for name in names), strict=True)
        ceil_mode = bool(like.params.get("ceil_mode"))
        out = tuple(pooled(size, window, step, pad, gap, ceil_mode) for size, window, step, pad, gap in steps)
    if min(out) < 1:
        return None
    first = batch * like.inputs[0][0]
    return _again(like, [(first, channels, *image)], (first, channels, *out), params, 0)


def _cat(like: KernelInvocation, sizes: Sizes, batch: int) -> KernelInvocation | None:
    dim = int(like.params["dim"] or 0) % max(len(like.output), 1)  # type: ignore[arg-type]
    rest = [size if index == dim else sizes(size) for index, size in enumerate(like.output)]
    if dim and rest:
        rest[0] *= batch
    inputs = [
        (*rest[:dim], sizes.anew(shape[dim]), *rest[dim + 1 :]) for shape in like.inputs if len(shape) == len(like.output)
    ]
    if not inputs:
        return None
    output = (*rest[:dim], sum(shape[dim] for shape in inputs), *rest[dim + 1 :])
    return _again(like, inputs, output, like.params, 0)


def _steps(call: KernelInvocation, name: str, dimensions: int) -> Shape:
    value = call.params.get(name, 1)
    if isinstance(value, tuple):
        return value * dimensions if len(value) == 1 else value
    return (int(value or 0),) * dimensions


def _outputs(size: int, window: int, stride: int, padding: int, dilation: int, *, transposed: bool) -> int:
    reach = dilation * (window - 1)
    return (size - 1) * stride - 2 * padding + reach + 1 if transposed else (size + 2 * padding - reach - 1) // stride + 1


_MAKERS: Mapping[str, Callable[[KernelInvocation, Sizes, int], KernelInvocation | None]] = {
    "matmul": _matmul,
    "cat": _cat,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _convolution),
    **dict.fromkeys(("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"), _pool),
}
