# SPDX-License-Identifier: Apache-2.0
"""The GPU's device and devfreq files, as Linux 5.10 and nvgpu behave (drivers/devfreq/devfreq.c, governor_userspace.c).

Limits go through PM QoS in kHz: the lower one is rounded down, the upper one up, zero means no limit, any order is taken and
the upper one wins. The result is the lowest rate of the table that is not below what governor and limits want.
"""

from __future__ import annotations

import errno
import posixpath
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from .domain import ClockDomain
from .governors import GPU_GOVERNORS, Demand
from .parsing import scan_unsigned, scan_word, whole_number
from .tree import Attribute, Link, constant, refusal

_NAME_LENGTH = 16
_KHZ = 1000


class GpuDevfreq:
    """The GPU. Rates are in Hz.

    Args:
        section: the board's ``gpu`` section: ``devfreq`` (paths, the real one first), ``device``, ``governors``,
            ``governor``, ``attributes`` (further files of the device, with their values).
        masks: the units that the power mode has turned off at boot, where the device has a file for them.
    """

    def __init__(self, clock: ClockDomain, section: Mapping[str, Any], masks: Mapping[str, int]) -> None:
        self.clock = clock
        self.load = 0.0
        self.governor = str(section["governor"])
        self._governors: Sequence[str] = section["governors"]
        self._paths: Sequence[str] = section["devfreq"]
        self._attributes = {name: int(masks.get(name, value)) for name, value in section["attributes"].items()}
        self._power_control = "auto"
        self._low_khz = 0
        self._high_khz: int | None = None
        self._wish = float(clock.requested)
        self._user_hz: int | None = None
        self._turn = threading.Lock()

    @property
    def limits(self) -> tuple[int, int]:
        low = max(self.clock.rates[0], self._low_khz * _KHZ)
        high = self.clock.rates[-1] if self._high_khz is None else min(self.clock.rates[-1], self._high_khz * _KHZ)
        return min(low, high), high

    def tick(self, load: float) -> bool:
        """Let a governor that follows the load choose; returns whether it moved the clock."""
        self.load = load
        follow = GPU_GOVERNORS.get(self.governor)
        if follow is None:
            return False
        low, high = self.limits
        self._wish = follow(Demand(load, self.clock.requested, low, high))
        return self._update() > 0

    def _update(self) -> float:
        low, high = self.limits
        if self.governor == "performance":
            wanted: float = high
        elif self.governor == "userspace":
            wanted = self.clock.requested if self._user_hz is None else self._user_hz
        else:
            wanted = self._wish
        return self.clock.request(self.clock.at_least(min(max(wanted, low), high)))

    def _set_governor(self, text: str) -> float:
        name = scan_word(text, _NAME_LENGTH)
        if name not in self._governors:
            raise refusal(errno.EINVAL)
        if name == self.governor:
            return 0.0
        self.governor = name
        self._user_hz = None
        self._wish = float(self.clock.requested)
        return self._update()

    def _set_low(self, text: str) -> float:
        self._low_khz = scan_unsigned(text) // _KHZ
        return self._update()

    def _set_high(self, text: str) -> float:
        value = scan_unsigned(text)
        self._high_khz = -(-value // _KHZ) if value else None
        return self._update()

    def _set_user(self, text: str) -> float:
        # The kernel ignores a failed scan and takes whatever was on its stack; a refusal is the one sane reading of that.
        self._user_hz = scan_unsigned(text)
        return self._update()

    def _set_power_control(self, text: str) -> float:
        if text not in ("auto", "on"):
            raise refusal(errno.EINVAL)
        self._power_control = text
        return 0.0

    def _show_attribute(self, name: str) -> str:
        return str(self._attributes[name])

    def _set_attribute(self, name: str, text: str) -> float:
        value = whole_number(text)
        # Masks of powered-down units are fixed once the GPU has made its golden context, which a desktop does at boot.
        if name.endswith("_pg_mask") and value != self._attributes[name]:
            raise refusal(errno.EBUSY)
        self._attributes[name] = value
        return 0.0

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        real = self._paths[0]
        device = posixpath.dirname(posixpath.dirname(real))
        table = " ".join(map(str, self.clock.rates))
        governors = " ".join(self._governors)
        yield f"{real}/name", constant(posixpath.basename(real))
        yield f"{real}/available_frequencies", constant(table)
        yield f"{real}/available_governors", constant(governors)
        yield f"{real}/cur_freq", Attribute(lambda: str(self.clock.actual))
        yield f"{real}/target_freq", Attribute(lambda: str(self.clock.requested))
        yield f"{real}/polling_interval", constant(25)
        yield f"{real}/governor", Attribute(lambda: self.governor, self._set_governor, turn=self._turn)
        yield f"{real}/min_freq", Attribute(lambda: str(self.limits[0]), self._set_low, turn=self._turn)
        yield f"{real}/max_freq", Attribute(lambda: str(self.limits[1]), self._set_high, turn=self._turn)
        yield (
            f"{real}/userspace/set_freq",
            Attribute(
                lambda: "undefined" if self._user_hz is None else str(self._user_hz),
                self._set_user,
                present=lambda: self.governor == "userspace",
                turn=self._turn,
            ),
        )
        yield f"{real}/device", Link(device)
        yield f"{device}/devfreq_dev", Link(real)
        yield f"{device}/load", Attribute(lambda: str(round(1000 * self.load)))
        yield f"{device}/power/control", Attribute(lambda: self._power_control, self._set_power_control)
        yield f"{device}/power/runtime_status", constant("active")
        for name in self._attributes:
            yield (
                f"{device}/{name}",
                Attribute(partial(self._show_attribute, name), partial(self._set_attribute, name)),
            )
        yield f"/sys/class/devfreq/{posixpath.basename(real)}", Link(real)
        for path in self._paths[1:]:
            yield posixpath.dirname(posixpath.dirname(path)), Link(device)
