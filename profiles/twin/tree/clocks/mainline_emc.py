# SPDX-License-Identifier: Apache-2.0
"""Memory clock limits in a mainline kernel's debugfs (Linux, drivers/memory/tegra/tegra186-emc.c)."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from ..attributes import Attribute, Link, constant, refusal, scan_unsigned
from .emc import SimulatedMemoryClock


class MainlineEmc:
    def __init__(self, memory: SimulatedMemoryClock, path: str = "/sys/kernel/debug/emc") -> None:
        self._memory = memory
        self._path = path
        self._low, self._high = memory.clock.rates[0], memory.clock.rates[-1]

    def _set(self, low: int, high: int) -> float:
        if low > high or not {low, high}.issubset(self._memory.clock.rates):
            raise refusal(errno.EINVAL)
        self._low, self._high = low, high
        return self._memory.set_limits(low, high)

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        clock, scan = self._memory.clock, scan_unsigned
        yield f"{self._path}/available_rates", constant(" ".join(map(str, clock.rates)))
        yield f"{self._path}/min_rate", Attribute(lambda: str(self._low), lambda text: self._set(scan(text), self._high))
        yield f"{self._path}/max_rate", Attribute(lambda: str(self._high), lambda text: self._set(self._low, scan(text)))
        yield "/sys/kernel/debug/clk/emc/clk_rate", Attribute(lambda: str(clock.settled))
