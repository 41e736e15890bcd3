# SPDX-License-Identifier: Apache-2.0
"""When a target counts as missed by the frames that were seen, and why it is, in words that tell what to do about it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

JUDGED = 8
"""Of how many frames the last judgement is."""
LEAST = 3
"""How many frames there must be."""
_WRONG_FROM = 0.02
HEAVIER_FROM = 1.1
"""From how many times as long on frames have become heavier."""
_BEFORE = 5
_OF_LOAD = 0.5


@dataclass(frozen=True)
class MissedTarget:
    """A latency target that frames do not keep.

    Attributes:
        target: what was asked for.
        limit_ms: what it permits.
        observed_ms: what frames take, by median.
        predicted_ms: what was predicted at the clocks in force; None where nothing was.
        frames: how many frames were too late since it was missed.
        reason: why, in one line.
        doing: what is done about it, in one line; empty where nothing was done yet.
    """

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
    """Whether frames at the same clocks miss a limit; None where there are too few to tell, or it is between the two.

    By median, most of the last frames must be too late. With a confidence also more of all of them than chance allows where the
    share that was asked for is kept.
    """
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
    """Why frames take longer than their target allows.

    Args:
        throttled: why the kernel slows the board down.
        over_current: events that cut clocks for moments that no clock shows.
        deviating: clocks that stand otherwise than they were set.
        company: who else uses the GPU, for people.
    """
    causes: list[str] = []
    if throttled:
        causes.append(f"throttling ({'; '.join(throttled)})")
    if over_current:
        causes.append(f"over-current ({'; '.join(over_current)})")
    if deviating and not throttled:
        causes.append(f"clocks below what was requested ({'; '.join(deviating)})")
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
    """How many times as long the last frames take as those before at the same clocks; 1 where that is little, or they are few.

    Args:
        latencies_ms: of frames at these clocks, oldest first.
    """
    last, before = latencies_ms[-LEAST:], latencies_ms[:-LEAST]
    if len(before) < _BEFORE:
        return 1.0
    factor = _ratio(last, before)
    return factor if factor > HEAVIER_FROM else 1.0


def shifted(latencies_ms: Sequence[float]) -> float:
    """How many times as long the last frames take as those before at the same clocks, heavier or lighter; 1 where it is chance.

    Frames of a load that varies differ by more than that all the time: of the last ones all but one, which may be late for
    reasons of its own, must be beyond three quarters of those before.

    Args:
        latencies_ms: as of :func:`heavier`.
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
    """Ratio of the medians; 1 if one of them is no time, as of an application whose timer says 0."""
    now_ms, then_ms = median(last), median(before)
    return now_ms / then_ms if now_ms > 0 and then_ms > 0 else 1.0


def doubted(factor: float) -> float:
    """How far, as a logarithm, a frame may be from so many times what it took of another load: not all of it grows alike.

    Args:
        factor: above 0.
    """
    return _OF_LOAD * abs(math.log(factor))


def typical(latencies_ms: Sequence[float]) -> float:
    """What the last frames take, by median."""
    return median(latencies_ms[-JUDGED:])
