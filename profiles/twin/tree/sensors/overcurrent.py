# SPDX-License-Identifier: Apache-2.0
"""Over-current events: each removes pulses of CPU and GPU clocks for a millisecond, unseen by clock files.

Counters are published about every two seconds. Measured on an Orin Nano Super (OC3: 1 to 30 a second, 1.07 ms each).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..attributes import Attribute, Link, Nodes, constant

_NODE = "/sys/devices/platform/soctherm-oc-event/hwmon"
_DEBUG = "/sys/kernel/debug/bpmp/debug/soctherm"
_TICKS_PER_S = 31.37e6  # of the firmware's event clock: 33569 for each event


class OverCurrent:
    """Over-current events of one board.

    Args:
        section: the board's ``throttling`` section: ``events`` (numbers), ``hwmon_name``.
        twin: ``hwmon`` (node), ``publish_s``, ``event``, ``from_gpu_hz`` (lowest GPU clock), ``idle_per_s`` and ``busy_per_s``
            (rates), ``lasts_ms``, ``share`` (of remaining pulses), ``disabled`` (events without throttling).

    Attributes:
        due: time at which an event begins or ends; infinity if none does.
    """

    def __init__(
        self,
        section: Mapping[str, Any],
        twin: Mapping[str, Any],
        now: Callable[[], float],
        gpu_hz: Callable[[], int],
        random: np.random.Generator,
    ) -> None:
        self.due = math.inf
        self._now = now
        self._gpu_hz = gpu_hz
        self._random = random
        self._numbers: Sequence[int] = section["events"]
        self._name = str(section["hwmon_name"])
        self._hwmon = str(twin["hwmon"])
        self._event = int(twin["event"])
        self._from_hz = int(twin["from_gpu_hz"])
        self._rates = (float(twin["idle_per_s"]), float(twin["busy_per_s"]))
        self._lasts_s = float(twin["lasts_ms"]) / 1e3
        self._share = float(twin["share"])
        self._publish_s = float(twin["publish_s"])
        self._off: Sequence[int] = twin.get("disabled", ())
        self._within = False
        self._count = 0
        self._published = (-math.inf, 0)

    @property
    def share(self) -> float:
        return self._share if self._within else 1.0

    def watch(self, busy: float) -> None:
        """Note the GPU's busy share, 0 to 1, and its clock."""
        if self._within:
            return
        if self._gpu_hz() < self._from_hz:
            self.due = math.inf
        elif math.isinf(self.due):
            idle, full = self._rates
            per_s = idle + busy * (full - idle)
            self.due = self._now() + float(self._random.exponential(1.0 / per_s)) if per_s > 0.0 else math.inf

    def act(self) -> None:
        now = self._now()
        if now < self.due:
            return
        self._within = not self._within
        self._count += self._within
        self.due = now + self._lasts_s if self._within else math.inf

    def counted(self, number: int) -> int:
        if number != self._event:
            return 0
        batch = self._now() // self._publish_s * self._publish_s
        if batch > self._published[0]:
            self._published = (batch, self._count)
        return self._published[1]

    def _ticks(self, number: int) -> int:
        return round(self.counted(number) * self._lasts_s * _TICKS_PER_S)

    def nodes(self) -> Nodes:
        node = f"{_NODE}/{self._hwmon}"
        yield f"{node}/name", constant(self._name)
        for number in self._numbers:
            yield f"{node}/oc{number}_event_cnt", Attribute(partial(self.counted, number))
            yield f"{node}/oc{number}_throt_en", constant(int(number not in self._off))
            debug = f"{_DEBUG}/oc{number - 1}"
            yield f"{debug}/event_cnt", Attribute(partial(self.counted, number), mode=0o400)
            yield f"{debug}/event_time", Attribute(partial(self._ticks, number), mode=0o400)
        yield f"/sys/class/hwmon/{self._hwmon}", Link(node)
