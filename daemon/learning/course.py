# SPDX-License-Identifier: Apache-2.0
"""What is known of one lease with a target while it is held, and how often it was planned again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...kernels.grid import FrequencyConfiguration
from ...kernels.surface import Surface
from ..leases import Lease, Need
from ..planner import Limits
from ..planning.wishes import Wish
from .frames import Company
from .missed import Missed
from .unpredicted import Unpredicted

if TYPE_CHECKING:
    from ...kernels.correction.observation import Observation

FIRST_WAIT_S, LONGEST_WAIT_S = 5.0, 300.0
LEAST_PATIENCE = 4
INSISTS = 2
"""At which try in a row nothing is spared: lateness is its own, and the highest clocks are tried where no others are left."""

Making = Callable[["Sequence[Observation]", bool], Surface]
"""Makes a lease's surface, for the board as warm as it is, corrected by observations; cautiously or not."""


@dataclass
class Course:
    """How one lease with a target goes.

    Attributes:
        key: what it is remembered by.
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

    key: str
    wish: Wish
    make: Making
    missed: Missed | None = None
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

    def first(self, limits: Limits) -> Need:
        """What it needs before anything was seen of it.

        Raises:
            TargetNotAttainable, UsageError, InputError: as for :meth:`jetdvfs.daemon.planning.wishes.Wish.need`.
        """
        return self.wish.need(limits) if self.unknown is None else self.unknown.first(limits)
