# SPDX-License-Identifier: Apache-2.0
"""The memory clock as the BPMP firmware shows it in debugfs (Tegra186 and later).

While ``mrq_rate_locked`` is 1 the firmware ignores every other request and holds what was written to ``rate``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..attributes import Attribute, Link
from ..parsing import whole_number
from .emc import SimulatedMemoryClock

_COUNTED = 0.99776  # the hardware counter against the firmware's bookkeeping, as seen on a real board


class BpmpFiles:
    """The firmware's node of the memory clock.

    Args:
        section: the board's ``emc`` section: ``bpmp``, and where this system has them ``tables`` (a directory of files
            named by their kHz), ``table`` (a file of lines of number and rate), ``halt`` (stops the bandwidth manager).
        read_s: how long the firmware takes to answer a read.
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
