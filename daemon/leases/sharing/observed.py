# SPDX-License-Identifier: Apache-2.0
"""What frames say of a network that had to wait for those of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ....kernels.errors import GridError
from ...planning.lease_plan import Work
from .interference import responses_at_ms

if TYPE_CHECKING:
    from ....kernels.correction.observation import Observation


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
    seen = {one.configuration for one in alone}
    found = list(alone)
    for one in in_company:
        if one.configuration in seen or one.latency_ms is None:
            continue
        try:
            index = own.surface.grid.index(one.configuration)
        except GridError:
            continue
        times, over = 1.0, one.latency_ms / _bound_ms(own, others, index)
        for _ in range(_ROUNDS if all_its_own else 1):
            times *= max(over, 1.0)
            if all_its_own and over > 1:
                over = one.latency_ms / _bound_ms(own, others, index, times)
        if times > 1:
            found.append(replace(one, latency_ms=times * float(own.surface.latency_ms[index]), power_mw=None))
    return found


def _bound_ms(own: Work, others: Sequence[Work], index: tuple[int, int, int], times: float = 1.0) -> float:
    """Longest time of its frames with waiting, at one configuration, if they take ``times`` as long as predicted."""
    surface = replace(own.surface, latency_ms=times * own.surface.latency_ms) if times != 1.0 else own.surface
    return float(responses_at_ms([replace(own, surface=surface), *others], [None], index)[0, 0])
