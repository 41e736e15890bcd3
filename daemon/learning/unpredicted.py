# SPDX-License-Identifier: Apache-2.0
"""Leases for programs that nobody predicted: they begin at the highest clocks, and are got to know from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..leases import Need
from ..planner import Limits
from ..planning.wishes import Wish
from ..targets import check_confidence, check_rate
from .correcting import has, pinned
from .replanned import best_need

if TYPE_CHECKING:
    from ...kernels.correction.observation import Observation


def highest(wish: Wish, limits: Limits) -> Need:
    """What a lease needs before any of its frames was seen: the highest clocks that the limits leave.

    Raises:
        UsageError: they leave none, or what is asked for makes no sense.
    """
    check_rate(wish.fps)
    check_confidence(wish.confidence)
    grid = wish.surface.grid
    cpu, gpu, emc = (int(places[-1]) for places in np.nonzero(limits.permits(grid)))
    return wish.at(grid.configuration((cpu, gpu, emc)), limits, partial(highest, wish))


def next_need(wish: Wish, seen: Sequence[Observation], limits: Limits) -> tuple[Need, Wish, str]:
    """What it needs next by what was observed, what is known then, and why that is tried; empty where nothing is left.

    Args:
        wish: with the flat surface.

    Raises:
        UsageError: the limits leave nothing.
    """
    from ..planning.exploring import next_configuration  # a daemon starts without

    known = [one for one in seen if has(wish.surface, one.configuration)]
    step = next_configuration(wish.surface, wish.target, known, fps=wish.fps, confidence=wish.confidence, limits=limits)
    if step.corrected is None:
        return highest(wish, limits), wish, step.reason
    learned = replace(wish, surface=pinned(step.corrected.surface, known))
    if not step.exploring:
        need = best_need(learned, limits)
        return need, learned, need.unmet
    return learned.at(step.configuration, limits, lambda others: next_need(wish, seen, others)[0]), learned, step.reason
