# SPDX-License-Identifier: Apache-2.0
"""How the clusters of a CPU are set: an operator's decision."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Clusters:
    """How the CPU clusters of a board are set.

    Attributes:
        apart: ``cpu_khz`` sets the leading cluster alone, and each other one is an axis of its own, by its cpufreq policy.
        leader: the leading cluster's policy; by default the one with most cores, of several the first.
    """

    apart: bool = False
    leader: str | None = None
