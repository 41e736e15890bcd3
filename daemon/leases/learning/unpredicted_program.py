# SPDX-License-Identifier: Apache-2.0
"""Leases for unpredicted programs, explored from the highest clocks.

The name is no proof of the program: the next one of that name also begins at the highest clocks, and recalls observations only
if its frames take the same time there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ....kernels.correction.pinning import pinned
from ....kernels.grid import FrequencyConfiguration
from ....kernels.units import AXES
from ....profiles.board import ModeSet
from ...planning.lease_plan import LeasePlan, PlanRequest
from ...planning.limits import Limits
from ...planning.targets import check_confidence, check_rate
from ..credible_range import has
from .replanning import BestPlanner
from .surface_corrector import corrected

if TYPE_CHECKING:
    from ....kernels.correction.observation import Observation

_SAME, _SIGMAS = 0.05, 2.0
"""Relative difference, plus standard deviations, up to which frames are of the same program."""


class UnpredictedProgram(Struct, frozen=True):
    """A program without predictions; ``before`` are observations of the last program of this name."""

    request: PlanRequest
    before: Sequence[Observation] = ()
    modes: ModeSet | None = None

    def plan(self, limits: Limits) -> LeasePlan:
        """Plan before any frame: the highest clocks within the limits, or UsageError.

        Within a power budget, clocks at which a program of its name drew no more, else those of NVIDIA's largest such power
        mode.
        """
        check_rate(self.request.fps)
        check_confidence(self.request.confidence)
        return self.request.at(self._highest(limits), limits, self)

    def next(self, observations: Sequence[Observation], limits: Limits) -> tuple[LeasePlan, PlanRequest, str]:
        """The next plan, the learned request, and the reason (empty if nothing is left to try); raises UsageError."""
        from ...planning.exploring import next_configuration  # a daemon starts without

        request = self.request
        known = [one for one in observations if has(request.surface, one.configuration)]
        step = next_configuration(
            request.surface, request.target, known, fps=request.fps, confidence=request.confidence, limits=limits
        )
        if step.corrected is None:
            return self.plan(limits), request, step.reason
        learned = replace(request, surface=pinned(step.corrected.surface, known))
        if not step.exploring:
            plan = BestPlanner(learned).plan(limits)
            return plan, learned, plan.unmet
        return learned.at(step.configuration, limits, ExploringPlanner(self, tuple(observations))), learned, step.reason

    def recalled(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        """Earlier observations if the present ones show the same program; else none."""
        if not self.before:
            return ()
        surface = corrected(self.request.surface, self.before)
        for one in observations:
            if one.latency_ms is not None and has(surface, one.configuration):
                place = surface.grid.index(one.configuration)
                apart = abs(np.log(one.latency_ms / surface.latency_ms[place]))
                if apart > _SAME + _SIGMAS * surface.latency_sigma[place]:
                    return ()
        return self.before

    def _highest(self, limits: Limits) -> FrequencyConfiguration:
        grid = self.request.surface.grid
        permitted = limits.permits(grid)
        if limits.power_mw is not None and any(one.power_mw is not None for one in self.before):
            known = corrected(self.request.surface, self.before)
            drawn_mw = self.request.plans.outlook(known, self.request.fps, None).power_mw
            affordable = permitted & limits.affords(drawn_mw)
            if affordable.any():
                return grid.at(np.where(affordable, known.latency_ms, np.inf).argmin())
        caps = None if limits.power_mw is None else _within(self.modes, limits.power_mw)
        chosen = []
        for axis, places in zip(AXES, np.nonzero(permitted), strict=True):
            levels = [grid.levels(axis)[place] for place in np.unique(places)]
            cap = None if caps is None else caps[axis]
            chosen.append(max((level for level in levels if cap is None or level <= cap), default=levels[0]))
        return FrequencyConfiguration(*chosen)


class ExploringPlanner(Struct, frozen=True):
    program: UnpredictedProgram
    seen: tuple[Observation, ...]

    def plan(self, limits: Limits) -> LeasePlan:
        return self.program.next(self.seen, limits)[0]


def _within(modes: ModeSet | None, power_mw: float) -> dict[str, int | None] | None:
    """Highest clocks of the largest power mode within a power, else of the smallest mode."""
    named = [] if modes is None else [(mode, re.search(r"(\d+)W", mode.name)) for mode in modes.table]
    meant = [(1e3 * float(found[1]), mode) for mode, found in named if found is not None]
    if not meant:
        return None
    least = min(watts for watts, _ in meant)
    watts = max((watts for watts, _ in meant if watts <= power_mw), default=least)
    # Modes of the same power trade cores for clocks; the one with all cores has the lowest.
    among = [mode for one, mode in meant if one == watts]
    return {axis: min((cap for mode in among if (cap := getattr(mode, axis)) is not None), default=None) for axis in AXES}
