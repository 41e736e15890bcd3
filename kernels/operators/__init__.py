# SPDX-License-Identifier: Apache-2.0
"""Shape rules of ATen's operators by family, and which of them launch a kernel."""

from . import convolution, creation, indexing, matrix, normalization, pointwise, pooling, prim, reduction, scalars, views
from .registry import known_operators, operator, rule_of

__all__ = ["known_operators", "operator", "rule_of"]

_FAMILIES = (convolution, creation, indexing, matrix, normalization, pointwise, pooling, prim, reduction, scalars, views)
