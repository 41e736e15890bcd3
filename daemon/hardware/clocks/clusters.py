# SPDX-License-Identifier: Apache-2.0
"""CPU clusters, as the operator chose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Clusters:
    """Control of CPU clusters: together, or ``apart`` with ``cpu_khz`` for the ``leader``, by default the first with most
    cores.
    """

    apart: bool = False
    leader: str | None = None
