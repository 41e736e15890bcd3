# SPDX-License-Identifier: Apache-2.0
"""Memory clock: requests, lock and caps, and each system's files of it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..attributes import Attribute, Link, constant, scan_unsigned, whole_number
from .clock import SimulatedClock

_COUNTING_S = 0.010  # over which the activity monitor averages
_HEADROOM = 1.25
_EFFICIENCY = 0.7  # of the peak bandwidth that a client can count on


class SimulatedMemoryClock:
    """The memory clock. Rates are in Hz.

    Args:
        floors: lowest memory clock by CPU clock: (CPU at least this many kHz, EMC Hz), falling.
        bytes_per_cycle: DRAM bytes per cycle.

    Attributes:
        locked: True if a rate is held against requests.
        halted: True if the bandwidth manager is stopped.
        cap: upper limit of the power mode; 0 is no limit.
        limits: of the bandwidth manager, for requests.
    """

    def __init__(self, clock: SimulatedClock, floors: Sequence[tuple[int, int]], bytes_per_cycle: float) -> None:
        self.clock = clock
        self.locked = False
        self.halted = False
        self.cap = 0
        self.limits: tuple[int, int | None] = (0, None)
        self._floors = tuple(floors)
        self._bytes_per_cycle = bytes_per_cycle
        self._counted_bytes_s = 0.0
        self._others_hz = 0.0
        self._wanted = 0.0

    @property
    def ceiling(self) -> int:
        top = self.clock.rates[-1]
        return self.clock.at_most(self.cap) if 0 < self.cap < top else top

    @property
    def activity_khz(self) -> int:
        """Count of the activity monitor: used kHz of the memory clock."""
        return round(min(self._counted_bytes_s / self._bytes_per_cycle + self._others_hz, self.clock.actual) / 1e3)

    def count(self, seconds: float, bytes_s: float) -> None:
        near = 1.0 - math.exp(-seconds / _COUNTING_S)
        self._counted_bytes_s += near * (bytes_s - self._counted_bytes_s)

    def follow(self, cpu_khz: int, gpu_share: float, others_bytes_s: float = 0.0, others_hz: float = 0.0) -> bool:
        """Serve requests unless locked; returns True if the clock moved.

        Args:
            cpu_khz: highest CPU clock, which sets the floor.
            gpu_share: GPU clock times load, as a share of the highest, for its bandwidth request.
            others_bytes_s: bandwidth of cameras, displays and other processes.
            others_hz: clock requested by one of them.
        """
        asked_hz = _HEADROOM * gpu_share * self.clock.rates[-1]
        self._others_hz = others_bytes_s / self._bytes_per_cycle
        floor = next((emc for cpu, emc in self._floors if cpu_khz >= cpu), self.clock.rates[0])
        self._wanted = max(floor, others_hz, asked_hz + self._others_hz / _EFFICIENCY)
        return not self.locked and self.serve() > 0

    def serve(self) -> float:
        """Go to the requested rate; returns the caller's delay, as the following do."""
        if self.halted:
            return 0.0
        low, high = self.limits
        wanted = max(self._wanted, low)
        ceiling = self.ceiling if high is None else min(self.ceiling, self.clock.at_most(high))
        return self.clock.request(min(self.clock.at_least(wanted), ceiling))

    def lock(self, locked: bool) -> float:
        self.locked = locked
        return 0.0 if locked else self.serve()

    def set_rate(self, rate: int) -> float:
        """Set the locked rate; no effect without the lock."""
        return self.clock.request(min(self.clock.at_least(rate), self.ceiling)) if self.locked else 0.0

    def set_cap(self, cap: int) -> float:
        self.cap = cap
        return 0.0 if self.locked else self.serve()

    def set_limits(self, low: int, high: int | None) -> float:
        self.limits = (low, high)
        return 0.0 if self.locked else self.serve()


_COUNTED = 0.99776  # the hardware counter against the firmware's bookkeeping, as seen on a real board


class BpmpFiles:
    """Firmware node of the memory clock.

    Args:
        section: the board's ``emc`` section: ``bpmp``; optional ``tables`` (files named by kHz), ``table`` (lines of number and
            rate), ``halt`` (stops the bandwidth manager).
        read_s: response time of the firmware.
    """

    def __init__(self, memory: SimulatedMemoryClock, section: Mapping[str, Any], read_s: float) -> None:
        self._memory = memory
        self._section = section
        self._read_s = read_s
        self._state = 1
        self._turn = threading.Lock()

    def _set_lock(self, text: str) -> float:
        return self._memory.lock(whole_number(text) != 0)

    def _set_rate(self, text: str) -> float:
        return self._memory.set_rate(whole_number(text))

    def _set_state(self, text: str) -> float:
        self._state = int(whole_number(text) != 0)
        return 0.0

    def _set_halt(self, text: str) -> float:
        self._memory.halted = whole_number(text) != 0
        return 0.0 if self._memory.locked else self._memory.serve()

    def _file(self, value: Callable[[], object], write: Callable[[str], float] | None = None) -> Attribute:
        mode = 0o600 if write else 0o400
        return Attribute(lambda: str(value()), write, mode=mode, delay_s=self._read_s, turn=self._turn)

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        folder, clock = str(self._section["bpmp"]), self._memory.clock
        yield f"{folder}/rate", self._file(lambda: clock.requested, self._set_rate)
        yield f"{folder}/min_rate", self._file(lambda: clock.rates[0])
        yield f"{folder}/max_rate", self._file(lambda: clock.rates[-1])
        yield f"{folder}/state", self._file(lambda: self._state, self._set_state)
        yield f"{folder}/mrq_rate_locked", self._file(lambda: int(self._memory.locked), self._set_lock)
        yield f"{folder}/pto_counter", self._file(lambda: round(clock.actual * _COUNTED))
        if "tables" in self._section:
            for rate in clock.rates:
                yield f"{self._section['tables']}/{rate // 1000}", Attribute(lambda: "", mode=0o400)
        if "table" in self._section:
            lines = "\n".join(f"{number} {rate}" for number, rate in enumerate(clock.rates))
            yield str(self._section["table"]), self._file(lambda: lines)
        if "halt" in self._section:
            yield str(self._section["halt"]), self._file(lambda: int(self._memory.halted), self._set_halt)


class BwmgrDevfreq:
    """Bandwidth manager with limits in any order; the upper one wins, as for devfreq since 5.10."""

    def __init__(self, memory: SimulatedMemoryClock, path: str) -> None:
        self._memory = memory
        self._path = path
        self._low = 0
        self._high = 0
        self._turn = threading.Lock()

    @property
    def _limits(self) -> tuple[int, int]:
        bottom, top = self._memory.clock.rates[0], self._memory.clock.rates[-1]
        high = min(self._high or top, top)
        return min(max(self._low, bottom), high), high

    def _apply(self) -> float:
        return self._memory.set_limits(*self._limits)

    def _set_low(self, text: str) -> float:
        self._low = scan_unsigned(text) // 1000 * 1000
        return self._apply()

    def _set_high(self, text: str) -> float:
        self._high = -(-scan_unsigned(text) // 1000) * 1000
        return self._apply()

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        memory = self._memory
        yield f"{self._path}/name", constant("bwmgr")
        yield f"{self._path}/governor", constant("tegra_wmark")
        yield f"{self._path}/cur_freq", Attribute(lambda: str(memory.clock.settled))
        yield f"{self._path}/min_freq", Attribute(lambda: str(self._limits[0]), self._set_low, turn=self._turn)
        yield f"{self._path}/max_freq", Attribute(lambda: str(self._limits[1]), self._set_high, turn=self._turn)


class IsoCap:
    """``emc_iso_cap`` of JetPack 4 and 5: any number; zero is no limit."""

    def __init__(self, memory: SimulatedMemoryClock, path: str) -> None:
        self._memory = memory
        self._path = path

    def _set(self, text: str) -> float:
        return self._memory.set_cap(whole_number(text))

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        yield self._path, Attribute(lambda: str(self._memory.cap), self._set, mode=0o660)


class ClockCap:
    """``nvpmodel_clk_cap`` of JetPack 6 and later: a limit rounded to a rate.

    Rounding is clamped by the present cap, so this file never raises one (tiiuae/ghaf#2071). The power hinting service does.

    Args:
        boot_hz: firmware cap at boot without that service, or None.
    """

    def __init__(self, memory: SimulatedMemoryClock, path: str, boot_hz: int | None) -> None:
        self._memory = memory
        self._path = path
        self._raised = boot_hz is None
        memory.cap = min(memory.cap or memory.clock.rates[-1], boot_hz or memory.clock.rates[-1])

    def _set(self, text: str) -> float:
        rounded = self._memory.clock.at_least(whole_number(text))
        return self._memory.set_cap(rounded if self._raised else min(rounded, self._memory.ceiling))

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        yield self._path, Attribute(lambda: str(self._memory.cap), self._set, mode=0o664)


class ActivityMonitor:
    """``mc_all``: kHz of the memory clock in use."""

    def __init__(self, memory: SimulatedMemoryClock, path: str) -> None:
        self._memory = memory
        self._path = path

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        yield self._path, Attribute(lambda: str(self._memory.activity_khz))


class OverrideFiles:
    """``override.emc``: takes a rate by ``clk_update_rate`` and holds it while ``clk_state`` is 1."""

    def __init__(self, memory: SimulatedMemoryClock, section: Mapping[str, Any]) -> None:
        self._memory = memory
        self._section = section
        self._rate = memory.clock.rates[-1]
        self._turn = threading.Lock()

    def _set_rate(self, text: str) -> float:
        self._rate = whole_number(text)
        return self._memory.set_rate(self._rate)

    def _set_state(self, text: str) -> float:
        on = whole_number(text) != 0
        if on == self._memory.locked:
            return 0.0
        held_up = self._memory.lock(on)
        return self._memory.set_rate(self._rate) if on else held_up

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        folder, limits, clock = str(self._section["override"]), str(self._section["bwmgr"]), self._memory.clock
        yield f"{folder}/clk_rate", Attribute(lambda: str(clock.requested), mode=0o444)
        yield f"{folder}/clk_update_rate", Attribute(None, self._set_rate, mode=0o200, turn=self._turn)
        yield (
            f"{folder}/clk_state",
            Attribute(lambda: str(int(self._memory.locked)), self._set_state, mode=0o600, turn=self._turn),
        )
        yield f"{limits}/emc_min_rate", Attribute(lambda: str(clock.rates[0]), mode=0o400)
        yield f"{limits}/emc_max_rate", Attribute(lambda: str(clock.rates[-1]), mode=0o400)
