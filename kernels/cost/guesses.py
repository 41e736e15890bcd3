# SPDX-License-Identifier: Apache-2.0
"""Guessed parts of a network's cost: kernels without a model, and kernels unlike the trained ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..network import KernelInvocation, Network
from ..surface import Guess, UnmodelledKind
from .board import BoardCost
from .features import feature_rows
from .region import ModelPair, of_new_kind, outside

# A kernel without a model is off its bound by a factor of two (one standard deviation).
UNMODELLED_SIGMA = 0.7
NO_MODEL = "no model"
# A fused launch's stand-in is off by a third if engines were not measured: networks on simulated boards were predicted from 4%
# too fast to 112% too slow.
FUSED_SIGMA = ModelPair(0.35, 0.15)
FUSED = "fused by an engine: engines were not measured"


class Trust(NamedTuple):
    """Reliability of a kernel's figures.

    Attributes:
        sigma: standard deviations of log(measured / predicted), of its time and power, if similar kernels were measured.
        more: their increase in quadrature if none were. In that part guessed kernels err together.
        guessed: why they are a guess.
    """

    sigma: ModelPair
    more: ModelPair = ModelPair(0.0, 0.0)
    guessed: str = ""


def trust_in(kernel: KernelInvocation, cost: BoardCost) -> Trust:
    """Reliability of a kernel's figures; raises CostModelError."""
    model = cost.model_for(kernel)
    if model is None:
        other = cost.kind_model(kernel)
        why = NO_MODEL if other is None else f"{kernel.dtype}: measured {', '.join(other.dtypes)}"
        return Trust(ModelPair(UNMODELLED_SIGMA, UNMODELLED_SIGMA), guessed=why)
    own = ModelPair(model.time_sigma, model.power_sigma)
    if cost.in_engine and cost.engines is None and not cost.observed and cost.uses_stand_in(kernel):
        return Trust(own, FUSED_SIGMA, FUSED)
    if model.region is None:
        return Trust(own)
    row = feature_rows(model.kind, [cost.modelled_as(kernel)])[0].tolist()
    found = [
        each for each in (of_new_kind(kernel.kind, kernel.dtype, model.region), outside(model.kind, row, model.region)) if each
    ]
    if not found:
        return Trust(own)
    time, power = (max(each) for each in zip(*map(model.region.more_sigma, found), strict=True))
    return Trust(own, ModelPair(time, power), found[0].why)


def guessed_share(launches: NDArray[np.intp], gpu_ms: NDArray[np.float32], trust: Sequence[Trust]) -> NDArray[np.float64]:
    """Share of GPU time in guessed kernels, of the grid's shape, from k kernels' launches, times and trust."""
    guessed = np.array([bool(each.guessed) for each in trust])
    if not guessed.any():
        return np.zeros(gpu_ms.shape[1:])
    if guessed.all():
        return np.ones(gpu_ms.shape[1:])
    counts = launches.astype(np.float32)
    whole = np.einsum("k,kcge->cge", counts, gpu_ms)
    part = np.einsum("k,kcge->cge", counts[guessed], gpu_ms[guessed])
    share: NDArray[np.float64] = np.minimum(part / whole, 1).astype(np.float64)
    return share


def guesses(
    kernels: Sequence[KernelInvocation], launches: NDArray[np.intp], gpu_ms: NDArray[np.float32], trust: Sequence[Trust]
) -> tuple[Guess, ...]:
    top_ms = gpu_ms[:, -1, -1, -1] * launches
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for row, each in enumerate(trust):
        if each.guessed:
            key = (kernels[row].kind, each.guessed)
            count, ms = found.get(key, (0, 0.0))
            found[key] = (count + int(launches[row]), ms + float(top_ms[row]))
    whole_ms = float(top_ms.sum())
    return tuple(
        Guess(kind, why, count, min(ms / whole_ms, 1.0))
        for (kind, why), (count, ms) in sorted(found.items(), key=lambda item: -item[1][1])
    )


class GuessedKind(Struct, frozen=True):
    """Launches of one modelled kind, unlike all trained ones; ``why`` gives their properties and the range measured.

    The shares are of the network's FLOPs and bytes, 0 to 1.
    """

    kind: str
    why: str
    launches: int
    flops_share: float
    bytes_share: float


def guessed_kinds(network: Network, cost: BoardCost) -> tuple[GuessedKind, ...]:
    """Guessed launches of modelled kinds, by descending bytes; errors as for :func:`trust_in`."""
    launches = network.launches
    found: dict[tuple[str, str], list[KernelInvocation]] = {}
    for launch in launches:
        why = trust_in(launch, cost).guessed
        if why and cost.model_for(launch):
            found.setdefault((launch.kind, why), []).append(launch)
    whole = _work(launches)
    kinds = (GuessedKind(kind, why, len(own), *_shares(own, whole)) for (kind, why), own in found.items())
    return tuple(sorted(kinds, key=lambda each: -each.bytes_share))


def unmodelled_kinds(network: Network, model_for: Callable[[KernelInvocation], object]) -> tuple[UnmodelledKind, ...]:
    """Kinds for which ``model_for`` finds no model, most frequent first, with their share of the network's work."""
    launches = network.launches
    found: dict[str, list[KernelInvocation]] = {}
    for launch in launches:
        if not model_for(launch):
            found.setdefault(launch.kind, []).append(launch)
    whole = _work(launches)
    return tuple(
        UnmodelledKind(kind, len(own), *_shares(own, whole))
        for kind, own in sorted(found.items(), key=lambda item: -len(item[1]))
    )


def _work(launches: Sequence[KernelInvocation]) -> tuple[int, int]:
    return sum(launch.flops for launch in launches), sum(launch.bytes for launch in launches)


def _shares(own: Sequence[KernelInvocation], whole: tuple[int, int]) -> tuple[float, float]:
    flops, moved = _work(own)
    return flops / (whole[0] or 1), moved / (whole[1] or 1)
