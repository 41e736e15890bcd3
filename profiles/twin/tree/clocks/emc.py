# SPDX-License-Identifier: Apache-2.0
"""Memory clock: requests, lock and caps, and each system's files of it."""

from __future__ import annotations

import errno
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..attributes import Attribute, Nodes, constant, refusal, scan_unsigned, whole_number
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


def bpmp_files(memory: SimulatedMemoryClock, section: Mapping[str, Any], read_s: float) -> Nodes:
    """Firmware node of the memory clock.

    Args:
        section: the board's ``emc`` section: ``bpmp``; optional ``tables`` (files named by kHz), ``table`` (lines of number and
            rate), ``halt`` (stops the bandwidth manager).
        read_s: response time of the firmware.
    """
    folder, clock, turn, state = str(section["bpmp"]), memory.clock, threading.Lock(), 1

    def set_state(text: str) -> None:
        nonlocal state
        state = int(whole_number(text) != 0)

    def set_halt(text: str) -> float:
        memory.halted = whole_number(text) != 0
        return 0.0 if memory.locked else memory.serve()

    def file(value: Callable[[], object], write: Callable[[str], float | None] | None = None) -> Attribute:
        return Attribute(value, write, mode=0o600 if write else 0o400, delay_s=read_s, turn=turn)

    yield f"{folder}/rate", file(lambda: clock.requested, lambda text: memory.set_rate(whole_number(text)))
    yield f"{folder}/min_rate", file(lambda: clock.rates[0])
    yield f"{folder}/max_rate", file(lambda: clock.rates[-1])
    yield f"{folder}/state", file(lambda: state, set_state)
    yield f"{folder}/mrq_rate_locked", file(lambda: int(memory.locked), lambda text: memory.lock(whole_number(text) != 0))
    yield f"{folder}/pto_counter", file(lambda: round(clock.actual * _COUNTED))
    if "tables" in section:
        for rate in clock.rates:
            yield f"{section['tables']}/{rate // 1000}", Attribute(lambda: "", mode=0o400)
    if "table" in section:
        lines = "\n".join(f"{number} {rate}" for number, rate in enumerate(clock.rates))
        yield str(section["table"]), file(lambda: lines)
    if "halt" in section:
        yield str(section["halt"]), file(lambda: int(memory.halted), set_halt)


def bwmgr_devfreq(memory: SimulatedMemoryClock, path: str) -> Nodes:
    """Bandwidth manager with limits in any order; the upper one wins, as for devfreq since 5.10."""
    asked, turn = [0, 0], threading.Lock()

    def limits() -> tuple[int, int]:
        bottom, top = memory.clock.rates[0], memory.clock.rates[-1]
        high = min(asked[1] or top, top)
        return min(max(asked[0], bottom), high), high

    def set_low(text: str) -> float:
        asked[0] = scan_unsigned(text) // 1000 * 1000
        return memory.set_limits(*limits())

    def set_high(text: str) -> float:
        asked[1] = -(-scan_unsigned(text) // 1000) * 1000
        return memory.set_limits(*limits())

    yield f"{path}/name", constant("bwmgr")
    yield f"{path}/governor", constant("tegra_wmark")
    yield f"{path}/cur_freq", Attribute(lambda: memory.clock.settled)
    yield f"{path}/min_freq", Attribute(lambda: limits()[0], set_low, turn=turn)
    yield f"{path}/max_freq", Attribute(lambda: limits()[1], set_high, turn=turn)


def iso_cap(memory: SimulatedMemoryClock, path: str) -> Nodes:
    """``emc_iso_cap`` of JetPack 4 and 5: any number; zero is no limit."""
    yield path, Attribute(lambda: memory.cap, lambda text: memory.set_cap(whole_number(text)), mode=0o660)


def clock_cap(memory: SimulatedMemoryClock, path: str, boot_hz: int | None) -> Nodes:
    """``nvpmodel_clk_cap`` of JetPack 6 and later: a limit rounded to a rate.

    Rounding is clamped by the present cap, so this file never raises one (tiiuae/ghaf#2071). The power hinting service does.

    Args:
        boot_hz: firmware cap at boot without that service, or None.
    """
    top = memory.clock.rates[-1]
    memory.cap = min(memory.cap or top, boot_hz or top)

    def set_cap(text: str) -> float:
        rounded = memory.clock.at_least(whole_number(text))
        return memory.set_cap(rounded if boot_hz is None else min(rounded, memory.ceiling))

    yield path, Attribute(lambda: memory.cap, set_cap, mode=0o664)


def override_files(memory: SimulatedMemoryClock, section: Mapping[str, Any]) -> Nodes:
    """``override.emc``: takes a rate by ``clk_update_rate`` and holds it while ``clk_state`` is 1."""
    folder, limits, clock = str(section["override"]), str(section["bwmgr"]), memory.clock
    turn, wanted = threading.Lock(), clock.rates[-1]

    def set_rate(text: str) -> float:
        nonlocal wanted
        wanted = whole_number(text)
        return memory.set_rate(wanted)

    def set_state(text: str) -> float:
        on = whole_number(text) != 0
        if on == memory.locked:
            return 0.0
        held_up = memory.lock(on)
        return memory.set_rate(wanted) if on else held_up

    yield f"{folder}/clk_rate", Attribute(lambda: clock.requested, mode=0o444)
    yield f"{folder}/clk_update_rate", Attribute(None, set_rate, mode=0o200, turn=turn)
    yield f"{folder}/clk_state", Attribute(lambda: int(memory.locked), set_state, mode=0o600, turn=turn)
    yield f"{limits}/emc_min_rate", Attribute(lambda: clock.rates[0], mode=0o400)
    yield f"{limits}/emc_max_rate", Attribute(lambda: clock.rates[-1], mode=0o400)


def mainline_emc(memory: SimulatedMemoryClock, path: str = "/sys/kernel/debug/emc") -> Nodes:
    """Limits in a mainline kernel's debugfs (Linux, drivers/memory/tegra/tegra186-emc.c)."""
    clock, limits = memory.clock, [memory.clock.rates[0], memory.clock.rates[-1]]

    def set_limits(low: int, high: int) -> float:
        if low > high or not {low, high}.issubset(clock.rates):
            raise refusal(errno.EINVAL)
        limits[:] = low, high
        return memory.set_limits(low, high)

    yield f"{path}/available_rates", constant(" ".join(map(str, clock.rates)))
    yield f"{path}/min_rate", Attribute(lambda: limits[0], lambda text: set_limits(scan_unsigned(text), limits[1]))
    yield f"{path}/max_rate", Attribute(lambda: limits[1], lambda text: set_limits(limits[0], scan_unsigned(text)))
    yield "/sys/kernel/debug/clk/emc/clk_rate", Attribute(lambda: clock.settled)
