# SPDX-License-Identifier: Apache-2.0
"""Battery and its files (Linux, Documentation/ABI/testing/sysfs-class-power)."""

from __future__ import annotations

from collections.abc import Callable

from ..attributes import Attribute, Link, Nodes, constant

_FOLDER = "/sys/devices/platform/battery/power_supply/battery"
_VOLTS = 14.8  # of four lithium cells in a row; does not fall as they are drained
_BESIDE_W = 2.0  # power of the carrier and its devices; assumed


def battery_files(
    full_wh: float, drawn_j: Callable[[], float], seconds: Callable[[], float], watts: Callable[[], float]
) -> Nodes:
    """Battery, full at the start and never charged; ``drawn_j`` is the module's energy since its start, ``seconds`` ago."""

    def left_wh() -> float:
        return max(full_wh - (drawn_j() + _BESIDE_W * seconds()) / 3600, 0.0)

    yield f"{_FOLDER}/type", constant("Battery")
    yield f"{_FOLDER}/present", constant(1)
    yield f"{_FOLDER}/status", constant("Discharging")
    yield f"{_FOLDER}/voltage_now", constant(round(1e6 * _VOLTS))
    yield f"{_FOLDER}/energy_full", constant(round(1e6 * full_wh))
    yield f"{_FOLDER}/energy_now", Attribute(lambda: round(1e6 * left_wh()))
    yield f"{_FOLDER}/capacity", Attribute(lambda: round(100 * left_wh() / full_wh))
    yield f"{_FOLDER}/power_now", Attribute(lambda: round(1e6 * (watts() + _BESIDE_W)))
    yield "/sys/class/power_supply/battery", Link(_FOLDER)
