# SPDX-License-Identifier: Apache-2.0
"""Temperature at which the die settles at each configuration, and the surface with its leakage there.

Power heats the die, and heat raises leakage: each configuration settles above the present temperature by the thermal resistance
times its additional power. Plans are remade if the die settles at another temperature than planned.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

from ...kernels.surface import Surface
from ...profiles.board import BoardDescription
from ..hardware.sensors.energy import total_mw
from ..hardware.sensors.sensors import SensorReader
from ..hardware.sensors.thermal import hottest_mc
from .targets import check_rate

if TYPE_CHECKING:
    import numpy as np
else:
    from ...kernels.lazy import numpy as np

OFF_C = 4.0
"""Deviation of the die temperature that counts: a tenth of the leakage, on most boards."""
SETTLED_S = 60.0
"""Time without approach to the planned temperature; newer plans are kept."""
_MOVING_C = 1.0  # scatter of readings over that time; beyond, the die moves
_EVERY_S = 5.0
# A board throttles before its die is hotter, and is not made for colder surroundings.
_COLDEST_C, _HOTTEST_C = -25.0, 105.0
_STEPS, _CLOSE_C = 50, 0.05
# Readings this close are equal, so that recent plans stay valid.
_STEP_C, _STEP_MW = 1.0, 500.0


class ThermalState(Struct, frozen=True):
    """Temperature of the hottest throttling zone, power of the energy rails, and lasting rise of the die per watt."""

    die_c: float
    drawn_mw: float
    k_per_w: float


def warmth_of(sensors: SensorReader, description: BoardDescription) -> ThermalState | None:
    """Warmth by the last readings; None without a zone. With an unreadable rail, the die is assumed to stay."""
    read_mc = hottest_mc(sensors.trips, sensors.temperatures_mc())
    if read_mc is None:
        return None
    drawn_mw = total_mw(sensors.rails_mw(), sensors.energy_rails)
    k_per_w = 0.0 if drawn_mw is None else float(description.section("thermal").get("k_per_w", 0.0))
    return ThermalState(_STEP_C * round(read_mc / 1e3 / _STEP_C), _STEP_MW * round((drawn_mw or 0.0) / _STEP_MW), k_per_w)


def settled(surface: Surface, warmth: ThermalState | None, fps: float | None) -> Surface:
    """Surface with the die settled at each configuration; unchanged if its leakage is unknown. Raises UsageError."""
    if surface.heat is None or warmth is None:
        return surface
    check_rate(fps)
    lasting_mw = surface.power_mw
    if fps is not None:
        lasting_mw = surface.energy_per_frame_mj(fps) / np.maximum(1 / fps, surface.latency_ms / 1e3)
    die_c = np.clip(np.full(surface.grid.shape, warmth.die_c), _COLDEST_C, _HOTTEST_C)
    for _ in range(_STEPS):
        drawn_mw = lasting_mw + surface.leakage_mw * surface.heat.growth(die_c)
        warmer_c = np.clip(warmth.die_c + warmth.k_per_w * (drawn_mw - warmth.drawn_mw) / 1e3, _COLDEST_C, _HOTTEST_C)
        moved_c = float(np.abs(warmer_c - die_c).max())
        die_c = warmer_c
        if moved_c < _CLOSE_C:
            break
    return surface.warmed(die_c)


class ThermalTracker:
    """Follows the die's temperature. For one thread; call ``see`` at least a few times in :data:`SETTLED_S`."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque()

    def see(self, now_s: float, die_c: float) -> None:
        if self._seen and now_s - self._seen[-1][0] < _EVERY_S:
            return
        self._seen.append((now_s, die_c))
        while len(self._seen) > 2 and now_s - self._seen[1][0] >= SETTLED_S:
            self._seen.popleft()

    def reason(self, planned_s: float, planned_c: float) -> str | None:
        if len(self._seen) < 2:
            return None
        (before_s, before_c), (now_s, now_c) = self._seen[0], self._seen[-1]
        if now_s - before_s < SETTLED_S or before_s < planned_s or abs(now_c - planned_c) < OFF_C:
            return None
        if abs(before_c - planned_c) - abs(now_c - planned_c) > _MOVING_C:
            return None  # still approaching
        way = "warmer" if now_c > planned_c else "colder"
        return f"the die has settled at {now_c:.0f} C, {abs(now_c - planned_c):.0f} C {way} than planned for"
