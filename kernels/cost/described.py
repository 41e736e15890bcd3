# SPDX-License-Identifier: Apache-2.0
"""A kernel invocation taken apart for its features, and the features that all kinds share.

The amounts of work (FLOPs, bytes, their ratio) are what a roofline bound is made of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from ..network import ParamValue, Shape, element_bytes

_MAX_ALIGNMENT = 32

Row: TypeAlias = list[float]


class Described:
    """An invocation taken apart for the functions below."""

    def __init__(
        self, inputs: tuple[Shape, ...], output: Shape, dtype: str, params: Mapping[str, ParamValue], flops: int, moved: int
    ) -> None:
        self.inputs, self.output, self.dtype, self.params = inputs, output, dtype, params
        self.flops, self.moved, self.element = flops, moved, element_bytes(dtype)

    def integer(self, name: str) -> int:
        value = self.params[name]
        if not isinstance(value, int):
            raise TypeError(f"{name} is not an integer")
        return int(value)

    def pair(self, name: str, default: tuple[int, int] | None = None) -> tuple[int, int]:
        """A parameter of one or two integers, as (height, width)."""
        value = self.params.get(name, default) if default is not None else self.params[name]
        if isinstance(value, int):
            return value, value
        if not isinstance(value, tuple) or len(value) not in (1, 2):
            raise TypeError(f"{name} is not a pair of integers")
        return value[0], value[-1]

    def steps(self, name: str, dimensions: int) -> tuple[int, ...]:
        """A parameter of an integer for each dimension, or of one for all."""
        value = self.params[name]
        steps = value if isinstance(value, tuple) else (self.integer(name),)
        return steps if len(steps) == dimensions else steps[:1] * dimensions

    def image(self, shape: Shape) -> tuple[int, int, int, int]:
        """A batch of images as (batch, channels, height, width); the batch may be missing."""
        if len(shape) not in (3, 4):
            raise ValueError(f"{shape} is not a batch of images")
        batch, channels, height, width = (1, *shape)[-4:]
        return batch, channels, height, width


WORK = ("log2_flops", "log2_bytes", "log2_intensity", "element_bytes", "bfloat16")


def work(call: Described) -> Row:
    return [log2(call.flops), log2(call.moved), log2(call.flops) - log2(call.moved), call.element, call.dtype == "bfloat16"]


def log2(value: float) -> float:
    return math.log2(max(value, 1))


def alignment(value: int) -> int:
    """The largest power of two, up to 32, that divides ``value``: what vector loads and tensor tiles can make use of."""
    return math.gcd(value, _MAX_ALIGNMENT) if value else _MAX_ALIGNMENT
