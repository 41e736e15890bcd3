# SPDX-License-Identifier: Apache-2.0
"""Operator's choice for the CPU clusters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Clusters:
    """Control of a board's CPU clusters.

    Attributes:
        apart: ``cpu_khz`` sets the leading cluster alone; each other cluster is an axis of its own, by its cpufreq policy.
        leader: the leading cluster's policy; by default the first with most cores.
    """

    apart: bool = False
    leader: str | None = None
