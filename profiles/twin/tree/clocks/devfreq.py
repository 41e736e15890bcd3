# SPDX-License-Identifier: Apache-2.0
"""Device and devfreq files of the GPU like Linux 5.10 and nvgpu (drivers/devfreq/devfreq.c, governor_userspace.c).

Limits go through PM QoS in kHz: the lower one is rounded down, the upper one up, zero is no limit, any order, and the upper one
wins. The result is the lowest rate of the table at or above governor and limits.
"""

from __future__ import annotations

import errno
import math
import posixpath
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ..attributes import Attribute, Link, Nodes, constant, refusal, scan_unsigned, scan_word, whole_number
from .clock import SimulatedClock
from .governors import GPU_GOVERNORS, Utilization


class PowerGate:
    """Power switch of the GPU.

    Args:
        works: True if this system switches the GPU off.

    Attributes:
        appeared: True once powered since boot, when its clock's files appear.
        used: True once anything ran since boot, which fixes its masks.
        delay_s: time on without work.
    """

    def __init__(self, now: Callable[[], float], *, works: bool, used: bool, delay_s: float = 0.5) -> None:
        self.works = works
        self.appeared = used
        self.used = used
        self._control = "auto"
        self.delay_s = delay_s
        self._allowed = True
        self._now = now
        self._busy_until = now() if used else -math.inf

    @property
    def gated(self) -> bool:
        if not self.works or not self._allowed or self._control == "on":
            return False
        return self._now() - self._busy_until > self.delay_s

    @property
    def control(self) -> str:
        """Runtime power management: ``on`` or ``auto``."""
        return self._control

    @control.setter
    def control(self, word: str) -> None:
        self._control = word
        self.appeared = self.appeared or word == "on"

    def allow(self, allowed: bool) -> None:
        """Permit switching off, or keep the GPU powered."""
        self._allowed = allowed
        self.appeared = self.appeared or not allowed

    def work(self, until: float) -> None:
        self.used = self.appeared = True
        self._busy_until = until


_NAME_LENGTH = 16
_KHZ = 1000
POLLING_MS = 25
"""Polling interval of NVIDIA's kernels."""


class SimulatedGpu:
    """The GPU. Rates are in Hz.

    Args:
        section: the board's ``gpu`` section: ``devfreq`` (paths, the real one first), ``device``, ``governors``, ``governor``,
            ``attributes`` (further device files with values); optional ``of_node`` (device tree), ``idle_zero`` (a gated clock
            reads zero), ``missing`` (absent files).
        masks: units off at boot, if the device has a file for them.
        gate: its power switch.

    Attributes:
        cooled_hz: upper limit from heat, or None; it shows in ``max_freq``.
    """

    def __init__(self, clock: SimulatedClock, section: Mapping[str, Any], masks: Mapping[str, int], gate: PowerGate) -> None:
        self.clock = clock
        self.gate = gate
        self.cooled_hz: int | None = None
        self.load = 0.0
        self.governor = str(section["governor"])
        self._governors: Sequence[str] = section["governors"]
        self._paths: Sequence[str] = section["devfreq"]
        self._attributes = {name: int(masks.get(name, value)) for name, value in section["attributes"].items()}
        self._of_node = section.get("of_node")
        self._missing: Sequence[str] = section.get("missing", ())
        self._idle_zero = bool(section.get("idle_zero"))
        self._low_khz = 0
        self._high_khz: int | None = None
        self._followed_hz = float(clock.requested)
        self._user_hz: int | None = None
        self._turn = threading.Lock()

    @property
    def shown(self) -> tuple[int, int]:
        return self.limits

    @property
    def limits(self) -> tuple[int, int]:
        low = max(self.clock.rates[0], self._low_khz * _KHZ)
        top = self.cooled_hz or self.clock.rates[-1]
        high = top if self._high_khz is None else min(top, self._high_khz * _KHZ)
        return min(low, high), high

    def cool(self, limit_hz: int | None) -> None:
        self.cooled_hz = limit_hz
        self._update()

    def limit(self, high_hz: int) -> None:
        """Set the upper limit, as the power mode does at boot."""
        self._set_high(str(high_hz))

    def tick(self, load: float) -> bool:
        """Run a governor that follows the load; returns True if the clock moved."""
        self.load = load
        follow = GPU_GOVERNORS.get(self.governor)
        if follow is None:
            return False
        low, high = self.limits
        self._followed_hz = follow(Utilization(load, self.clock.requested, low, high))
        return self._update() > 0

    def _update(self) -> float:
        if self.governor == "performance":
            wanted: float = self.limits[1]
        elif self.governor == "userspace":
            wanted = self.clock.requested if self._user_hz is None else self._user_hz
        else:
            wanted = self._followed_hz
        return self.clock.request(self._round(wanted))

    def _round(self, requested: float) -> int:
        low, high = self.limits
        return self.clock.at_least(min(max(requested, low), high))

    def _set_governor(self, text: str) -> float:
        name = scan_word(text, _NAME_LENGTH)
        if name not in self._governors:
            raise refusal(errno.EINVAL)
        if name == self.governor:
            return 0.0
        self.governor = name
        self._user_hz = None
        self._followed_hz = float(self.clock.requested)
        return self._update()

    def _set_low(self, text: str) -> float:
        self._low_khz = scan_unsigned(text) // _KHZ
        return self._update()

    def _set_high(self, text: str) -> float:
        value = scan_unsigned(text)
        self._high_khz = -(-value // _KHZ) if value else None
        return self._update()

    def _set_user(self, text: str) -> float:
        # The kernel ignores a failed scan and uses stack contents; a refusal is the sane reading of that.
        self._user_hz = scan_unsigned(text)
        return self._update()

    def _show_rate(self) -> int:
        return 0 if self._idle_zero and self.gate.gated else self.clock.settled

    def _set_power_control(self, text: str) -> None:
        if text not in ("auto", "on"):
            raise refusal(errno.EINVAL)
        self.gate.control = text

    def _set_attribute(self, name: str, text: str) -> None:
        value = whole_number(text)
        # Masks of powered-down units are fixed once the GPU has made its golden context, which a desktop does at boot.
        if name.endswith("_pg_mask") and value != self._attributes[name] and self.gate.used:
            raise refusal(errno.EBUSY)
        self._attributes[name] = value
        if name == "railgate_enable":
            self.gate.allow(value != 0)
        elif name == "railgate_delay":
            self.gate.delay_s = value / 1e3

    def nodes(self) -> Nodes:
        real = self._paths[0]
        device = posixpath.dirname(posixpath.dirname(real))
        yield from self._clock_nodes(real)
        yield f"{real}/device", Link(device, present=self._here)
        yield f"{device}/devfreq_dev", Link(real, present=self._here)
        if "load" not in self._missing:
            yield f"{device}/load", Attribute(lambda: round(1000 * self.load))
        if self._of_node:
            yield f"{device}/of_node/name", Attribute(lambda: f"{self._of_node}\0".encode())
        yield f"{device}/power/control", Attribute(lambda: self.gate.control, self._set_power_control)
        yield f"{device}/power/runtime_status", Attribute(lambda: "suspended" if self.gate.gated else "active")
        if self.gate.works:
            yield f"{device}/is_railgated", Attribute(lambda: "yes" if self.gate.gated else "no")
            yield f"{device}/gpu_powered_on", Attribute(lambda: int(not self.gate.gated))
        for name in self._attributes:
            yield f"{device}/{name}", Attribute(partial(self._attributes.get, name), partial(self._set_attribute, name))
        yield f"/sys/class/devfreq/{posixpath.basename(real)}", Link(real, present=self._here)
        for path in self._paths[1:]:
            parent = posixpath.dirname(posixpath.dirname(path))
            if parent != "/sys/class":
                yield parent, Link(device)

    def _here(self) -> bool:
        """True once the device has its clock's files, from its first power-up."""
        return self.gate.appeared

    def _clock_nodes(self, real: str) -> Nodes:
        here, turn = self._here, self._turn
        yield f"{real}/name", constant(posixpath.basename(real), present=here)
        yield f"{real}/available_frequencies", constant(" ".join(map(str, self.clock.rates)), present=here)
        yield f"{real}/available_governors", constant(" ".join(self._governors), present=here)
        yield f"{real}/cur_freq", Attribute(self._show_rate, present=here)
        yield f"{real}/target_freq", Attribute(lambda: self.clock.requested, present=here)
        yield f"{real}/polling_interval", constant(POLLING_MS, present=here)
        yield f"{real}/governor", Attribute(lambda: self.governor, self._set_governor, present=here, turn=turn)
        yield f"{real}/min_freq", Attribute(lambda: self.shown[0], self._set_low, present=here, turn=turn)
        yield f"{real}/max_freq", Attribute(lambda: self.shown[1], self._set_high, present=here, turn=turn)
        yield (
            f"{real}/userspace/set_freq",
            Attribute(
                lambda: "undefined" if self._user_hz is None else self._user_hz,
                self._set_user,
                present=lambda: here() and self.governor == "userspace",
                turn=turn,
            ),
        )


class FurtherDevfreq(SimulatedGpu):
    """Another devfreq device of the GPU, with clock files alone."""

    def nodes(self) -> Nodes:
        real = self._paths[0]
        yield from self._clock_nodes(real)
        yield f"/sys/class/devfreq/{posixpath.basename(real)}", Link(real, present=self._here)


class SimulatedGpu49(SimulatedGpu):
    """The GPU under 4.9; heat limits its clock in hardware, unseen by its limits."""

    _low_hz: int | None = None
    _high_hz: int | None = None

    @property
    def shown(self) -> tuple[int, int]:
        low = self.clock.rates[0] if self._low_hz is None else self._low_hz
        return low, self.clock.rates[-1] if self._high_hz is None else self._high_hz

    @property
    def limits(self) -> tuple[int, int]:
        low, high = self.shown
        top = self.cooled_hz or self.clock.rates[-1]
        high = min(high, top) if high else top
        return min(low, high), high

    def _set_low(self, text: str) -> float:
        value, high = scan_unsigned(text), self.shown[1]
        if value and high and value > high:
            raise refusal(errno.EINVAL)
        self._low_hz = value
        return self._update()

    def _set_high(self, text: str) -> float:
        value, low = scan_unsigned(text), self.shown[0]
        if value and low and value < low:
            raise refusal(errno.EINVAL)
        self._high_hz = value
        return self._update()

    def _round(self, requested: float) -> int:
        low, high = self.limits
        if requested >= high:
            return self.clock.at_most(high)
        return self.clock.at_least(max(requested, low))
