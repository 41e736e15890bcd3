# SPDX-License-Identifier: Apache-2.0
"""Energy of counters that move in ticks (NVML: 100 ms), by power between the first and last tick of a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Protocol

_READ_EVERY_S = 0.004
_LEAST_S = 0.05  # from the first tick to the last; of a counter that moves at every reading, the power in between is noise


class EnergyCounters(Protocol):
    """Energy counters: :class:`~.rapl.Rapl` of a processor's packages, :class:`~.nvml.Nvml` of a GPU."""

    @property
    def rails(self) -> tuple[str, ...]: ...

    def read_uj(self) -> Mapping[str, int]: ...

    def since_mj(self, before: Mapping[str, int]) -> Mapping[str, float]: ...


class CounterReader:
    """Counters read continuously by their own thread."""

    def __init__(self, counters: EnergyCounters) -> None:
        self._counters = counters
        self._over, self._thread = threading.Event(), threading.Thread()
        self._ticks: dict[str, list[tuple[float, int]]] = {}
        self._last: Mapping[str, int] = {}
        self._began_s = 0.0
        self._failed: Exception | None = None
        self.seen = 0

    @property
    def rails(self) -> tuple[str, ...]:
        return self._counters.rails

    def read_uj(self) -> Mapping[str, int]:
        self.close()
        self._ticks, self._failed = {rail: [] for rail in self.rails}, None
        self._last = self._counters.read_uj()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(self._over,), name="ticks", daemon=True)
        self._thread.start()
        before = self._counters.read_uj()  # the thread took its time to start
        self._began_s = time.monotonic()
        return before

    def since_mj(self, before: Mapping[str, int]) -> dict[str, float]:
        """Energy in mJ by power between first and last tick, if there are enough."""
        until_s, plain = time.monotonic(), self._counters.since_mj(before)
        self.close()
        if self._failed is not None:
            raise self._failed
        within = {rail: [tick for tick in ticks if self._began_s <= tick[0] <= until_s] for rail, ticks in self._ticks.items()}
        self.seen = min(map(len, within.values()), default=0)
        return {rail: self._between_ticks_mj(ticks, until_s, plain[rail]) for rail, ticks in within.items()}

    def close(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _between_ticks_mj(self, ticks: list[tuple[float, int]], until_s: float, plain_mj: float) -> float:
        if not ticks or ticks[-1][0] - ticks[0][0] < _LEAST_S:
            return plain_mj
        (first_s, first_uj), (last_s, last_uj) = ticks[0], ticks[-1]
        return (last_uj - first_uj) / 1e3 / (last_s - first_s) * (until_s - self._began_s)

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(_READ_EVERY_S):
            try:
                before_s = time.monotonic()
                found = self._counters.read_uj()
            except Exception as error:  # reported to the next reader
                self._failed = error
                return
            now_s = (before_s + time.monotonic()) / 2  # when it was read
            for rail, energy_uj in found.items():
                if energy_uj != self._last[rail]:
                    self._ticks[rail].append((now_s, energy_uj))
            self._last = found
