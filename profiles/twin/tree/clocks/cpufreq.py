# SPDX-License-Identifier: Apache-2.0
"""cpufreq and CPU hotplug files like Linux 5.10 (drivers/cpufreq/cpufreq.c, freq_table.c, cpufreq_userspace.c).

Limits go through frequency QoS: any unsigned number in any order, clamped on use, and the upper limit wins. They take effect
after the write has returned.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from functools import partial

from ..attributes import Attribute, Link, Nodes, constant, refusal, scan_unsigned, scan_word, truth
from .clock import SimulatedClock
from .governors import CPU_GOVERNORS, Utilization

CPU_ROOT = "/sys/devices/system/cpu"
_NAME_LENGTH = 15
_LATENCY_NS = 300_000
# The kernel reports its setting if its 500 us measurement is this close.
_SNAP_KHZ = 115_200


def _ranges(cpus: Sequence[int]) -> str:
    """CPU list in the kernel's form: ``0-3,6``."""
    parts: list[list[int]] = []
    for cpu in cpus:
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], cpu]
        else:
            parts.append([cpu])
    return ",".join("-".join(map(str, part)) for part in parts)


class SimulatedCores:
    def __init__(self, count: int, idle_states: Sequence[str]) -> None:
        self.online = [True] * count
        self._idle_states = tuple(idle_states)
        self._disabled = [[False] * len(self._idle_states) for _ in range(count)]

    def is_online(self, cpu: int) -> bool:
        return self.online[cpu]

    def nodes(self) -> Nodes:
        everything = range(len(self.online))
        yield f"{CPU_ROOT}/possible", constant(_ranges(everything))
        yield f"{CPU_ROOT}/present", constant(_ranges(everything))
        yield f"{CPU_ROOT}/online", Attribute(lambda: _ranges([cpu for cpu in everything if self.online[cpu]]))
        yield f"{CPU_ROOT}/offline", Attribute(lambda: _ranges([cpu for cpu in everything if not self.online[cpu]]))
        for cpu in everything:
            yield f"{CPU_ROOT}/cpu{cpu}/online", _switch(self.online, cpu, kept=cpu == 0)
            for state, name in enumerate(self._idle_states):
                folder = f"{CPU_ROOT}/cpu{cpu}/cpuidle/state{state}"
                yield f"{folder}/name", constant(name)
                yield f"{folder}/disable", _switch(self._disabled[cpu], state)


def _switch(states: list[bool], place: int, *, kept: bool = False) -> Attribute:
    """Truth value; one that is ``kept`` cannot be unset."""

    def write(text: str) -> None:
        value = truth(text)
        if kept and not value:
            raise refusal(errno.EPERM)
        states[place] = value

    return Attribute(lambda: int(states[place]), write)


class SimulatedCpuPolicy:
    """One cpufreq policy. Rates are in kHz.

    Args:
        name: its directory, ``policy0``.
        cpus: its cores.
        limits: lower and upper limit of the power mode at boot.
        driver: of the chip's cpufreq.

    Attributes:
        cooled_khz: upper limit from heat, or None; it shows in ``scaling_max_freq``.
    """

    def __init__(
        self,
        name: str,
        cpus: Sequence[int],
        clock: SimulatedClock,
        cores: SimulatedCores,
        governors: Sequence[str],
        governor: str,
        limits: tuple[int, int],
        driver: str = "tegra194",
    ) -> None:
        self.name = name
        self.cpus = tuple(cpus)
        self.clock = clock
        self.governor = governor
        self.cooled_khz: int | None = None
        self._driver = driver
        self._cores = cores
        self._governors = tuple(governors)
        self._asked_low, self._asked_high = limits
        self._setspeed = clock.requested
        self._turn = threading.Lock()

    @property
    def online(self) -> list[int]:
        return [cpu for cpu in self.cpus if self._cores.online[cpu]]

    @property
    def limits(self) -> tuple[int, int]:
        bottom, top = self.clock.rates[0], self.cooled_khz or self.clock.rates[-1]
        low = min(max(self._asked_low, bottom), top)
        high = min(max(self._asked_high, bottom), top)
        low = min(low, high)
        if not any(low <= rate <= high for rate in self.clock.rates):
            high = self.clock.at_least(low)
        return low, high

    @property
    def measured_khz(self) -> int:
        """Clock by counted cycles: the request if close, else the true clock."""
        actual = self.clock.actual
        return self.clock.requested if abs(actual - self.clock.requested) <= _SNAP_KHZ else actual

    def cool(self, limit_khz: int | None) -> None:
        self.cooled_khz = limit_khz
        self._apply_limits()

    def tick(self, load: float) -> bool:
        """Run a governor that follows the load; returns True if the clock moved."""
        follow = CPU_GOVERNORS.get(self.governor)
        if follow is None:
            return False
        low, high = self.limits
        return self._target(follow(Utilization(load, self.clock.requested, low, high))) > 0

    def _target(self, rate: float, *, downwards: bool = False) -> float:
        """Set the lowest rate at or above the wanted one, else the highest, within the limits."""
        low, high = self.limits
        rates = [entry for entry in self.clock.rates if low <= entry <= high]
        wanted = min(max(rate, low), high)
        if downwards:
            return self.clock.request(max((entry for entry in rates if entry <= wanted), default=rates[0]))
        return self.clock.request(min((entry for entry in rates if entry >= wanted), default=rates[-1]))

    def _apply_limits(self) -> float:
        low, high = self.limits
        if self.governor == "performance":
            return self._target(high, downwards=True)
        if self.governor == "powersave":
            return self._target(low)
        if self.governor == "userspace":
            return self._target(self._setspeed, downwards=self._setspeed > high)
        if not low <= self.clock.requested <= high:
            return self._target(self.clock.requested, downwards=self.clock.requested > high)
        return 0.0

    def _set_governor(self, text: str) -> float:
        name = scan_word(text, _NAME_LENGTH)
        if name not in self._governors:
            raise refusal(errno.EINVAL)
        if name == self.governor:
            return 0.0
        self.governor = name
        self._setspeed = self.clock.requested
        return self._apply_limits()

    def _set_low(self, text: str) -> None:
        self._asked_low = scan_unsigned(text)
        self._apply_limits()

    def _set_high(self, text: str) -> None:
        self._asked_high = scan_unsigned(text)
        self._apply_limits()

    def _show_speed(self) -> object:
        return self.clock.requested if self.governor == "userspace" else "<unsupported>"

    def _set_speed(self, text: str) -> float:
        if self.governor != "userspace":
            raise refusal(errno.EINVAL)
        self._setspeed = scan_unsigned(text, bits=32)
        return self._target(self._setspeed)

    def nodes(self) -> Nodes:
        folder = f"{CPU_ROOT}/cpufreq/{self.name}"
        table = "".join(f"{rate} " for rate in self.clock.rates)
        governors = "".join(f"{name} " for name in self._governors)

        def here() -> bool:
            return bool(self.online)

        yield f"{folder}/affected_cpus", Attribute(lambda: " ".join(map(str, self.online)), present=here)
        yield f"{folder}/related_cpus", constant(" ".join(map(str, self.cpus)), present=here)
        yield f"{folder}/cpuinfo_min_freq", constant(self.clock.rates[0], present=here)
        yield f"{folder}/cpuinfo_max_freq", constant(self.clock.rates[-1], present=here)
        yield f"{folder}/cpuinfo_transition_latency", constant(_LATENCY_NS, present=here)
        yield f"{folder}/cpuinfo_cur_freq", Attribute(lambda: self.measured_khz, mode=0o400, present=here)
        yield f"{folder}/scaling_driver", constant(self._driver, present=here)
        yield f"{folder}/scaling_available_frequencies", constant(table, present=here)
        yield f"{folder}/scaling_available_governors", constant(governors, present=here)
        yield f"{folder}/scaling_cur_freq", Attribute(lambda: self.clock.requested, present=here)
        yield f"{folder}/stats/total_trans", Attribute(lambda: self.clock.transitions, present=here)
        turn = self._turn
        yield f"{folder}/scaling_governor", Attribute(lambda: self.governor, self._set_governor, present=here, turn=turn)
        yield f"{folder}/scaling_min_freq", Attribute(lambda: self.limits[0], self._set_low, present=here, turn=turn)
        yield f"{folder}/scaling_max_freq", Attribute(lambda: self.limits[1], self._set_high, present=here, turn=turn)
        yield f"{folder}/scaling_setspeed", Attribute(self._show_speed, self._set_speed, present=here, turn=turn)
        for cpu in self.cpus:
            yield f"{CPU_ROOT}/cpu{cpu}/cpufreq", Link(folder, present=partial(self._cores.is_online, cpu))


class SimulatedCpuPolicy49(SimulatedCpuPolicy):
    """One cpufreq policy under 4.9: crossed limits are EINVAL, and limits stay cut to the clock's range."""

    def _set_low(self, text: str) -> None:
        value = scan_unsigned(text, bits=32)
        if value > self.limits[1]:
            raise refusal(errno.EINVAL)
        self._asked_low = max(value, self.clock.rates[0])
        self._apply_limits()

    def _set_high(self, text: str) -> None:
        value = scan_unsigned(text, bits=32)
        if value < self.limits[0]:
            raise refusal(errno.EINVAL)
        self._asked_high = min(value, self.clock.rates[-1])
        self._apply_limits()
