# SPDX-License-Identifier: Apache-2.0
"""What frames say of a network that had to wait for those of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...kernels.errors import GridError
from ...kernels.surface import Surface
from .interference import Work

if TYPE_CHECKING:
    from ...kernels.correction.observation import Observation


def without_waiting(
    in_company: Iterable[Observation], alone: Sequence[Observation], own: Surface, others: Sequence[Work]
) -> list[Observation]:
    """What was observed in company, as of frames that wait for nobody.

    How long each frame waited, nobody tells. Up to what it may take with waiting, latency says nothing of the network; what is
    beyond says that frames take longer than predicted, and counts as the network's own: whosever it is, what all come to
    together is then right. Where it was observed alone, that counts.

    Args:
        own: as its frames are predicted by what was observed of them alone.
        others: those of the company, as they are predicted now.
    """
    seen = {one.configuration for one in alone}
    found = list(alone)
    for one in in_company:
        if one.configuration in seen or one.latency_ms is None:
            continue
        try:
            index = own.grid.index(one.configuration)
        except GridError:
            continue
        own_ms = one.latency_ms - sum(float(other.surface.latency_ms[index]) for other in others)
        if own_ms > float(own.latency_ms[index]):
            found.append(replace(one, latency_ms=own_ms, power_mw=None))
    return found
