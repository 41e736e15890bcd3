# SPDX-License-Identifier: Apache-2.0
"""Shape rules of ATen's operators by family; importing a module registers its rules."""

from . import functions, pointwise, reduction
from .host import arithmetic, moving, prim, scalars
from .layers import (
    attention,
    convolution,
    decomposed,
    einsum,
    fourier,
    linear_algebra,
    matrix,
    normalization,
    pooling,
    quantized,
    recurrent,
)
from .memory import creation, indexing, rearranging, views
from .registry import known_operators, operator, rule_of

__all__ = [
    "arithmetic", "attention", "convolution", "creation", "decomposed", "einsum", "fourier", "functions", "indexing",
    "known_operators", "linear_algebra", "matrix", "moving", "normalization", "operator", "pointwise", "pooling", "prim",
    "quantized", "rearranging", "recurrent", "reduction", "rule_of", "scalars", "views",
]  # fmt: skip
