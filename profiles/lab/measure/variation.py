# SPDX-License-Identifier: Apache-2.0
"""Random kernel invocations around those of given networks, with varied sizes, batches and element types.

MIRAGE (SEC '21, section 4.2) draws from the whole range, of which networks use few combinations. Here most sizes vary by less
than a factor of two. Draws per variety (:mod:`jetdvfs.kernels.cost.region`) follow the square root of its work, since most
convolutions have 1x1 windows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct

from ....kernels.cost.features import feature_rows
from ....kernels.kinds import fused_of, kind_of, served_by
from ....kernels.network import KernelInvocation, Network
from ...errors import ProfilesError
from .size_variation import MAKERS, WINDOWS, SizeVariation, UsualSizes, fused, other_window, renamed, typed
from .varieties import varieties_of

MOST_FLOPS, MOST_ELEMENTS = 60e9, 64e6
"""Limits of a campaign's time and a board's memory."""

_NEAR, _FAR = 1.0, 3.0  # doublings, up and down, of sizes that are varied
_FAR_SHARE = 0.25
_MOST_BATCH_DOUBLINGS = 6
_MORE_DOUBLINGS = 2  # of kernels that mostly move data, which show large batches at little cost
_PRODUCTS = ("matmul", "attention", "conv")
_FLOATS = ("float32", "float16", "bfloat16")
_UP_TO = (0.5, 0.8)  # of a random number, for each type but the last
_INTEGER_SHARE = 0.15
_INTEGER_KINDS = ("conv2d", "matmul", "add", "relu")
_ATTEMPTS = 100
_CANDIDATES = 4  # drawn for each random kernel that is measured
_OWN_SHARE = 3


class VariationShares(Struct, frozen=True):
    """Shares of the variations, 0 to 1.

    Attributes:
        batch_alone: only a larger batch and the element type vary.
        one_at_a_time: batch one, of the remaining variations.
        powers: powers of two, of the larger batches.
        by_intensity: spread over operations per byte as well.
        usual: common sizes, of products.
        dtype: element type; empty mixes types.
    """

    batch_alone: float = 0.0
    one_at_a_time: float = 0.5
    powers: float = 0.0
    by_intensity: float = 0.0
    other_windows: float = 0.0
    fused: float = 0.0
    usual: float = 0.0
    dtype: str = ""


FEW = VariationShares()
MANY = VariationShares(
    batch_alone=0.25, one_at_a_time=2 / 3, powers=0.75, by_intensity=0.25, other_windows=0.3, fused=0.06, usual=0.35
)
"""Shares for campaigns of thousands of kernels; smaller ones stay near the networks."""


class Variations:
    """Draws kernel invocations around those of networks; kernels of ``without`` alone are not varied."""

    def __init__(
        self, networks: Sequence[Network], seed: int = 0, draw: VariationShares = FEW, without: Sequence[Network] = ()
    ) -> None:
        self._draw = draw
        self._without = {launch.signature for network in without for launch in network.launches}
        self._random = np.random.default_rng([0x7A4, seed])
        unique = {launch.signature: launch for network in networks for launch in network.launches}
        self._seen: dict[str, list[KernelInvocation]] = {}
        for launch in unique.values():
            self._seen.setdefault(launch.kind, []).append(launch)
        self._fused = {kind: fused_of(kind) for kind in self._seen}
        self._work = _work_of(networks)

    def own(self, model: str) -> list[KernelInvocation]:
        """Networks' own kernels of a model, including served kinds without a model."""
        kinds = {model, *(kind for kind in served_by(model) if not kind_of(kind).profiled)}
        return [call for kind in sorted(kinds) for call in self._seen.get(kind, ())]

    def draw(self, model: str, count: int) -> list[KernelInvocation]:
        """Draw invocations of a model's kinds. Raises ProfilesError if the networks have none."""
        return [call for seen, share in self._shared(model, count) for call in self._around(seen, share)]

    def some(
        self, model: str, count: int, accepts: Callable[[KernelInvocation], bool] = lambda call: True
    ) -> list[KernelInvocation]:
        """Kernels around the networks', spread over sizes, up to a third their own."""
        own = [call for call in self.own(model) if accepts(call)]
        chosen = np.random.default_rng([count, len(own)]).permutation(len(own))[: count // _OWN_SHARE]
        some = [own[index] for index in chosen]
        for seen, share in self._shared(model, count - len(chosen)):
            candidates = [call for call in self._around(seen, _CANDIDATES * share) if accepts(call)]
            some += spread_over_sizes(candidates, share, self._draw.by_intensity)
        return some

    def _shared(self, model: str, count: int) -> list[tuple[list[KernelInvocation], int]]:
        seen = self.own(model)
        if not seen:
            raise ProfilesError(f"no kernel of kind {model!r} in the networks; valid: {', '.join(sorted(self._seen))}")
        varieties: dict[tuple[str, str], list[KernelInvocation]] = {}
        for call, variety in zip(seen, varieties_of(model, feature_rows(model, seen)), strict=True):
            varieties.setdefault((call.kind, variety), []).append(call)
        often = np.sqrt([sum(self._work[call.signature] for call in own) for own in varieties.values()])
        ends = np.rint(count * np.cumsum(often) / often.sum()).astype(int).tolist()
        return [(own, end - start) for own, start, end in zip(varieties.values(), [0, *ends], ends, strict=False)]

    def _around(self, launches: Sequence[KernelInvocation], count: int) -> list[KernelInvocation]:
        return [self._bounded(launches[index]) for index in self._random.integers(0, len(launches), count)]

    def _bounded(self, like: KernelInvocation) -> KernelInvocation:
        for _ in range(_ATTEMPTS):
            call = self._varied(like)
            if call is None or call.signature in self._without:
                continue
            if call.flops <= MOST_FLOPS and max(map(prod, (*call.inputs, call.output))) <= MOST_ELEMENTS:
                return call
        return like

    def _varied(self, like: KernelInvocation) -> KernelInvocation | None:
        change = MAKERS.get(like.kind, renamed)
        windows = WINDOWS.get(like.kind)
        if windows and self._draw.other_windows and self._random.random() < self._draw.other_windows:
            like = other_window(like, *windows[self._random.integers(len(windows))])
        if self._draw.batch_alone and self._random.random() < self._draw.batch_alone:
            call = change(like, SizeVariation(self._random, 0.0), self._larger_batch(like.kind))
        else:
            call = change(like, self._sizes(like.kind), self._batch(like.kind))
        if call is None:
            return None
        call = typed(call, self._type(like))
        made = self._fused[like.kind]
        if made and self._draw.fused and self._random.random() < self._draw.fused:
            call = fused(call, made[self._random.integers(len(made))])
        return call

    def _sizes(self, kind: str) -> SizeVariation:
        spread = _FAR if self._random.random() < _FAR_SHARE else _NEAR
        usual = kind == "matmul" and self._draw.usual and self._random.random() < self._draw.usual
        return UsualSizes(self._random, spread) if usual else SizeVariation(self._random, spread)

    def _batch(self, kind: str) -> int:
        return 1 if self._random.random() < self._draw.one_at_a_time else self._larger_batch(kind)

    def _larger_batch(self, kind: str) -> int:
        most = _MOST_BATCH_DOUBLINGS
        if self._draw.powers and self._random.random() < self._draw.powers:
            most += 0 if kind.startswith(_PRODUCTS) else _MORE_DOUBLINGS
            return int(2 ** self._random.integers(1, most + 1))
        return max(int(2 ** self._random.uniform(0, most)), 1)

    def _type(self, like: KernelInvocation) -> str:
        if like.dtype not in _FLOATS:
            return like.dtype
        if self._draw.dtype:
            return self._draw.dtype
        if like.kind in _INTEGER_KINDS and self._random.random() < _INTEGER_SHARE:
            return "int8"
        return _FLOATS[bisect_right(_UP_TO, self._random.random())]


def _work_of(networks: Sequence[Network]) -> Mapping[Any, float]:
    work: defaultdict[Any, float] = defaultdict(float)
    for network in networks:
        operations = max(sum(launch.flops for launch in network.launches), 1)
        moved = max(sum(launch.bytes for launch in network.launches), 1)
        for launch in network.launches:
            work[launch.signature] += (launch.flops / operations + launch.bytes / moved) / 2
    return work


def spread_over_sizes(candidates: Sequence[KernelInvocation], count: int, by_intensity: float = 0.0) -> list[KernelInvocation]:
    """Choose kernels evenly over octaves of bytes moved and, for a share, of operations per byte.

    Even draws of dimensions give few small and narrow kernels.
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
    alike: dict[tuple[int, ...], list[KernelInvocation]] = {}
    for kernel in candidates:
        alike.setdefault(octaves(kernel), []).append(kernel)
    turns = sorted((turn, octave) for octave, kernels in alike.items() for turn in range(len(kernels)))
    return [alike[octave][turn] for turn, octave in turns[:count]]


def _octave(value: int) -> int:
    return max(value, 1).bit_length()
