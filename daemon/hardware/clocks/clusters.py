# SPDX-License-Identifier: Apache-2.0
"""Operator's choice for the CPU clusters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Clusters:
    """Control of a board's CPU clusters: together, or ``apart`` with ``cpu_khz`` for the leading one alone.

    ``leader`` is by default the first policy with most cores.
    """

    apart: bool = False
    leader: str | None = None
