# SPDX-License-Identifier: Apache-2.0
"""Reproducible pseudo-random unevenness over shapes, individuals and clocks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....kernels.network import KernelInvocation
from .chip import Array

Seeds = NDArray[np.uint64]
_HALF_OCTAVES = 2.0


def seeds(calls: Sequence[KernelInvocation]) -> tuple[Seeds, Seeds]:
    """Seeds of each call's exact shape, and of its neighbourhood."""
    pairs = [_seeds(call.signature) for call in calls]
    return np.array([one for one, _ in pairs], np.uint64), np.array([other for _, other in pairs], np.uint64)


@lru_cache(maxsize=1 << 16)
def _seeds(signature: tuple[Any, ...]) -> tuple[int, int]:
    return _number(repr(signature)), _number(",".join(map(str, _coarse(signature))))


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _coarse(value: Any) -> Iterator[Any]:
    """Content of a signature, with sizes to the half octave."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _coarse(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield round(_HALF_OCTAVES * math.log2(value)) if value > 0 else value
    else:
        yield value


def mixed(seed: Seeds, *others: NDArray[Any] | float) -> Seeds:
    """Combined seed: SplitMix64's finaliser after each part."""
    value = seed
    with np.errstate(over="ignore"):
        for other in others:
            value = value ^ (np.asarray(other).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x7F4A7C15))
            value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            value = value ^ (value >> np.uint64(31))
    return value


def uniform(seed: Seeds) -> Array:
    return np.asarray((seed >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def spread(seed: Seeds) -> Array:
    """Mean 0, standard deviation 1: the sum of four uniform numbers."""
    parts = [uniform(mixed(seed, part)) for part in range(1, 5)]
    return np.asarray((np.sum(parts, axis=0) - 2.0) * math.sqrt(3.0))
