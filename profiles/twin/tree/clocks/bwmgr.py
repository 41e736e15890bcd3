# SPDX-License-Identifier: Apache-2.0
"""The bandwidth manager as a devfreq device (JetPack 7): limits within which the memory clock follows its requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from ..attributes import Attribute, Link, constant
from ..parsing import scan_unsigned
from .emc import SimulatedMemoryClock


class BwmgrDevfreq:
    """Its limits are taken in any order and the upper one wins, as for every devfreq device since 5.10."""

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
