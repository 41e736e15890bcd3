# SPDX-License-Identifier: Apache-2.0
"""Requests for a target: planned within one set of limits, and again within the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...kernels.errors import GridError
from ...kernels.grid import FrequencyConfiguration
from ...kernels.surface import Surface
from ..errors import TargetNotAttainable
from .constraints import BoardConstraints
from .lease_plan import LeasePlan, Work
from .limits import Limits
from .outlooks import longest_ms, requirements
from .plan import Planned, Plans
from .targets import FIGURE_NAMES, FIGURE_UNITS, parse_target

SAFE = 0.99
"""With which probability a configuration must keep the target, at least, at which a program is tried that nobody predicted."""
_KEPT = 1 + 1e-9


def is_known(surface: Surface) -> bool:
    """True if the surface holds predictions, or was corrected by observations."""
    return surface.terms is None or not surface.terms.unpredicted


@dataclass(frozen=True)
class PlanRequest:
    """A network, a target and the conditions that it is planned under.

    Attributes:
        surface: the network's.
        target, fps, confidence: as for :func:`jetdvfs.daemon.planning.plan.plan`.
        network: its name.
        simulated: whether what is predicted was measured on a simulated board.
        floors: tells what is kept up for other work.
        asked: what is asked of the board as a whole.
    """

    plans: Plans
    surface: Surface
    target: str
    fps: float | None
    confidence: float | None
    network: str
    simulated: bool
    floors: Callable[[], tuple[str, ...]]
    asked: BoardConstraints = field(default_factory=BoardConstraints)

    def plan(self, limits: Limits) -> dict[str, Any]:
        """The plan within these limits, as it goes over the wire.

        Raises:
            TargetNotAttainable, UsageError, InputError: as for :func:`jetdvfs.daemon.planning.plan.plan`.
        """
        return {**self._planned(limits).as_json, "simulated": self.simulated}

    def need(self, limits: Limits) -> LeasePlan:
        """What a lease needs within these limits.

        Raises:
            TargetNotAttainable, UsageError, InputError: as for :meth:`plan`.
        """
        chosen = self._planned(limits).plan
        return LeasePlan(
            chosen.configuration,
            str(chosen.target),
            self.network,
            chosen.fps,
            chosen.choice.to_json(),
            self.need,
            chosen.boundary,
            limits,
            self.plan(limits),
            self.missed,
            self.limit_ms,
            self.confidence,
            work=self.work,
            closest=self.closest,
            asked=self.asked,
            method=self.surface.method,
            guessed=self.surface.guessed,
        )

    def closest(self, limits: Limits) -> LeasePlan:
        """What a lease needs whose target nothing within these limits meets: the configuration that comes closest.

        Raises:
            UsageError, InputError: as for :meth:`plan`.
        """
        figures = self.plans.outlook(self.surface, self.fps, self.confidence)
        bounds = requirements(parse_target(self.target), self.fps)
        permitted = limits.permits(self.surface.grid)
        power_mw = self.plans.outlook(self.surface, self.fps, None).power_mw
        affordable = permitted & limits.affords(power_mw)
        among = affordable if affordable.any() else permitted & (power_mw <= power_mw[permitted].min())
        over = np.max([getattr(figures, bound.figure) / bound.limit for bound in bounds] or [power_mw], axis=0)
        index = np.unravel_index(int(np.argmin(np.where(among, over, np.inf))), over.shape)
        configuration = self.surface.grid.configuration((int(index[0]), int(index[1]), int(index[2])))
        texts = (
            f"{FIGURE_NAMES[bound.figure]} {float(getattr(figures, bound.figure)[index]):.4g} {FIGURE_UNITS[bound.figure]}"
            for bound in bounds
        )
        within = f" within {limits.budget}" if limits.budget else ""
        best = ", ".join(texts) or f"power {float(power_mw[index]) / 1e3:.4g} W"
        unmet = f"no configuration is predicted to meet it{within}; the best attainable is {best} at {configuration}"
        return replace(self.at(configuration, limits, self.closest), unmet=unmet)

    def at(self, configuration: FrequencyConfiguration, limits: Limits, again: Callable[[Limits], LeasePlan]) -> LeasePlan:
        """What a lease needs that runs at this configuration, whatever a plan would say; without figures where none are known.

        Args:
            again: chooses anew within other limits.
        """
        known = is_known(self.surface)
        predicted = {"configuration": configuration._asdict(), **self._at(configuration)}
        return LeasePlan(
            configuration,
            str(parse_target(self.target)),
            self.network,
            self.fps,
            predicted if known else None,
            again,
            self.surface.boundary,
            limits,
            None,
            self.missed if known else None,
            self.limit_ms,
            self.confidence,
            work=self.work if known else None,
            closest=self.closest if known else None,
            asked=self.asked,
            method=self.surface.method if known else "",
            guessed=self.surface.guessed if known else (),
        )

    @property
    def work(self) -> Work:
        """What its frames ask of the GPU."""
        return Work(self.surface, self.fps, self.confidence, self.limit_ms, parse_target(self.target).frugal)

    def gain(self, held: FrequencyConfiguration, other: FrequencyConfiguration) -> float:
        """By which share what the target prefers is lower at another configuration; 0 where that cannot be told."""
        objective = parse_target(self.target).objective(self.plans.outlook(self.surface, self.fps, None))
        try:
            return 1 - float(objective[self.surface.grid.index(other)] / objective[self.surface.grid.index(held)])
        except GridError:
            return 0.0

    @property
    def merit(self) -> str:
        """The merit of its target, in a word or two."""
        return parse_target(self.target).merit

    def _at(self, configuration: FrequencyConfiguration) -> dict[str, float]:
        figures = self.surface.at(configuration)
        return {name: getattr(figures, name) for name in ("latency_ms", "power_mw", "energy_mj", "guessed_share")}

    @property
    def limit_ms(self) -> float | None:
        """How long a frame may take by target and rate; None for any time."""
        return longest_ms(parse_target(self.target), self.fps)

    def missed(self, configuration: FrequencyConfiguration) -> str | None:
        """Which part of what is asked for is not kept at a configuration; None where all is, or that cannot be told."""
        try:
            index = self.surface.grid.index(configuration)
        except GridError:
            return None
        figures = self.plans.outlook(self.surface, self.fps, self.confidence)
        for bound in requirements(parse_target(self.target), self.fps):
            value = float(getattr(figures, bound.figure)[index])
            if value > bound.limit * _KEPT:
                unit = FIGURE_UNITS[bound.figure]
                return f"{FIGURE_NAMES[bound.figure]} {value:.4g} {unit}, over {bound.limit:.4g} {unit}"
        return None

    def _planned(self, limits: Limits) -> Planned:
        try:
            return self.plans.plan(self.surface, self.target, self.fps, self.confidence, limits)
        except TargetNotAttainable as error:
            if reasons := self.floors():
                raise TargetNotAttainable(f"{error}; {'; '.join(reasons)}") from error
            raise
