# SPDX-License-Identifier: Apache-2.0
"""Learning state of one lease with a target: observations, misses, plans made again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ....kernels.grid import FrequencyConfiguration
from ....kernels.surface import Surface
from ...errors import TargetNotAttainable
from ...planning.lease_plan import LeasePlan, Planner, PlanRequest
from ...planning.limits import Limits
from ..credible import Doubt
from ..frames import Company
from ..lease import Lease
from ..missed_targets import MissedTarget
from .memory import Key, Learned

if TYPE_CHECKING:
    from ....kernels.correction.observation import Observation
    from .unpredicted import Unpredicted

FIRST_WAIT_S, LONGEST_WAIT_S = 5.0, 300.0
LEAST_PATIENCE = 4
INSISTS = 2
"""At which try in a row nothing is spared: lateness is its own, and the highest clocks are tried where no others are left."""

Making = Callable[["Sequence[Observation]", bool], Surface]
"""Makes a lease's surface, for the board as warm as it is, corrected by observations; cautiously or not."""


@dataclass
class LeaseProgress:
    """Learning state of one lease with a target.

    Attributes:
        key: what it is remembered by.
        original: the network's surface as predicted; None for a program that was not predicted.
        predicted: the same for the board as warm as it is, which a first plan falls back on.
        remembered: what earlier frames said, if the first plan is corrected by them.
        trusted: the application asked for its frames to be believed.
        accepted: its doubted frames have kept coming, and count for this lease.
        doubt: why its last frames do not count; None if they do.
        corrected: True if its plan is corrected by its own frames.
        silent: True if it was said that no frames come.
        wish: what it was planned by last.
        make: makes its surface anew.
        missed: how it misses its target; None while it keeps it.
        late_before: how many frames were late when it was seen to keep it last.
        due_frames: it is not planned again before so many frames were reported, while clocks and company are ``due_at``.
        patience: for how many frames the next plan stands that changes nothing.
        tries: how often it was planned again in this company because its target is missed.
        due_s, wait_s: when it is looked at next while it keeps its target, and how long after that.
        frugal: whether it was set otherwise for a gain, while it kept its target.
        unknown: the program whose frames nobody predicted; None where they are.
        exploring: whether they are being got to know.
        planned_s, planned_c: when it was planned last, and where the die was to settle then; None where nobody knows.
    """

    key: Key
    wish: PlanRequest
    make: Making
    original: Surface | None = None
    predicted: Surface | None = None
    remembered: Learned | None = None
    trusted: bool = False
    accepted: bool = False
    doubt: Doubt | None = None
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
    unknown: Unpredicted | None = None
    exploring: bool = False
    planned_s: float = 0.0
    planned_c: float | None = None

    @property
    def beginning(self) -> Planner:
        """The planner for before any of its frames was seen."""
        if self.unknown is not None:
            return self.unknown
        return self.wish if self.remembered is None else RememberingPlanner(self.wish, self.predicted)

    def proposed(self, limits: Limits) -> LeasePlan:
        """The plan for a request that sets nothing; errors as of :meth:`PlanRequest.plan`."""
        try:
            return self.wish.plan(limits)
        except TargetNotAttainable:
            if self.remembered is None or self.predicted is None:
                raise
            return replace(self.wish, surface=self.predicted).plan(limits)


@dataclass(frozen=True)
class RememberingPlanner:
    """Plans a lease by what earlier frames said, which refuses nothing.

    If the prediction meets the target and the corrected one does not, the configuration that comes closest is taken.

    Attributes:
        request: with the surface as earlier frames correct it.
        predicted: the surface as predicted, for the board as warm as it is.
    """

    request: PlanRequest
    predicted: Surface | None

    def plan(self, limits: Limits) -> LeasePlan:
        """The plan within limits; errors as of :meth:`PlanRequest.plan`."""
        try:
            return replace(self.request.plan(limits), planner=self)
        except TargetNotAttainable:
            if self.predicted is None:
                raise
            replace(self.request, surface=self.predicted).plan(limits)
            return replace(self.request.closest(limits), planner=self)
