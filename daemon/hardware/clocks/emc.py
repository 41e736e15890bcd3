# SPDX-License-Identifier: Apache-2.0
"""The memory controller's clock, by one of the board's ways to it that this system has.

``bpmp``: a rate under a lock in the firmware's debugfs node (Tegra186 and later). While it is held the firmware ignores what
cameras, displays and the bandwidth manager ask for, and it outlives the process that took it. ``override``: the override
clock of Tegra210, which takes a rate before it is in force. ``devfreq``: equal limits of the bandwidth manager (JetPack 7).
``cap``: nvpmodel's upper limit (JetPack 6), below which the clock goes on moving. Rates asked for are rounded up to one the
memory is trained for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ....profiles.board import BoardDescription
from ...errors import DaemonError, HardwareBusy, HardwareRefused
from ..files import Files
from .domain import ClockDomain, OthersValue, Reading, Write, clamp
from .governed import limited_domain

_LIMITS = ("devfreq",)
_WORDS = {
    "bpmp": {"0": "unlocked", "1": "locked"},
    "override": {"0": "unlocked", "1": "override"},
    "devfreq": {},
    "cap": {},
}


@dataclass(frozen=True)
class EmcClock:
    """The EMC clock.

    Attributes:
        way: the name of the way to it.
        counter: the file that measures the clock, if there is one.
        rate: the file that says where it stands while nobody holds it.
        trained_hz: the rates that the running system lists.
        floors: the lowest rate that the kernel asks for at each CPU clock: (CPU at least this many kHz, EMC Hz), falling.
        foreign: where the clock is set by limits, the rate lock that goes past them, and the bandwidth manager's halt.
    """

    files: Files
    way: str
    domain: ClockDomain
    counter: str | None
    rate: str | None
    trained_hz: tuple[int, ...]
    transition_ms: float
    floors: tuple[tuple[int, int], ...] = ()
    foreign: tuple[Write, ...] = ()
    axis: str = "emc_hz"

    @property
    def domains(self) -> tuple[ClockDomain, ...]:
        return (self.domain,)

    @property
    def notes(self) -> tuple[str, ...]:
        notes = [f"memory clock does not follow its limits: {write.path} is set" for write in self.unlock() if self.foreign]
        notes += ["memory clock can only be capped: it moves below what is asked for"] if self.way == "cap" else []
        return tuple(notes)

    def stale(self) -> bool:
        return False

    def table(self) -> tuple[int, ...]:
        return self.trained_hz

    def levels(self, others: OthersValue) -> tuple[int, ...]:
        """The frequencies in Hz that the memory is trained for, between the firmware's limits and below every cap."""
        low, high = self.domain.bounds(self.files)
        shared = self.domain.high or (self.domain.setpoint if self.domain.mode is None else None)
        # Zero is no limit.
        if shared is not None and (ceiling := int(others(shared))):
            high = ceiling if high is None else min(high, ceiling)
        offered = tuple(level for level in self.trained_hz if clamp(level, (low, high)) == level)
        if not offered:
            raise HardwareRefused(
                f"{self.domain.paths[0]}: no trained rate within {low} and {high}; trained: {self.trained_hz}"
            )
        return offered

    def read(self) -> tuple[Reading, ...]:
        """One reading; a set rate is the firmware's bookkeeping, the counter a measurement of the clock."""
        mode, accepted = self.domain.request(self.files)
        measured = self.files.find_int(self.counter) if self.counter else None
        if measured is None and accepted is None and self.rate:
            measured = self.files.find_int(self.rate)
        return (Reading(accepted, measured, _WORDS[self.way].get(mode or "", self.way if mode is None else "unknown")),)

    def plan(self, level: int) -> tuple[Write, ...]:
        return self.domain.plan(self.files, level)

    def kept_by_kernel(self, level: int, cpu_khz: int, offered: tuple[int, ...]) -> bool:
        """Whether the kernel keeps the memory at this level by itself at a CPU clock, so that a lock would change nothing.

        That is so at the highest level offered, where the floor that comes with the CPU clock is not below it.
        """
        floor = next((emc for khz, emc in self.floors if cpu_khz >= khz), 0)
        mode = self.domain.mode
        unlocked = mode is not None and self.files.find_text(mode.path) != mode.value
        return unlocked and level == offered[-1] and not any(floor <= other < level for other in offered)

    def unlock(self) -> tuple[Write, ...]:
        """The writes that end a lock, whoever took it, and give the memory clock back to the firmware; none where none is."""
        mode = self.domain.mode
        if mode is None:
            return tuple(Write(one.path, "0") for one in self.foreign if self.files.find_text(one.path) == one.value)
        if self.files.find_text(mode.path) != mode.value:
            return ()
        halts = (one.path for one in self.domain.companions if one.path.endswith("bwmgr_halt"))
        return (*(Write(path, "0") for path in halts), Write(mode.path, "0"))


def probe(files: Files, description: BoardDescription) -> EmcClock:
    """Find the first way that works: limits before a lock, else in the description's order.

    Raises:
        HardwareBusy: none does (yet): no root, debugfs not mounted, or a locked-down kernel.
        HardwareRefused: the board's description names a way there is no driver for.
    """
    section = description.section("emc")
    failed = []
    # Limits leave the bandwidth manager in charge; a lock goes past it.
    for name in sorted(section["drivers"], key=lambda way: way not in _LIMITS):
        if name not in _WAYS:
            raise HardwareRefused(f"board {description.name}: no driver for emc driver {name!r}; there are: {', '.join(_WAYS)}")
        try:
            domain, counter, rate = _WAYS[name](files, section)
        except DaemonError as error:
            failed.append(str(error))
            continue
        trained = _trained(files, section) or description.grid.emc_hz
        pairs = description.section("cpu").get("emc_floors", ())
        floors = tuple(sorted(((int(khz), int(hz)) for khz, hz in pairs), reverse=True))
        foreign = () if domain.mode else _past_limits(files, section)
        return EmcClock(files, name, domain, counter, rate, trained, float(section["transition_ms"]), floors, foreign)
    raise HardwareBusy("; ".join(failed))


def observe(files: Files, description: BoardDescription) -> int | None:
    """The memory clock in Hz without any control over it, or None where it cannot be seen."""
    section = description.section("emc")
    places = {"bpmp": "rate", "override": "clk_rate", "devfreq": "cur_freq"}
    seen = (files.find_int(f"{section[way]}/{name}") for way, name in places.items() if way in section)
    return next((rate for rate in seen if rate), None)


_Found = tuple[ClockDomain, str | None, str | None]


def _bpmp(files: Files, section: Mapping[str, Any]) -> _Found:
    path = str(section["bpmp"])
    files.read_int(f"{path}/mrq_rate_locked"), files.read_int(f"{path}/rate")
    companions = (f"{path}/state", *([section["halt"]] if "halt" in section else []))
    domain = ClockDomain(
        "emc",
        Write(f"{path}/mrq_rate_locked", "1"),
        f"{path}/rate",
        companions=tuple(Write(companion, "1") for companion in companions if files.exists(companion)),
        floors=(f"{path}/min_rate",),
        ceilings=(f"{path}/max_rate", *_caps(section)),
    )
    return domain, f"{path}/pto_counter", f"{path}/rate"


def _override(files: Files, section: Mapping[str, Any]) -> _Found:
    path, limits = str(section["override"]), str(section["bwmgr"])
    files.read_int(f"{path}/clk_state"), files.read_int(f"{path}/clk_rate")
    domain = ClockDomain(
        "emc",
        Write(f"{path}/clk_state", "1"),
        f"{path}/clk_update_rate",
        floors=(f"{limits}/emc_min_rate",),
        ceilings=(f"{limits}/emc_max_rate", *_caps(section)),
        readback=f"{path}/clk_rate",
        early=True,
    )
    return domain, f"{path}/clk_rate", f"{path}/clk_rate"


def _devfreq(files: Files, section: Mapping[str, Any]) -> _Found:
    path = str(section["devfreq"])
    return limited_domain(files, "emc", f"{path}/min_freq", f"{path}/max_freq"), f"{path}/cur_freq", f"{path}/cur_freq"


def _cap(files: Files, section: Mapping[str, Any]) -> _Found:
    path = str(section["cap"])
    files.read_int(path)
    return ClockDomain("emc", setpoint=path), None, None


def _past_limits(files: Files, section: Mapping[str, Any]) -> tuple[Write, ...]:
    paths = [section["halt"]] if "halt" in section else []
    paths += [f"{section['bpmp']}/mrq_rate_locked"] if "bpmp" in section else []
    return tuple(Write(path, "1") for path in paths if files.exists(path))


def _caps(section: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(section.get("caps", [section["cap"]] if "cap" in section else []))


def _trained(files: Files, section: Mapping[str, Any]) -> tuple[int, ...]:
    """The rates in Hz that the firmware lists: as files named by their kHz, or as lines of number and rate."""
    names = files.list_names(str(section["tables"])) if "tables" in section else ()
    lines = (files.find_text(str(section["table"])) or "").splitlines() if "table" in section else []
    rates = {1000 * int(name) for name in names if name.isdigit()}
    rates |= {int(words[1]) for line in lines if len(words := line.split()) > 1 and words[1].isdigit()}
    return tuple(sorted(rates))


_WAYS: dict[str, Callable[[Files, Mapping[str, Any]], _Found]] = {
    "bpmp": _bpmp,
    "override": _override,
    "devfreq": _devfreq,
    "cap": _cap,
}
