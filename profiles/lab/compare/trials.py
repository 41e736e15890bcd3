# SPDX-License-Identifier: Apache-2.0
"""What becomes of plans on a board whose every configuration is known: regret, and targets that are missed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ....daemon.errors import TargetNotAttainable
from ....daemon.planning.outlooks import outlook, requirements
from ....daemon.planning.plan import Plan, plan
from ....daemon.planning.targets import EnergyTarget, LatencyTarget, MinEnergy, Target
from ....kernels.surface import Surface

TARGETS_IN_WORDS = (
    "latency at most 1.2 and 2 times the nominal board's shortest, energy at most 1.2 times its least, and least energy"
)


@dataclass(frozen=True)
class Trial:
    """What became of one plan on one board, beside what an exhaustive search of that board finds.

    Attributes:
        target: what was asked for.
        attainable: whether any configuration of the board meets it.
        refused: whether there is no plan, because its planner held the target to be out of reach.
        over: by what share of its limit the target is missed; 0 where it is kept, refused, or nothing is limited.
        regret: by what share the figure that the target prefers to be low is above the best that meets the target; None where
            there is no such figure: the target is missed, refused or out of reach.
    """

    target: str
    attainable: bool
    refused: bool
    over: float
    regret: float | None

    @property
    def missed(self) -> bool:
        return self.over > 0


@dataclass(frozen=True)
class Outcome:
    """Trials counted; those of targets that no configuration of their board meets are left out.

    Attributes:
        trials: how many.
        missed, refused: how many of them missed their target, and were refused.
        worst_over: by what share of the limit, at most.
        mean_regret, worst_regret: of the others; 0 where there are none.
    """

    trials: int
    missed: int
    refused: int
    worst_over: float
    mean_regret: float
    worst_regret: float

    @classmethod
    def of(cls, trials: Iterable[Trial]) -> Outcome:
        counted = [trial for trial in trials if trial.attainable]
        regrets = [trial.regret for trial in counted if trial.regret is not None] or [0.0]
        return cls(
            len(counted),
            sum(trial.missed for trial in counted),
            sum(trial.refused for trial in counted),
            max((trial.over for trial in counted), default=0.0),
            float(np.mean(regrets)),
            max(regrets),
        )


def usual_targets(nominal: Surface) -> tuple[Target, ...]:
    """Four targets that are within every board's reach and bind, by what the nominal board can do: :data:`TARGETS_IN_WORDS`."""
    shortest_ms, least_mj = float(nominal.latency_ms.min()), float(nominal.energy_mj.min())
    return LatencyTarget(1.2 * shortest_ms), LatencyTarget(2 * shortest_ms), EnergyTarget(1.2 * least_mj), MinEnergy()


def plans_for(surface: Surface, targets: Sequence[Target], confidence: float | None = None) -> tuple[Plan | None, ...]:
    """A plan for each target; None where the planner holds it to be out of reach."""
    return tuple(_plan(surface, target, confidence) for target in targets)


def _plan(surface: Surface, target: Target, confidence: float | None) -> Plan | None:
    try:
        return plan(surface, target, confidence=confidence)
    except TargetNotAttainable:
        return None


def try_out(target: Target, found: Plan | None, truth: Surface) -> Trial:
    """What becomes of a plan for a target on a board with this true surface."""
    real = outlook(truth, None)
    met = np.ones(truth.grid.shape, bool)
    for bound in requirements(target, None):
        met &= getattr(real, bound.figure) <= bound.limit
    attainable = bool(met.any())
    if found is None:
        return Trial(str(target), attainable, True, 0.0, None)
    at = truth.grid.index(found.configuration)
    over = max((float(getattr(real, bound.figure)[at]) / bound.limit - 1 for bound in requirements(target, None)), default=0.0)
    if not met[at]:
        return Trial(str(target), attainable, False, over, None)
    objective = target.objective(real)
    return Trial(str(target), attainable, False, 0.0, float(objective[at] / objective[met].min()) - 1)
