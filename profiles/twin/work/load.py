# SPDX-License-Identifier: Apache-2.0
"""What else runs on a simulated board: the seam for co-runners, which load CPU clusters and memory and feel the clocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class BoardClocks:
    """The clocks the hardware runs at: each cpufreq policy's in kHz by its name (only those with a core online), the others
    in Hz."""

    cpu_khz: Mapping[str, int]
    gpu_hz: int
    emc_hz: int


@dataclass(frozen=True)
class Load:
    """What a co-runner takes at some moment.

    Attributes:
        cpu: cores that it keeps busy, by cpufreq policy (``{"policy0": 0.3}``: a third of one core).
        memory_bytes_s: bandwidth that it uses.
        emc_hz: the memory clock that it asks the bandwidth manager for, as cameras and displays do.
    """

    cpu: Mapping[str, float] = field(default_factory=dict)
    memory_bytes_s: float = 0.0
    emc_hz: float = 0.0


class CoRunner(Protocol):
    """Something that runs beside the applications. The board calls it while it stands still; it must not call the board."""

    def load(self, now: float, clocks: BoardClocks) -> Load:
        """What it takes from now on, until :meth:`due` or a change of a clock."""
        ...

    def due(self, now: float, clocks: BoardClocks) -> float:
        """The first moment after now at which something happens to it by itself (a frame, a deadline); infinity: never."""
        ...

    def elapse(self, start: float, seconds: float, clocks: BoardClocks) -> None:
        """Time passes in which its load and the clocks stay as they are; ``start + seconds`` is never past :meth:`due`."""
        ...
