# SPDX-License-Identifier: Apache-2.0
"""The memory controller's clock, through one of the board's interfaces (see :mod:`.emc_interfaces`).

A lock would harm cameras and displays: it is taken only if the CPU's clock does not bring the memory to the requested level.
"""

from __future__ import annotations

from msgspec import Struct

from ....profiles.board import BoardDescription
from ...errors import DaemonError, HardwareBusy, HardwareRefused
from ..files import Files, Reader
from .domain import ClockDomain, Write, clamp
from .driver import OthersValue, Reading, agrees, whole_number
from .emc_interfaces import LIMITS, MAINLINE, MODE_WORDS, WAYS, find_past_limits, trained_hz, why_no_debugfs


class EmcClock(Struct):
    """The EMC clock.

    Attributes:
        floors: lowest rate that the kernel requests by CPU clock: (CPU at least this many kHz, EMC Hz), falling.
        past_limits: rate lock and bandwidth manager's halt that override the limits.
        kept_hz: requested level while the kernel keeps it without a lock.
    """

    files: Files
    way: str
    domain: ClockDomain
    counter: str | None
    rate: str | None
    trained_hz: tuple[int, ...]
    transition_ms: float
    floors: tuple[tuple[int, int], ...] = ()
    past_limits: tuple[Write, ...] = ()
    halt: str | None = None
    why: str = ""
    axis: str = "emc_hz"
    kept_hz: int | None = None

    @property
    def domains(self) -> tuple[ClockDomain, ...]:
        return (self.domain,)

    @property
    def notes(self) -> tuple[str, ...]:
        if self.way != "cap":
            return ()
        why = f" ({self.why})" if self.why else ""
        return (f"memory clock can only be capped{why}: it moves below the requested clock",)

    def stale(self) -> bool:
        """True if a rate lock now makes limits useless, or the lock that sets the clock was released."""
        return bool(self.past_limits) and any(_is_set(self.files, one) for one in self.past_limits) == (self.way in LIMITS)

    def table(self) -> tuple[int, ...]:
        return self.trained_hz

    def levels(self, table: tuple[int, ...], others: OthersValue) -> tuple[int, ...]:
        """Frequencies in Hz that the memory is trained for, within the firmware's limits and below every cap."""
        low, high = self.domain.bounds(self.files)
        shared = self.domain.high or (self.domain.setpoint if self.domain.mode is None else None)
        # Zero is no limit.
        if shared is not None and (ceiling := whole_number(shared, others(shared))):
            high = ceiling if high is None else min(high, ceiling)
        offered = tuple(level for level in table if clamp(level, (low, high)) == level)
        if not offered:
            raise HardwareRefused(f"{self.domain.paths[0]}: no trained rate within {low} and {high}; trained: {table}")
        return offered

    def read(self) -> tuple[Reading, ...]:
        mode, accepted = self.domain.request(self.files)
        measured = self.files.find_rate(self.counter) if self.counter else None
        if measured is None and accepted is None and self.rate:
            measured = self.files.find_rate(self.rate)
        if accepted is None and self.kept_hz is not None and measured and agrees(measured, self.kept_hz):
            accepted = self.kept_hz
        word = MODE_WORDS.get(self.way, {}).get(mode or "", self.way if mode is None else "unknown")
        return (Reading(accepted, measured, word),)

    def measured(self) -> tuple[int | None, ...]:
        return (self.files.find_rate(self.counter) if self.counter else None,)

    def plan(self, level: int, files: Reader) -> tuple[Write, ...]:
        return self.domain.plan(files, level)

    def trust_kernel(self, level: int, cpu_khz: int, offered: tuple[int, ...], files: Reader) -> bool:
        """Leave the level to the kernel if it is the highest and this CPU clock's floor is not below it; True if left."""
        floor = next((emc for khz, emc in self.floors if cpu_khz >= khz), 0)
        mode = self.domain.mode
        unlocked = mode is not None and files.find_text(mode.path) != mode.value
        kept = unlocked and level == offered[-1] and not any(floor <= other < level for other in offered)
        self.kept_hz = level if kept else None
        return kept

    def unlock(self) -> tuple[Write, ...]:
        mode = self.domain.mode
        if mode is None or not _is_set(self.files, mode):
            return ()
        halts = (one for one in self.domain.companions if one.path == self.halt and _is_set(self.files, one))
        return (*(Write(one.path, "0") for one in halts), Write(mode.path, "0"))


def probe(files: Files, description: BoardDescription) -> EmcClock:
    """Find the first working interface: limits, unless a lock makes the clock ignore them; else in the description's order.

    Raises HardwareBusy if none works (yet): no root, debugfs not mounted, or a locked-down kernel.
    """
    section = description.section("emc")
    failed = []
    drivers = (*section["drivers"], *(("mainline",) if files.exists(MAINLINE) else ()))
    past_limits = find_past_limits(files, section)
    # Limits leave the bandwidth manager in charge; a lock bypasses it. A lock already taken is the only interface that works.
    locked = any(_is_set(files, one) for one in past_limits)
    for name in sorted(drivers, key=lambda way: (way in LIMITS) == locked):
        if name not in WAYS:
            raise HardwareRefused(f"board {description.name}: no driver for emc driver {name!r}; there are: {', '.join(WAYS)}")
        try:
            domain, counter, rate = WAYS[name](files, section)
        except DaemonError as error:
            failed.append(str(error))
            continue
        trained = trained_hz(files, section) or description.grid.emc_hz
        pairs = description.section("cpu").get("emc_floors", ())
        floors = tuple(sorted(((int(khz), int(hz)) for khz, hz in pairs), reverse=True))
        transition_ms, halt = float(section["transition_ms"]), section.get("halt")
        why = why_no_debugfs(files, failed)
        return EmcClock(files, name, domain, counter, rate, trained, transition_ms, floors, past_limits, halt, why)
    raise HardwareBusy("; ".join(filter(None, (why_no_debugfs(files, failed), *failed))))


def _is_set(files: Files, switch: Write) -> bool:
    return files.find_text(switch.path) == switch.value


def observe(files: Files, description: BoardDescription) -> int | None:
    section = description.section("emc")
    places = {"bpmp": "rate", "override": "clk_rate", "devfreq": "cur_freq"}
    seen = (files.find_rate(f"{section[way]}/{name}") for way, name in places.items() if way in section)
    return next((rate for rate in seen if rate), None)
