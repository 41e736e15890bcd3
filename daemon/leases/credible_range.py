# SPDX-License-Identifier: Apache-2.0
"""Credible frames: frames that can belong to the lease's network.

A frame faster than the network's roofline corrects nothing: mostly it is a launch time, without a wait for the GPU. A frame
beyond :data:`FAR` times the prediction is doubted, unless much of that is guessed; a long run of them counts for its own lease.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from ...kernels.grid import FrequencyConfiguration
from ...kernels.surface import Surface
from ..planning.plan import MUCH_GUESSED

FAR = 3.0
SHORTEST_MS = 1e-3
INSISTENT: Mapping[str, tuple[int, float]] = {"slow": (32, 0.0), "fast": (256, 30.0)}
"""Number of consecutive doubted frames, and seconds, after which they count for their lease."""
_DOUBTED_OF = 8
_LEAST = 3

Side: TypeAlias = Literal["impossible", "fast", "slow"]


class CredibleRange(Struct, frozen=True):
    least_ms: float = SHORTEST_MS
    predicted_ms: float | None = None
    slow: bool = True

    def side(self, latency_ms: float) -> Side | None:
        if latency_ms < self.least_ms:
            return "impossible"
        if self.predicted_ms is not None:
            if latency_ms * FAR < self.predicted_ms:
                return "fast"
            if self.slow and latency_ms > FAR * self.predicted_ms:
                return "slow"
        return None


def credible(
    surface: Surface | None, configuration: FrequencyConfiguration | None, *, alone: bool = True, accepted: bool = False
) -> CredibleRange:
    """Range of credible frames.

    Args:
        surface: None for an unpredicted program.
        alone: no other lease's frames delay these.
        accepted: doubted frames count; the roofline still holds.
    """
    if surface is None:
        return CredibleRange()
    known = configuration is not None and has(surface, configuration)
    place = surface.grid.index(configuration if known and configuration is not None else surface.grid.top)
    least_ms = max(float(surface.least_ms[place]), SHORTEST_MS)
    if accepted or not known or surface.guessed_share[place] >= MUCH_GUESSED:
        return CredibleRange(least_ms)
    return CredibleRange(least_ms, float(surface.latency_ms[place]), alone)


class IgnoredFrames(Struct, frozen=True):
    """Frames of a lease that do not count; ``bound_ms`` is the roofline or the prediction."""

    side: Side
    observed_ms: float
    bound_ms: float
    frames: int
    reason: str

    def __str__(self) -> str:
        return self.reason

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def doubt(side: Side, observed_ms: float, where: CredibleRange, frames: int, network: str) -> IgnoredFrames:
    name = network or "this program"
    if side == "impossible":
        if where.least_ms <= SHORTEST_MS:
            reason = f"{observed_ms:.3g} ms is no frame's time: does the frame wait for the GPU?"
        else:
            reason = (
                f"{observed_ms:.3g} ms is less than {name} can take at these clocks ({where.least_ms:.3g} ms): "
                "does the frame wait for the GPU?"
            )
        return IgnoredFrames(side, observed_ms, where.least_ms, frames, reason)
    predicted_ms = where.predicted_ms or math.nan
    times = predicted_ms / observed_ms if side == "fast" else observed_ms / predicted_ms
    question = "does the frame wait for the GPU?" if side == "fast" else "does the frame contain other work?"
    reason = (
        f"{observed_ms:.3g} ms is {times:.2g} times {'shorter' if side == 'fast' else 'longer'} than predicted for {name} "
        f"at these clocks ({predicted_ms:.3g} ms): {question} (--trust-frames believes it)"
    )
    return IgnoredFrames(side, observed_ms, predicted_ms, frames, reason)


class OutlierTracker:
    def __init__(self) -> None:
        self.frames = 0
        self._last: list[tuple[Side | None, float]] = []
        self._side: Side | None = None
        self._since_s = 0.0

    def note(self, latencies_ms: list[float], where: CredibleRange, now_s: float) -> None:
        for latency_ms in latencies_ms:
            side = where.side(latency_ms)
            self._last = [*self._last[1 - _DOUBTED_OF :], (side, latency_ms)]
            if side is None or side != self._side:
                self.frames, self._side, self._since_s = 0, side, now_s
            self.frames += side is not None

    def found(self) -> tuple[Side, float] | None:
        """Side and median of the last frames if most, and at least three, are out of range."""
        sides: tuple[Side, ...] = ("impossible", "fast", "slow")
        for side in sides:
            own = sorted(latency_ms for one, latency_ms in self._last if one == side)
            if len(own) >= _LEAST and 2 * len(own) > len(self._last):
                return side, own[len(own) // 2]
        return None

    def accept(self) -> None:
        """Count the frames so far as in range."""
        self.frames, self._last, self._side = 0, [], None

    def insistent(self, now_s: float) -> bool:
        if self._side is None or self._side not in INSISTENT:
            return False
        frames, seconds = INSISTENT[self._side]
        return self.frames >= frames and now_s - self._since_s >= seconds


def has(surface: Surface, configuration: FrequencyConfiguration) -> bool:
    return all(level in surface.grid.levels(axis) for axis, level in configuration._asdict().items())
