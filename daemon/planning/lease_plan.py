# SPDX-License-Identifier: Apache-2.0
"""Configuration planned for a lease, and the GPU load that its frames are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.boundary import Boundary
from ...kernels.grid import FrequencyConfiguration
from ...kernels.surface import Guess, Surface
from .constraints import BoardConstraints
from .limits import Limits


@dataclass(frozen=True, eq=False)
class Work:
    """GPU load of one application: its frames, their rate and their limit.

    Attributes:
        surface: of one inference, alone on the board.
        fps: frames per second; None for one after the other.
        confidence: with which it was planned, and its limit is to be kept; None for by median.
        limit_ms: how long a frame may take; None for any time.
        frugal: whether the least energy is preferred among the configurations that keep the limit.
        process: which hands them in.
    """

    surface: Surface
    fps: float | None = None
    confidence: float | None = None
    limit_ms: float | None = None
    frugal: bool = True
    process: int = 0

    def latency_ms(self, confidence: float | None) -> NDArray[np.float64]:
        """Latency of a frame alone, over the grid: the median, or the quantile of a confidence."""
        return self.surface.latency_ms if confidence is None else self.surface.latency_quantile_ms(confidence)

    def latency_at_ms(self, confidence: float | None, index: tuple[int, int, int]) -> float:
        """The same at one configuration."""
        surface = self.surface
        slower, late = (0.0, 0.0) if confidence is None else surface.slower(confidence)
        return float(surface.latency_ms[index]) * math.exp(max(slower * float(surface.latency_sigma[index]), late))


@dataclass(frozen=True)
class LeasePlan:
    """Configuration planned for a lease, and the request behind it.

    Attributes:
        configuration: the clocks it needs, each a level of the board's grid.
        target: the target that was planned for, empty for a configuration asked for by itself.
        network: the name of the network it was planned for, or empty.
        fps: the frame rate it was planned for, if any.
        predicted: what the plan promised, as it goes over the wire.
        method: by which method it was predicted; empty where it was not.
        again: plans anew within other limits; None for a configuration asked for by itself.
        boundary: where the list of launches ends that was planned for, if before the end of its network.
        limits: those that it was planned within.
        plan: the plan, as it goes over the wire.
        missed: which part of the target is not kept at a configuration, in words; None where all of it is.
        limit_ms: how long a frame may take by target and frame rate; None for any time.
        confidence: with which that is to be kept, None for by median.
        unmet: why no configuration is predicted to meet the target, and which is the best; empty where one does.
        work: what its frames ask of the GPU; None where nobody knows.
        closest: plans for what comes closest to the target, whether anything meets it or not; None as ``again``.
        asked: what it asks of the board as a whole.
        guessed: the kernels whose cost is guessed, those that take most of the GPU's time first.
    """

    configuration: FrequencyConfiguration
    target: str = ""
    network: str = ""
    fps: float | None = None
    predicted: Mapping[str, Any] | None = None
    again: Callable[[Limits], LeasePlan] | None = field(default=None, compare=False)
    boundary: Boundary | None = None
    limits: Limits | None = None
    plan: Mapping[str, Any] | None = field(default=None, compare=False)
    missed: Callable[[FrequencyConfiguration], str | None] | None = field(default=None, compare=False)
    limit_ms: float | None = None
    confidence: float | None = None
    unmet: str = ""
    work: Work | None = field(default=None, compare=False)
    closest: Callable[[Limits], LeasePlan] | None = field(default=None, compare=False)
    asked: BoardConstraints = field(default_factory=BoardConstraints)
    method: str = ""
    guessed: tuple[Guess, ...] = ()

    @property
    def paced(self) -> bool:
        """Whether the application is known to idle for at least half of the time."""
        return self.fps is not None and self.predicted is not None and self.predicted["latency_ms"] * self.fps <= 500
