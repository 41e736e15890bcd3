# SPDX-License-Identifier: Apache-2.0
"""What a network is made of, and what each part of it costs.

``from jetdvfs.kernels import TreeEnsemble`` is the way in for other programs that sweep tree ensembles over a grid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .trees.ensemble import TreeEnsemble as TreeEnsemble

__all__ = ["TreeEnsemble"]


def __getattr__(name: str) -> Any:
    if name == "TreeEnsemble":  # loaded when it is asked for: clients of the socket come by here, and have no NumPy
        from .trees.ensemble import TreeEnsemble

        return TreeEnsemble
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
