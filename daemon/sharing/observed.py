# SPDX-License-Identifier: Apache-2.0
"""What frames say of a network that had to wait for those of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...kernels.errors import GridError
from .interference import Work, responses_ms

if TYPE_CHECKING:
    from ...kernels.correction.observation import Observation


_ROUNDS = 8


def without_waiting(
    in_company: Iterable[Observation],
    alone: Sequence[Observation],
    own: Work,
    others: Sequence[Work],
    *,
    all_its_own: bool = False,
) -> list[Observation]:
    """What was observed in company, as of frames that wait for nobody.

    How long each frame waited, nobody tells. Up to what it may take with waiting, latency says nothing of the network; what is
    beyond says that frames take longer than predicted: those of all, by the same factor. Where it was observed alone, that
    counts.

    Args:
        own: as its frames are predicted by what was observed of them alone.
        others: those of the company, as they are predicted now.
        all_its_own: whether all that is beyond is the network's own, as where its target is missed again by what the others'
            frames are known to take.
    """
    bound_ms = _bound_ms(own, others)
    seen = {one.configuration for one in alone}
    found = list(alone)
    for one in in_company:
        if one.configuration in seen or one.latency_ms is None:
            continue
        try:
            index = own.surface.grid.index(one.configuration)
        except GridError:
            continue
        times, over = 1.0, one.latency_ms / float(bound_ms[index])
        for _ in range(_ROUNDS if all_its_own else 1):
            times *= max(over, 1.0)
            if all_its_own and over > 1:
                over = one.latency_ms / float(_bound_ms(own, others, times)[index])
        if times > 1:
            found.append(replace(one, latency_ms=times * float(own.surface.latency_ms[index]), power_mw=None))
    return found


def _bound_ms(own: Work, others: Sequence[Work], times: float = 1.0) -> NDArray[np.float64]:
    """How long its frames take at most with waiting, over the grid, if they take so many times as long as predicted."""
    surface = replace(own.surface, latency_ms=times * own.surface.latency_ms) if times != 1.0 else own.surface
    return responses_ms([replace(own, surface=surface), *others], None)[0]
