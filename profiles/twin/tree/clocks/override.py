# SPDX-License-Identifier: Apache-2.0
"""The memory clock of Tegra210, which has no firmware between it and the kernel: its override clock and bandwidth manager."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from ..attributes import Attribute, Link
from ..parsing import whole_number
from .emc import SimulatedMemoryClock


class OverrideFiles:
    """``override.emc`` takes a rate by ``clk_update_rate`` and holds it while ``clk_state`` is 1.

    Args:
        section: the board's ``emc`` section: ``override`` and ``bwmgr`` (directories).
    """

    def __init__(self, memory: SimulatedMemoryClock, section: Mapping[str, Any]) -> None:
        self._memory = memory
        self._section = section
        self._rate = memory.clock.rates[-1]
        self._turn = threading.Lock()

    def _set_rate(self, text: str) -> float:
        self._rate = whole_number(text)
        return self._memory.set_rate(self._rate)

    def _set_state(self, text: str) -> float:
        on = whole_number(text) != 0
        if on == self._memory.locked:
            return 0.0
        held_up = self._memory.lock(on)
        return self._memory.set_rate(self._rate) if on else held_up

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        folder, limits, clock = str(self._section["override"]), str(self._section["bwmgr"]), self._memory.clock
        yield f"{folder}/clk_rate", Attribute(lambda: str(clock.requested), mode=0o444)
        yield f"{folder}/clk_update_rate", Attribute(None, self._set_rate, mode=0o200, turn=self._turn)
        yield (
            f"{folder}/clk_state",
            Attribute(lambda: str(int(self._memory.locked)), self._set_state, mode=0o600, turn=self._turn),
        )
        yield f"{limits}/emc_min_rate", Attribute(lambda: str(clock.rates[0]), mode=0o400)
        yield f"{limits}/emc_max_rate", Attribute(lambda: str(clock.rates[-1]), mode=0o400)
