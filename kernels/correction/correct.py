# SPDX-License-Identifier: Apache-2.0
"""The correction of a surface by what was observed."""

from __future__ import annotations

from collections.abc import Sequence

from ..surface import Surface
from .observation import Corrected, Observation


def correct(surface: Surface, observations: Sequence[Observation]) -> Corrected:
    """Correct a surface.

    Args:
        surface: as it was predicted, at the temperature that is to be planned for; always the same one, with all observations.
        observations: what was observed, in any order.

    Raises:
        CostModelError: there is no observation.
        GridError: one is of a configuration that the surface has not.
    """
    raise NotImplementedError
