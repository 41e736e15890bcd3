# SPDX-License-Identifier: Apache-2.0
"""Standby: low clocks for a lease whose frames have stopped, until the next one comes.

A lease for a target whose frames stop while the GPU idles gets the clocks of ``idle`` in the configuration. Its next frame, or
a busy GPU, restores its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..config import IdleRules
from .lease import Lease

_QUIET, _BUSY = 0.1, 0.5
"""Load below which the GPU idles at its own clocks, and from which it is busy at the lower clocks of standby."""
_PERIODS = 3


class StandbyState(Struct, frozen=True):
    """Standby of one lease so far; ``back_ms`` is the total time to set the clocks afterwards."""

    since_s: float | None = None
    count: int = 0
    total_s: float = 0.0
    back_ms: float = 0.0

    def to_json(self, now_s: float) -> dict[str, Any]:
        now = 0.0 if self.since_s is None else now_s - self.since_s
        return {"now": self.since_s is not None, "count": self.count, "total_s": self.total_s + now, "back_ms": self.back_ms}


class StandbyWatch:
    """Standby of leases, by the GPU's load from 0 to 1. For one thread."""

    def __init__(self, rules: IdleRules | None, gpu_load: Callable[[], float | None]) -> None:
        self.rules = rules
        self.leases: Mapping[str, StandbyState] = {}
        self._gpu_load = gpu_load
        self._worked_s = -math.inf

    @property
    def parked(self) -> frozenset[str]:
        return frozenset(name for name, one in self.leases.items() if one.since_s is not None)

    def update(self, leases: Iterable[Lease], now_s: float) -> tuple[frozenset[str], frozenset[str]]:
        held = {lease.id: lease for lease in leases}
        self.leases = {name: one for name, one in self.leases.items() if name in held}
        before = self.parked
        quiet = {name for name, lease in held.items() if self._is_quiet(lease, now_s)}
        if quiet and self._gpu_works(held.values(), now_s, standing_by=bool(before)):
            quiet.clear()
        for name in quiet - before:
            one = self.leases.get(name, StandbyState())
            self.leases = {**self.leases, name: replace(one, since_s=now_s, count=one.count + 1)}
        for name in before - quiet:
            one = self.leases[name]
            total_s = one.total_s + now_s - (one.since_s or now_s)
            self.leases = {**self.leases, name: replace(one, since_s=None, total_s=total_s)}
        return frozenset(quiet - before), before - quiet

    def was_left(self, names: Iterable[str], elapsed_ms: float) -> None:
        for name in names:
            one = self.leases[name]
            self.leases = {**self.leases, name: replace(one, back_ms=one.back_ms + elapsed_ms)}

    def _is_quiet(self, lease: Lease, now_s: float) -> bool:
        if lease.plan.request is None or not lease.holder.standby:
            return False
        period_s = 1 / lease.plan.fps if lease.plan.fps else 0.0
        return self._silent_s(lease, now_s) > max(self._after_s, _PERIODS * period_s)

    def _gpu_works(self, leases: Iterable[Lease], now_s: float, *, standing_by: bool) -> bool:
        if all(self._silent_s(lease, now_s) > self._after_s for lease in leases if lease.frames.last_s is not None):
            load = self._gpu_load()
            if load is not None and load >= (_BUSY if standing_by else _QUIET):
                self._worked_s = now_s
        return now_s - self._worked_s < self._after_s

    @property
    def _after_s(self) -> float:
        return math.inf if self.rules is None else self.rules.after_s

    def _silent_s(self, lease: Lease, now_s: float) -> float:
        return 0.0 if lease.frames.last_s is None else now_s - lease.frames.last_s
