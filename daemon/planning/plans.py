# SPDX-License-Identifier: Apache-2.0
"""The plans made lately, and what they were made from: applications ask for the same one again and again."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from ...kernels.surface import Surface
from ..planner import Limits, Plan, plan
from .outlooks import Outlooks, outlook

_PLANS_KEPT = 32
_OUTLOOKS_KEPT = 16
# A client takes longer to read a front of hundreds than the daemon to find it; a picture needs no more than these.
_FRONT_SENT = 32


class Planned(NamedTuple):
    """A plan, and the same as JSON, which is not to be changed."""

    plan: Plan
    as_json: dict[str, Any]


class Plans:
    """Makes plans and keeps the last ones. May be shared between threads.

    Attributes:
        outlook: as :func:`jetdvfs.daemon.planning.outlooks.outlook`, of the last ones from memory.
    """

    def __init__(self) -> None:
        self.outlook: Outlooks = lru_cache(maxsize=_OUTLOOKS_KEPT)(outlook)
        self._kept = lru_cache(maxsize=_PLANS_KEPT)(self._make)

    def plan(self, surface: Surface, target: str, fps: float | None, confidence: float | None, limits: Limits) -> Planned:
        """As :func:`jetdvfs.daemon.planner.plan`.

        Raises:
            TargetNotAttainable, UsageError, InputError: as there.
        """
        return self._kept(surface, target, fps, confidence, limits)

    def _make(self, surface: Surface, target: str, fps: float | None, confidence: float | None, limits: Limits) -> Planned:
        made = plan(surface, target, fps=fps, confidence=confidence, limits=limits, outlooks=self.outlook)
        return Planned(made, made.to_json(_FRONT_SENT))
