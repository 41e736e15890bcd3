# SPDX-License-Identifier: Apache-2.0
"""The clocks of a board and their drivers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from typing import NamedTuple

from msgspec import Struct

from ...kernels.grid import FrequencyConfiguration
from ...kernels.units import mhz_text
from ...profiles.board import BoardDescription
from ..errors import HardwareBusy, HardwareRefused
from .clocks import cpu, emc, gpu
from .clocks.domain import ClockDomain
from .clocks.driver import Clusters, Driver
from .files import Files


class _Axis(NamedTuple):
    name: str
    title: str
    probe: Callable[[Files, BoardDescription], Driver]
    observe: Callable[[Files, BoardDescription], int | None]


# In restore order: the memory first, since its lock starves other units.
_AXES = (
    _Axis("emc_hz", "memory clock", emc.probe, emc.observe),
    _Axis("gpu_hz", "GPU clock", gpu.probe, gpu.observe),
    _Axis("cpu_khz", "CPU clock", cpu.probe, cpu.observe),
)
TITLES = {axis.name: axis.title for axis in _AXES}


def title(axis: str) -> str:
    return TITLES.get(axis) or f"CPU clock of {axis}"


def megahertz(axis: str, level: int | None) -> str:
    if level is None:
        return "nothing"
    return f"{mhz_text(axis, level)} MHz"


class FixedAxis(Struct, frozen=True):
    """A clock that cannot be controlled; with ``waits``, a request waits for files that appear with the unit's first use."""

    level: int
    seen: bool
    reason: str
    may_appear: bool
    waits: bool = False


class Axes:
    """Drivers by axis or CPU cluster set apart; ``leave`` names axes never set."""

    def __init__(self, files: Files, description: BoardDescription, leave: Collection[str], clusters: Clusters) -> None:
        self.drivers: dict[str, Driver] = {}
        self.fixed: dict[str, FixedAxis] = {}
        self._files = files
        self._description = description
        self._leave = frozenset(leave)
        self._clusters = clusters
        for axis in _AXES:
            self._find(axis)
        self._find_clusters()

    @property
    def leader(self) -> str | None:
        """The cpufreq policy that ``cpu_khz`` sets alone; None if it sets all."""
        driver = self.drivers.get("cpu_khz")
        return driver.domains[0].name if self._clusters.apart and driver is not None else None

    @property
    def apart(self) -> tuple[str, ...]:
        return tuple(name for name in self.drivers if name not in TITLES)

    @property
    def memory(self) -> emc.EmcClock | None:
        driver = self.drivers.get("emc_hz")
        return driver if isinstance(driver, emc.EmcClock) else None

    @property
    def domains(self) -> list[ClockDomain]:
        names = (*TITLES, *self.apart)
        return [domain for name in names if name in self.drivers for domain in self.drivers[name].domains]

    def firmware_notes(self) -> list[str]:
        notes: list[str] = []
        for name, driver in self.drivers.items() if not self._description.like else ():
            if name not in TITLES or not (table := driver.table()):
                continue
            top, described = table[-1], getattr(self._description.grid, name)[-1]
            if top < described:
                known = [f for f, grid in self._description.firmware.items() if getattr(grid, name)[-1] == top]
                which = f" as with firmware {known[0]!r}" if known else ""
                ends = f"{TITLES[name]} ends at {megahertz(name, top)}{which}"
                notes.append(f"{ends}; this board is described up to {megahertz(name, described)}")
        return notes

    def _find(self, axis: _Axis) -> None:
        try:
            if axis.name in self._leave:
                raise HardwareRefused("the operator leaves it alone")
            self.drivers[axis.name] = self._probe(axis)
            self.fixed.pop(axis.name, None)
        except (HardwareBusy, HardwareRefused) as error:
            self.drivers.pop(axis.name, None)
            described: tuple[int, ...] = getattr(self._description.grid, axis.name)
            seen = axis.observe(self._files, self._description)
            level = min(described, key=lambda one: abs(one - seen)) if seen else described[-1]
            reason = str(error) if seen else f"{error}; it cannot be seen either"
            may_appear = axis.name not in self._leave
            waits = may_appear and axis.name == "gpu_hz" and gpu.waits(self._files, self._description)
            if waits:
                reason = f"{error}; it comes once the GPU is used, and is set then"
            self.fixed[axis.name] = FixedAxis(level, bool(seen), reason, may_appear, waits)

    def _probe(self, axis: _Axis) -> Driver:
        if axis.name != "cpu_khz" or not self._clusters.apart:
            return axis.probe(self._files, self._description)
        return cpu.probe(self._files, self._description, lead=self._clusters.leader)

    def _find_clusters(self) -> None:
        known = {name for name in self.drivers if name not in TITLES}
        leader = self.leader
        there = cpu.online(self._files) if leader is not None else ()
        others = {name: path for path in there if (name := path.rpartition("/")[2]) != leader}
        for name in known - others.keys():
            del self.drivers[name]
        for name, path in others.items():
            if name not in known:
                with contextlib.suppress(HardwareBusy, HardwareRefused):
                    self.drivers[name] = cpu.probe_cluster(self._files, self._description, path)

    def probe_again(self) -> None:
        for axis in _AXES:
            driver, fixed = self.drivers.get(axis.name), self.fixed.get(axis.name)
            if (fixed and fixed.may_appear) or (driver and driver.stale()):
                self._find(axis)
        self._find_clusters()


def in_words(configuration: FrequencyConfiguration) -> str:
    return ", ".join(f"{title(axis)} {megahertz(axis, level)}" for axis, level in configuration._asdict().items())


def listed(configuration: FrequencyConfiguration) -> str:
    return ",".join(map(str, configuration))
