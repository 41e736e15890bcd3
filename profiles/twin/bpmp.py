# SPDX-License-Identifier: Apache-2.0
"""The memory controller's clock as the BPMP firmware shows it in debugfs, with the cap of nvpmodel and the activity monitor.

While ``mrq_rate_locked`` is 1 the firmware ignores every other request and holds what was written to ``rate``, rounded up to a
trained rate and clamped by the present cap. Otherwise it serves the highest request: the floor that comes with the CPU clock,
and the bandwidth that the GPU's work asks for. The lock stays when whoever took it dies.
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from .domain import ClockDomain
from .parsing import whole_number
from .tree import Attribute, Link

_COUNTED = 0.99776  # the hardware counter against the firmware's bookkeeping, as seen on a real board
_ACTIVITY = 0.42  # share of the bandwidth that the GPU asks for which it uses


class BpmpEmc:
    """The memory clock. Rates are in Hz.

    Args:
        section: the board's ``emc`` section: ``bpmp``, ``tables``, ``cap``, ``activity`` (paths).
        floors: the lowest memory clock at each CPU clock: (CPU at least this many kHz, EMC Hz), falling.
        read_s: how long the firmware takes to answer a read.
    """

    def __init__(self, clock: ClockDomain, section: Mapping[str, Any], floors: list[tuple[int, int]], read_s: float) -> None:
        self.clock = clock
        self.locked = False
        self._traffic_hz = 0.0
        self._section = section
        self._floors = floors
        self._read_s = read_s
        self._cap = 0
        self._state = 1
        self._wanted = 0.0
        self._turn = threading.Lock()

    @property
    def ceiling(self) -> int:
        """The highest rate the caps leave."""
        top = self.clock.rates[-1]
        return self.clock.at_most(self._cap) if 0 < self._cap < top else top

    @property
    def activity_khz(self) -> int:
        """What the activity monitor counts: kHz of the memory clock in use."""
        return round(min(_ACTIVITY * self._traffic_hz, self.clock.actual) / 1e3)

    def follow(self, cpu_khz: int, gpu_share: float) -> bool:
        """Serve the requests of others, if nobody holds the lock; returns whether the clock moved.

        Args:
            cpu_khz: the CPU clock, from which the floor follows.
            gpu_share: GPU clock times load, as a share of the highest; the GPU asks for bandwidth in proportion.
        """
        self._traffic_hz = gpu_share * self.clock.rates[-1]
        floor = next((emc for cpu, emc in self._floors if cpu_khz >= cpu), self.clock.rates[0])
        self._wanted = max(floor, 1.25 * self._traffic_hz)
        return not self.locked and self._serve() > 0

    def _serve(self) -> float:
        return self.clock.request(min(self.clock.at_least(self._wanted), self.ceiling))

    def _set_lock(self, text: str) -> float:
        value = whole_number(text)
        self.locked = value != 0
        return 0.0 if self.locked else self._serve()

    def _set_rate(self, text: str) -> float:
        value = whole_number(text)
        return self.clock.request(min(self.clock.at_least(value), self.ceiling)) if self.locked else 0.0

    def _set_state(self, text: str) -> float:
        self._state = int(whole_number(text) != 0)
        return 0.0

    def _set_cap(self, text: str) -> float:
        self._cap = whole_number(text)
        return self._serve() if not self.locked else 0.0

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        folder = str(self._section["bpmp"])

        def firmware(value: Any, write: Any = None) -> Attribute:
            mode = 0o600 if write else 0o400
            return Attribute(lambda: str(value()), write, mode=mode, delay_s=self._read_s, turn=self._turn)

        yield f"{folder}/rate", firmware(lambda: self.clock.requested, self._set_rate)
        yield f"{folder}/min_rate", firmware(lambda: self.clock.rates[0])
        yield f"{folder}/max_rate", firmware(lambda: self.clock.rates[-1])
        yield f"{folder}/state", firmware(lambda: self._state, self._set_state)
        yield f"{folder}/mrq_rate_locked", firmware(lambda: int(self.locked), self._set_lock)
        yield f"{folder}/pto_counter", firmware(lambda: round(self.clock.actual * _COUNTED))
        for rate in self.clock.rates:
            yield f"{self._section['tables']}/{rate // 1000}", Attribute(lambda: "", mode=0o400)
        yield str(self._section["cap"]), Attribute(lambda: str(self._cap), self._set_cap, mode=0o660)
        yield str(self._section["activity"]), Attribute(lambda: str(self.activity_khz))

    @property
    def private_directory(self) -> str:
        """The mount point of debugfs, which only root may enter."""
        return posixpath.join("/", *str(self._section["bpmp"]).split("/")[1:4])
