# SPDX-License-Identifier: Apache-2.0
"""Lowest clocks that leave other work its present demand.

CPU: other work may fill ``cpu_share`` of a cluster's busiest core, slightly less than under schedutil (a headroom of 1.25).
Deadlines much shorter than the averaging period need an operator's limit. EMC: other work may use ``emc_share``, as isochronous
clients (cameras, displays) come first only up to a part of the bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct, field

from ...kernels.grid import FrequencyGrid
from ...kernels.units import mhz, mhz_text

Share: TypeAlias = Annotated[float, Meta(gt=0, le=1, description="a number above 0, at most 1")]

_TITLES = {"cpu_khz": "CPU clock", "emc_hz": "memory clock"}


class FloorRules(Struct, frozen=True):
    """Share of a clock that other work may fill; ``pressure`` is the least added wait that counts."""

    cpu_share: Share = 0.7
    emc_share: Share = 0.3
    pressure: Share = 0.1
    hold_s: Annotated[float, Meta(gt=0, le=3600, description="a number above 0, at most 3600")] = 10.0


class Demand(Struct, frozen=True):
    """Demand of work outside the leases.

    Attributes:
        cpu_khz: by cpufreq policy, the clock at which its busiest core would never idle.
        emc_hz: memory clock in use; None if not counted.
        cpu_waiting, memory_waiting: added share of time in which tasks wait since the first lease.
    """

    cpu_khz: Mapping[str, float] = field(default_factory=dict)
    emc_hz: float | None = None
    cpu_waiting: float = 0.0
    memory_waiting: float = 0.0
    held_khz: Mapping[str, int] = field(default_factory=dict)
    held_hz: int = 0


class Floor(Struct, frozen=True):
    """Lower bound of ``cpu_khz``, ``emc_hz`` or a cpufreq policy, in the clock's unit."""

    clock: str
    least: int
    reason: str


class Floors(Struct, frozen=True):
    floors: tuple[Floor, ...] = ()

    def least(self, clock: str) -> int:
        return next((floor.least for floor in self.floors if floor.clock == clock), 0)

    @property
    def levels(self) -> dict[str, int]:
        return {floor.clock: floor.least for floor in self.floors}

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(floor.reason for floor in self.floors)


def floors(demand: Demand, grid: FrequencyGrid, rules: FloorRules, *, leader: str | None = None) -> Floors:
    """Lower bounds for a demand; ``leader`` is the policy of ``cpu_khz`` if clusters are set apart."""
    wanted: list[tuple[str, float, str]] = []
    for policy in {**demand.cpu_khz, **demand.held_khz}:
        used_khz = demand.cpu_khz.get(policy, 0.0)
        clock = policy if leader not in (None, policy) else "cpu_khz"
        used = f"other work uses {mhz('cpu_khz', used_khz):.0f} MHz of a core of {policy}"
        wanted.append((clock, used_khz / rules.cpu_share, used))
        for what, share in (("a CPU", demand.cpu_waiting), ("memory", demand.memory_waiting)):
            if share >= rules.pressure:
                need = demand.held_khz.get(policy, 0) * (1 + share)
                wanted.append((clock, need, f"tasks wait for {what} for {share:.0%} more of the time than before"))
    if demand.emc_hz is not None:
        used = f"other work uses {mhz('emc_hz', demand.emc_hz):.0f} MHz of the memory clock"
        wanted.append(("emc_hz", demand.emc_hz / rules.emc_share, used))
    if demand.memory_waiting >= rules.pressure:
        text = f"tasks wait for memory for {demand.memory_waiting:.0%} more of the time than before"
        wanted.append(("emc_hz", demand.held_hz * (1 + demand.memory_waiting), text))
    return Floors(tuple(_bounds(wanted, grid)))


def _bounds(demands: Iterable[tuple[str, float, str]], grid: FrequencyGrid) -> Iterator[Floor]:
    highest: dict[str, tuple[float, str]] = {}
    for clock, need, reason in demands:
        if need > highest.get(clock, (0.0, ""))[0]:
            highest[clock] = (need, reason)
    for clock, (need, reason) in highest.items():
        levels = grid.emc_hz if clock == "emc_hz" else grid.cpu_khz
        least = next((level for level in levels if level >= need), levels[-1])
        if least > levels[0]:
            title = _TITLES.get(clock) or f"CPU clock of {clock}"
            yield Floor(clock, least, f"{title} at least {mhz_text(clock, least)} MHz: {reason}")
