# SPDX-License-Identifier: Apache-2.0
"""What the controller needs of the hardware and of what measures other work, and what it tells the hardware."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ...kernels.grid import FrequencyConfiguration
from ..hardware.applied import Applied
from ..hardware.baseline.baseline import RestoreReport
from ..hardware.clocks.driver import Reading
from ..hardware.offered import Offered
from .demand.demand import Leased
from .demand.floors import Demand, FloorRules


class Board(Protocol):
    """What the controller needs of :class:`jetdvfs.daemon.hardware.hardware.Hardware`."""

    @property
    def touched(self) -> bool: ...

    @property
    def leader(self) -> str | None: ...

    def offered(self) -> Offered: ...

    def levels(self, axis: str) -> tuple[int, ...]: ...

    def read(self) -> dict[str, tuple[Reading, ...]]: ...

    def throttled(self) -> tuple[str, ...]: ...

    def apply(
        self,
        configuration: FrequencyConfiguration,
        reason: str,
        clusters: Mapping[str, int] | None = None,
        offered: Offered | None = None,
    ) -> Applied: ...

    def keep_memory(self) -> bool: ...

    def keep_baseline(self) -> str: ...

    def restore(self, longest_s: float = 0.0) -> RestoreReport: ...


class Demands(Protocol):
    """What the controller needs of :class:`jetdvfs.daemon.leases.demand.demand.DemandMonitor`."""

    rules: FloorRules

    @property
    def notes(self) -> tuple[str, ...]: ...

    def sample(self, leased: Leased) -> None: ...

    def demand(self) -> Demand: ...


class BoardSetting(NamedTuple):
    """What the board is set to: the clocks, and those of CPU clusters that are set apart, in kHz by cpufreq policy."""

    configuration: FrequencyConfiguration
    clusters: Mapping[str, int]
