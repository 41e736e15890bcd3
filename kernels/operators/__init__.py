# SPDX-License-Identifier: Apache-2.0
"""Shape rules of ATen's operators by family, and which of them launch a kernel."""

from . import attention as attention
from . import convolution as convolution
from . import creation as creation
from . import decomposed as decomposed
from . import einsum as einsum
from . import fourier as fourier
from . import functions as functions
from . import indexing as indexing
from . import matrix as matrix
from . import normalization as normalization
from . import pointwise as pointwise
from . import pooling as pooling
from . import prim as prim
from . import rearranging as rearranging
from . import recurrent as recurrent
from . import reduction as reduction
from . import scalars as scalars
from . import special as special
from . import views as views
from .registry import known_operators, operator, rule_of

__all__ = ["known_operators", "operator", "rule_of"]
