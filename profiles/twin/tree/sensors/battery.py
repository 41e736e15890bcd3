# SPDX-License-Identifier: Apache-2.0
"""Battery and its files (Linux, Documentation/ABI/testing/sysfs-class-power)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..attributes import Attribute, Link, constant

_FOLDER = "/sys/devices/platform/battery/power_supply/battery"
_VOLTS = 14.8  # of four lithium cells in a row; does not fall as they are drained
_BESIDE_W = 2.0  # power of the carrier and its devices; assumed


class SimulatedBattery:
    """Battery, full at the start and never charged; ``drawn_j`` is the module's energy since its start, ``seconds`` ago."""

    def __init__(
        self, full_wh: float, drawn_j: Callable[[], float], seconds: Callable[[], float], watts: Callable[[], float]
    ) -> None:
        self._full_wh = full_wh
        self._drawn_j = drawn_j
        self._seconds = seconds
        self._watts = watts

    @property
    def left_wh(self) -> float:
        return max(self._full_wh - (self._drawn_j() + _BESIDE_W * self._seconds()) / 3600, 0.0)

    @property
    def drawn_w(self) -> float:
        return self._watts() + _BESIDE_W

    def nodes(self) -> Iterator[tuple[str, Attribute | Link]]:
        yield f"{_FOLDER}/type", constant("Battery")
        yield f"{_FOLDER}/present", constant(1)
        yield f"{_FOLDER}/status", constant("Discharging")
        yield f"{_FOLDER}/voltage_now", constant(round(1e6 * _VOLTS))
        yield f"{_FOLDER}/energy_full", constant(round(1e6 * self._full_wh))
        yield f"{_FOLDER}/energy_now", Attribute(lambda: str(round(1e6 * self.left_wh)))
        yield f"{_FOLDER}/capacity", Attribute(lambda: str(round(100 * self.left_wh / self._full_wh)))
        yield f"{_FOLDER}/power_now", Attribute(lambda: str(round(1e6 * self.drawn_w)))
        yield "/sys/class/power_supply/battery", Link(_FOLDER)
