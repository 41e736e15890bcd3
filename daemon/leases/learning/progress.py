# SPDX-License-Identifier: Apache-2.0
"""Learning state of one lease with a target."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ....kernels.grid import FrequencyConfiguration
from ....kernels.surface import Surface
from ...errors import TargetNotAttainable
from ...planning.lease_plan import LeasePlan, Planner, PlanRequest
from ...planning.limits import Limits
from ..credible_range import IgnoredFrames
from ..frames import Company
from ..lease import Lease
from ..missed_targets import MissedTarget
from .observation_store import ProgramKey, ProgramSummary

if TYPE_CHECKING:
    from ....kernels.correction.observation import Observation
    from .unpredicted_program import UnpredictedProgram

FIRST_WAIT_S, LONGEST_WAIT_S = 5.0, 300.0
LEAST_PATIENCE = 4
INSISTS = 2
"""Number of consecutive tries after which lateness is the network's own, and the highest clocks are tried last."""

Making = Callable[["Sequence[Observation]", bool], Surface]


class LeaseProgress(Struct):
    """Learning state of one lease with a target.

    Attributes:
        original: surface as predicted; None for an unpredicted program.
        predicted: the same for the board's warmth, the fallback of a first plan.
        remembered: earlier frames that correct the first plan.
        trusted: the application asked for its frames to count.
        accepted: persistent doubted frames count.
        due_frames: reported frames before the next plan, while clocks and company are ``due_at``.
        patience: frames before a plan after an ineffective one.
        tries: plans in this company for a missed target.
        due_s, wait_s: next review while the target is kept, and the interval after it.
        frugal: True if changed for a gain while it kept its target.
    """

    key: ProgramKey
    request: PlanRequest
    make: Making
    original: Surface | None = None
    predicted: Surface | None = None
    remembered: ProgramSummary | None = None
    trusted: bool = False
    accepted: bool = False
    doubt: IgnoredFrames | None = None
    corrected: bool = False
    silent: bool = False
    missed: MissedTarget | None = None
    late_before: int = 0
    due_frames: int = 0
    due_at: tuple[FrequencyConfiguration, Company] | None = None
    patience: int = LEAST_PATIENCE
    tries: int = 0
    due_s: float = 0.0
    wait_s: float = FIRST_WAIT_S
    frugal: bool = False
    planning: asyncio.Task[None] | None = None
    lease: Lease | None = None
    unknown: UnpredictedProgram | None = None
    exploring: bool = False
    planned_s: float = 0.0
    planned_c: float | None = None

    @property
    def beginning(self) -> Planner:
        if self.unknown is not None:
            return self.unknown
        return self.request if self.remembered is None else RememberingPlanner(self.request, self.predicted)

    def proposed(self, limits: Limits) -> LeasePlan:
        try:
            return self.request.plan(limits)
        except TargetNotAttainable:
            if self.remembered is None or self.predicted is None:
                raise
            return replace(self.request, surface=self.predicted).plan(limits)


class RememberingPlanner(Struct, frozen=True):
    """Plans by earlier frames, but takes the closest plan if the prediction attains the target."""

    request: PlanRequest
    predicted: Surface | None

    def plan(self, limits: Limits) -> LeasePlan:
        try:
            return replace(self.request.plan(limits), planner=self)
        except TargetNotAttainable:
            if self.predicted is None:
                raise
            replace(self.request, surface=self.predicted).plan(limits)
            return replace(self.request.closest(limits), planner=self)
