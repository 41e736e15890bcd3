# SPDX-License-Identifier: Apache-2.0
"""By which of a library's ways a kernel goes, where issuing it costs the host otherwise than by another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from .network import ParamValue

WayRule: TypeAlias = Callable[[Mapping[str, ParamValue]], str]
"""The way of an invocation, from its parameters; empty: the common one."""


def way_of_a_convolution(params: Mapping[str, ParamValue]) -> str:
    """Depthwise ones do not go through the convolution library; those without a window are products there, while others may be
    several launches."""
    weight = params.get("weight")
    if not isinstance(weight, tuple):
        return ""
    if params.get("groups", 1) != 1 and weight[1:2] == (1,):
        return "depthwise"
    return "" if any(side != 1 for side in weight[2:]) else "pointwise"


def way_of_a_product(params: Mapping[str, ParamValue]) -> str:
    """A product of one row is one of a matrix by a vector, which is one launch however deep it is."""
    return "vector" if params.get("m") == 1 and params.get("batch", 1) == 1 else ""
