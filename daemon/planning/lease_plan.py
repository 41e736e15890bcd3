# SPDX-License-Identifier: Apache-2.0
"""Requests for a target, and plans of their leases, remade when limits change."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from ...kernels.errors import GridError
from ...kernels.grid import FrequencyConfiguration
from ...kernels.surface import Surface
from ...kernels.values import PartlyCompared
from ..errors import TargetNotAttainable
from .limits import BoardConstraints, Limits
from .plan import Caveats, Plan, PlannedOption, Planning, longest_ms, requirements
from .targets import FIGURE_NAMES, parse_target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    from ...kernels.lazy import numpy as np

SAFE = 0.99
"""Probability of keeping the target with which an unpredicted program may try a configuration."""
_KEPT = 1 + 1e-9


def is_known(surface: Surface) -> bool:
    """True if the surface holds predictions, or was corrected by observations."""
    return surface.terms is None or not surface.terms.unpredicted


class GpuLoad(Struct, frozen=True, eq=False):
    """GPU load of one application; ``fps`` is None for back to back, ``limit_ms`` for any time.

    ``frugal`` is True if it prefers the least energy within the limit.
    """

    surface: Surface
    fps: float | None = None
    confidence: float | None = None
    limit_ms: float | None = None
    frugal: bool = True
    process: int = 0

    def latency_ms(self, confidence: float | None) -> NDArray[np.float64]:
        return self.surface.latency_ms if confidence is None else self.surface.latency_quantile_ms(confidence)

    def latency_at_ms(self, confidence: float | None, index: tuple[int, int, int]) -> float:
        surface = self.surface
        slower, late = (0.0, 0.0) if confidence is None else surface.slower(confidence)
        return float(surface.latency_ms[index]) * math.exp(max(slower * float(surface.latency_sigma[index]), late))


class Planner(Protocol):
    """Plans a lease within limits; a frozen value, used again when limits change."""

    def plan(self, limits: Limits) -> LeasePlan:
        """The plan within limits; errors as for :func:`jetdvfs.daemon.planning.plan.plan`."""
        ...


class LeasePlan(PartlyCompared, frozen=True):
    """Configuration planned for a lease, and the request behind it.

    Attributes:
        chosen: the plan; None if requested, on trial or closest.
        planner: plans again within other limits; None for a requested configuration.
        unmet: reason why no configuration is predicted to meet the target, and the best attainable.
        idle: no frames come: no load for other leases.
        parked: clocks of standby, at which the target does not hold.
        firm: clocks are not lowered on a shared GPU.
        governed: axes left to governors; given as their lowest levels.
    """

    _ignored = frozenset({"chosen", "planner"})
    configuration: FrequencyConfiguration
    request: PlanRequest | None = None
    constraints: BoardConstraints = field(default_factory=BoardConstraints)
    limits: Limits | None = None
    unmet: str = ""
    idle: bool = False
    firm: bool = False
    governed: frozenset[str] = frozenset()
    parked: bool = False
    chosen: Plan | None = None
    planner: Planner | None = None

    @property
    def target(self) -> str:
        return "" if self.request is None else str(parse_target(self.request.target))

    @property
    def network(self) -> str:
        return "" if self.request is None else self.request.network

    @property
    def fps(self) -> float | None:
        return None if self.request is None else self.request.fps

    @property
    def confidence(self) -> float | None:
        return None if self.request is None else self.request.confidence

    @property
    def limit_ms(self) -> float | None:
        return None if self.request is None else self.request.limit_ms

    @property
    def predicted(self) -> PlannedOption | None:
        if self.chosen is not None:
            return self.chosen.choice
        return None if self._known is None else self._known.option(self.configuration)

    @property
    def caveats(self) -> Caveats | None:
        return None if self._known is None else Caveats.of(self._known.surface)

    @property
    def work(self) -> GpuLoad | None:
        if self._known is None or self.idle:
            return None
        work = self._known.work
        confidence = work.confidence if self.chosen is None else self.chosen.confidence
        return replace(work, confidence=confidence, frugal=work.frugal and not self.firm)

    @property
    def paced(self) -> bool:
        """True if the application is known to idle at least half of the time."""
        predicted = self.predicted if self.fps is not None else None
        return predicted is not None and self.fps is not None and predicted.latency_ms * self.fps <= 500

    def missed(self, configuration: FrequencyConfiguration) -> str | None:
        return None if self._known is None or self.parked else self._known.missed(configuration)

    def closest(self, limits: Limits) -> LeasePlan | None:
        return None if self._known is None else replace(self._known.closest(limits), planner=self.planner)

    def within(self, limits: Limits, *, held: bool) -> LeasePlan:
        """The plan remade within limits; a lease in force (``held``) keeps to a power budget at any cost to its target.

        Raises:
            TargetNotAttainable: no configuration meets its target, whatever the budget.
        """
        if self.planner is None:
            return self
        try:
            return self.planner.plan(limits)
        except TargetNotAttainable:
            closest = None if limits.power_mw is None else self.closest(limits)
            if closest is None:
                raise
            if not held:
                self.planner.plan(replace(limits, power_mw=None, because=""))
            return closest

    @property
    def _known(self) -> PlanRequest | None:
        return self.request if self.request is not None and is_known(self.request.surface) else None


class PlanRequest(Struct, frozen=True):
    """A network, a target and conditions; plans leases (:class:`Planner`)."""

    plans: Planning
    surface: Surface
    target: str
    fps: float | None
    confidence: float | None
    network: str
    simulated: bool
    constraints: BoardConstraints = field(default_factory=BoardConstraints)

    def plan(self, limits: Limits) -> LeasePlan:
        try:
            chosen = self.plans.plan(self.surface, self.target, self.fps, self.confidence, limits)
        except TargetNotAttainable as error:
            if limits.demand:
                raise TargetNotAttainable(f"{error}; {'; '.join(limits.demand)}") from error
            raise
        return LeasePlan(chosen.configuration, self, self.constraints, limits, chosen=chosen, planner=self)

    def choice(self, limits: Limits) -> FrequencyConfiguration:
        """As :meth:`plan`, the configuration alone."""
        return self.plans.choice(self.surface, self.target, self.fps, self.confidence, limits)

    def closest(self, limits: Limits) -> LeasePlan:
        figures = self.plans.outlook(self.surface, self.fps, self.confidence)
        bounds = requirements(parse_target(self.target), self.fps)
        permitted = limits.permits(self.surface.grid)
        power_mw = self.plans.outlook(self.surface, self.fps, None).power_mw
        affordable = permitted & limits.affords(power_mw)
        among = affordable if affordable.any() else permitted & (power_mw <= power_mw[permitted].min())
        over = np.max([getattr(figures, bound.figure) / bound.limit for bound in bounds] or [power_mw], axis=0)
        cell = int(np.argmin(np.where(among, over, np.inf)))
        configuration = self.surface.grid.at(cell)
        texts = (
            f"{FIGURE_NAMES[bound.figure]} {bound.text(float(getattr(figures, bound.figure).flat[cell]))}" for bound in bounds
        )
        within = f" within {limits.budget}" if limits.budget else ""
        best = ", ".join(texts) or f"power {float(power_mw.flat[cell]) / 1e3:.4g} W"
        unmet = f"no configuration is predicted to meet it{within}; the best attainable is {best} at {configuration}"
        return replace(self.at(configuration, limits, ClosestPlanner(self)), unmet=unmet)

    def at(self, configuration: FrequencyConfiguration, limits: Limits, planner: Planner) -> LeasePlan:
        return LeasePlan(configuration, self, self.constraints, limits, planner=planner)

    def option(self, configuration: FrequencyConfiguration) -> PlannedOption:
        figures = self.surface.at(configuration)
        return PlannedOption(configuration, figures.latency_ms, figures.power_mw, figures.energy_mj, figures.guessed_share)

    @property
    def work(self) -> GpuLoad:
        return GpuLoad(self.surface, self.fps, self.confidence, self.limit_ms, parse_target(self.target).frugal)

    def gain(self, held: FrequencyConfiguration, other: FrequencyConfiguration) -> float:
        """Share by which the target's objective is lower at the other configuration; 0 if unknown."""
        objective = parse_target(self.target).objective(self.plans.outlook(self.surface, self.fps, None))
        try:
            return 1 - float(objective[self.surface.grid.index(other)] / objective[self.surface.grid.index(held)])
        except GridError:
            return 0.0

    @property
    def merit(self) -> str:
        return parse_target(self.target).merit

    @property
    def limit_ms(self) -> float | None:
        return longest_ms(parse_target(self.target), self.fps)

    def missed(self, configuration: FrequencyConfiguration) -> str | None:
        try:
            index = self.surface.grid.index(configuration)
        except GridError:
            return None
        figures = self.plans.outlook(self.surface, self.fps, self.confidence)
        for bound in requirements(parse_target(self.target), self.fps):
            value = float(getattr(figures, bound.figure)[index])
            if value > bound.limit * _KEPT:
                return bound.exceeded(value)
        return None


class ClosestPlanner(Struct, frozen=True):
    request: PlanRequest

    def plan(self, limits: Limits) -> LeasePlan:
        return self.request.closest(limits)


class TrialPlanner(Struct, frozen=True):
    trial: LeasePlan
    limits: object
    otherwise: Planner

    def plan(self, limits: Limits) -> LeasePlan:
        return self.trial if limits == self.limits else self.otherwise.plan(limits)
