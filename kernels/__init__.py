# SPDX-License-Identifier: Apache-2.0
"""Decomposition of networks into kernels, and the cost of each kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .trees.ensemble import TreeEnsemble as TreeEnsemble

__all__ = ["TreeEnsemble"]


def __getattr__(name: str) -> Any:
    if name == "TreeEnsemble":  # loaded on request: socket clients import this module without NumPy
        from .trees.ensemble import TreeEnsemble

        return TreeEnsemble
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
