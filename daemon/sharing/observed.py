# SPDX-License-Identifier: Apache-2.0
"""What frames say of a network that had to wait for those of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...kernels.correction.observation import Observation
from ...kernels.errors import GridError
from .interference import Work, responses_ms


def without_waiting(
    in_company: Iterable[Observation], alone: Sequence[Observation], own: Work, others: Sequence[Work]
) -> list[Observation]:
    """What was observed in company, as of frames that wait for nobody.

    How long each frame waited, nobody tells. Up to what it may take with waiting, latency says nothing of the network; what is
    beyond says that frames take longer than predicted, and counts as the network's own. Where it was observed alone, that
    counts.

    Args:
        own: as its frames are predicted by what was observed of them alone.
        others: those of the company, as they are predicted now.
    """
    bound_ms = responses_ms([own, *others], None)[0]
    seen = {one.configuration for one in alone}
    found = list(alone)
    for one in in_company:
        if one.configuration in seen or one.latency_ms is None:
            continue
        try:
            index = own.surface.grid.index(one.configuration)
        except GridError:
            continue
        over = one.latency_ms / float(bound_ms[index])
        if over > 1:
            found.append(replace(one, latency_ms=over * float(own.surface.latency_ms[index]), power_mw=None))
    return found
