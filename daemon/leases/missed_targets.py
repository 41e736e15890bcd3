# SPDX-License-Identifier: Apache-2.0
"""Missed targets by observed frames, and their causes."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import median
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

JUDGED = 8
"""Number of last frames judged."""
LEAST = 3
_WRONG_FROM = 0.02
HEAVIER_FROM = 1.1
"""Ratio of latencies from which a load is heavier."""
SIGMAS = 2.0
"""Standard deviations that a prediction's uncertainty explains; beyond, a load is lighter or heavier."""
_BEFORE = 5
_OF_LOAD = 0.5


class MissedTarget(Struct, frozen=True):
    target: str
    limit_ms: float
    observed_ms: float
    predicted_ms: float | None
    frames: int
    reason: str
    doing: str = ""

    def __str__(self) -> str:
        done = f"; {self.doing}" if self.doing else ""
        return (
            f"{self.target} is missed: {self.observed_ms:.4g} ms observed, over {self.limit_ms:.4g} ms, "
            f"in {self.frames} frames: {self.reason}{done}"
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def is_missed(latencies_ms: Sequence[float], limit_ms: float, confidence: float | None) -> bool | None:
    """True if most of the last frames at the same clocks miss a limit, or more of all than chance allows; None if unclear."""
    last = latencies_ms[-JUDGED:]
    if len(last) < LEAST:
        return None
    late = sum(latency > limit_ms for latency in last)
    if late > len(last) / 2:
        return True
    if confidence is not None:
        count = len(latencies_ms)
        allowed = (1 - confidence) * count
        if sum(latency > limit_ms for latency in latencies_ms) > allowed + 3 * math.sqrt(allowed * confidence) + 1:
            return True
    return False if late <= len(last) / 4 else None


def why(
    observed_ms: float,
    predicted_ms: float | None,
    *,
    throttled: Collection[str],
    over_current: Collection[str],
    deviating: Collection[str],
    company: Collection[str],
) -> str:
    """Reason why frames take longer than their target allows; ``over_current`` events cut clocks too shortly to show."""
    causes: list[str] = []
    if throttled:
        causes.append(f"throttling ({'; '.join(throttled)})")
    if over_current:
        causes.append(f"over-current ({'; '.join(over_current)})")
    if deviating and not throttled:
        causes.append(f"clocks below the requested ones ({'; '.join(deviating)})")
    if company:
        causes.append(f"contention ({', '.join(company)} use{'s' * (len(company) == 1)} the GPU, too)")
    if predicted_ms is not None and not causes:
        wrong = observed_ms / predicted_ms - 1
        if wrong >= _WRONG_FROM:
            causes.append(f"the prediction was wrong by {wrong:.0%} ({predicted_ms:.4g} ms predicted at these clocks)")
        else:
            causes.append(f"the target is out of reach at these clocks ({predicted_ms:.4g} ms predicted)")
    return "; ".join(causes) or "nothing was predicted for it"


def heavier(latencies_ms: Sequence[float]) -> float:
    """Ratio of the last latencies to earlier ones at the same clocks, oldest first; 1 if small, or with few frames."""
    last, before = latencies_ms[-LEAST:], latencies_ms[:-LEAST]
    if len(before) < _BEFORE:
        return 1.0
    factor = _ratio(last, before)
    return factor if factor > HEAVIER_FROM else 1.0


def shifted(latencies_ms: Sequence[float]) -> float:
    """Ratio of the last latencies to earlier ones at the same clocks; 1 if due to chance.

    As a varying load differs as much, all but one of the last frames must be beyond three quarters of the earlier ones.
    """
    last, before = sorted(latencies_ms[-JUDGED:]), sorted(latencies_ms[:-JUDGED])
    if len(before) < JUDGED:
        return 1.0
    quarter = len(before) // 4
    if before[quarter] <= last[-2] and last[1] <= before[-1 - quarter]:
        return 1.0
    factor = _ratio(last, before)
    return 1.0 if 1 / HEAVIER_FROM <= factor <= HEAVIER_FROM else factor


def _ratio(last: Sequence[float], before: Sequence[float]) -> float:
    """Ratio of the medians; 1 if one is 0, as from a broken timer."""
    now_ms, then_ms = median(last), median(before)
    return now_ms / then_ms if now_ms > 0 and then_ms > 0 else 1.0


def doubted(factor: float) -> float:
    """Uncertainty, as a logarithm, of a latency scaled to another load by a factor above 0: not all of it grows alike."""
    return _OF_LOAD * abs(math.log(factor))


def typical(latencies_ms: Sequence[float]) -> float:
    return median(latencies_ms[-JUDGED:])
