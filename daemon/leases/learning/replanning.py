# SPDX-License-Identifier: Apache-2.0
"""Plans by a lease's observed frames, if they are worth a change of clocks."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from math import exp
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ....kernels.grid import FrequencyConfiguration
from ....kernels.surface import Surface
from ...errors import TargetNotAttainable
from ...planning.lease_plan import SAFE, LeasePlan, PlanRequest, is_known
from ...planning.limits import Limits
from ...planning.plan import outlook, requirements
from ...planning.targets import parse_target
from ..credible_range import has
from ..missed_targets import HEAVIER_FROM, SIGMAS

if TYPE_CHECKING:
    import numpy as np
else:
    from ....kernels.lazy import numpy as np

GAIN = 0.03
"""Least gain, as a share of the target's figure, for which the clocks of a kept target change."""
MOST_TRIED = 10
"""Number of observed configurations after which no trial for gain is made."""
CAUTION = 0.9
"""Least probability that a new plan keeps the target. Unpredicted programs use :data:`SAFE` if that leaves any."""
# Risk of a trial as a multiple of the permitted share of late frames; least probability that it keeps the target.
_RISK, _LEAST_HOPE = 4.0, 0.8


class BestPlanner(Struct, frozen=True):
    """Best plan for a request, else the closest to its target; with :data:`CAUTION` if possible once frames are observed."""

    request: PlanRequest
    observed: bool = True

    def plan(self, limits: Limits) -> LeasePlan:
        request = self.request
        cautions = ((CAUTION,) if request.network else (SAFE, CAUTION)) if self.observed else ()
        for confidence in (*(max(request.confidence or 0.0, caution) for caution in cautions), request.confidence):
            with contextlib.suppress(TargetNotAttainable):
                return replace(replace(request, confidence=confidence).plan(limits), request=request, planner=self)
        return replace(request.closest(limits), planner=self)


class TopmostPlanner(Struct, frozen=True):
    request: PlanRequest

    def plan(self, limits: Limits) -> LeasePlan:
        request, found = self.request, BestPlanner(self.request).plan(limits)
        cell = np.flatnonzero(limits.permits(request.surface.grid))[-1]
        configuration = request.surface.grid.at(cell)
        affordable = limits.affords(request.plans.outlook(request.surface, request.fps, None).power_mw).flat[cell]
        if not affordable or configuration == found.configuration:
            return found
        return replace(request.at(configuration, limits, self), firm=True)


def worth_while(
    request: PlanRequest, held: LeasePlan, limits: object, shared_at: FrequencyConfiguration | None = None
) -> str | None:
    if not isinstance(limits, Limits):
        return None
    if (missed := request.missed(held.configuration)) is not None:
        return f"by observation, {missed}"
    if shared_at is not None and held.work is not None and (longer := _longer(held.work.surface, request.surface, shared_at)):
        return f"by observation, its frames take {longer:.0%} longer than those that share the GPU were told"
    plan = BestPlanner(request).plan(limits)
    if plan.unmet:
        return None
    gain = request.gain(held.configuration, plan.configuration)
    return f"by observation, {gain:.0%} is gained" if gain >= GAIN else None


def worth_trying(
    request: PlanRequest, held: LeasePlan, limits: object, observed: Collection[FrequencyConfiguration]
) -> tuple[LeasePlan, str] | None:
    """Plan and reason for a trial that may gain more than is known.

    Only until :data:`MOST_TRIED` configurations are observed, and at a risk in proportion to the permitted share of late
    frames.
    """
    surface = request.surface
    known = request.network and has(surface, held.configuration)
    if not isinstance(limits, Limits) or len(observed) >= MOST_TRIED or not known:
        return None
    share = max(request.confidence or 0.0, CAUTION)
    expected, hoped_for = request.plans.outlook(surface, request.fps, None), max(1 - _RISK * (1 - share), _LEAST_HOPE)
    certain = replace(surface, latency_sigma=np.zeros(surface.grid.shape), energy_sigma=np.zeros(surface.grid.shape))
    cautious = request.plans.outlook(surface, request.fps, hoped_for), outlook(certain, request.fps, share)
    target = parse_target(request.target)
    objective, sigma = target.objective(expected), target.sigma(surface)
    open_cells = limits.permits(surface.grid) & limits.affords(expected.power_mw)
    for bound in requirements(target, request.fps):
        for one in cautious:
            open_cells &= getattr(one, bound.figure) <= bound.limit
    for configuration in observed:
        if has(surface, configuration):
            open_cells[surface.grid.index(configuration)] = False
    hoped = np.where(open_cells, objective * np.exp(-sigma), np.inf)
    cell = int(hoped.argmin())
    gain = 1 - float(hoped.ravel()[cell] / objective[surface.grid.index(held.configuration)])
    if gain < GAIN:
        return None
    plan = request.at(surface.grid.at(cell), limits, BestPlanner(request))
    return plan, f"tried for ten frames, as it may gain {gain:.0%}"


def _longer(corrected: Surface, now: Surface, configuration: FrequencyConfiguration) -> float:
    if not (has(corrected, configuration) and has(now, configuration)):
        return 0.0
    factor = now.at(configuration).latency_ms / corrected.at(configuration).latency_ms
    return factor - 1 if factor > HEAVIER_FROM else 0.0


def expected_ms(surface: Surface, configuration: FrequencyConfiguration) -> float | None:
    return surface.at(configuration).latency_ms if is_known(surface) and has(surface, configuration) else None


def unforeseen(surface: Surface, configuration: FrequencyConfiguration, observed_ms: float) -> float:
    """Ratio of observed to expected latency if uncertainty does not explain it; else 1."""
    expected = expected_ms(surface, configuration)
    if expected is None:
        return 1.0
    factor, sigma = observed_ms / expected, float(surface.latency_sigma[surface.grid.index(configuration)])
    return factor if factor > max(HEAVIER_FROM, exp(SIGMAS * sigma)) else 1.0
