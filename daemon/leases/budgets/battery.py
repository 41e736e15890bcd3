# SPDX-License-Identifier: Apache-2.0
"""Battery, and the power that makes it last; files as in Linux, Documentation/ABI/testing/sysfs-class-power."""

from __future__ import annotations

import math

from msgspec import Struct

from ...hardware.files import Files
from ...planning.limits import BoardConstraints

SUPPLIES = "/sys/class/power_supply/*"
_J_PER_WH = 3600.0
_EVERY_S = 60.0
_CHANGED_BY = 0.03
_STEP_MW = 10.0


class Battery(Struct, frozen=True):
    """A battery and its charge left; ``drawn_mw`` is None if unknown or charging, ``name`` empty for a stated charge."""

    name: str
    left_wh: float
    drawn_mw: float | None = None


def read_battery(files: Files) -> Battery | None:
    for folder in files.glob(SUPPLIES):
        if files.find_text(f"{folder}/type") != "Battery" or files.find_text(f"{folder}/scope") == "Device":
            continue  # a mouse's or a remote control's
        volts = (files.find_int(f"{folder}/voltage_now") or 0) / 1e6
        left_wh = _energy_wh(files, folder, volts)
        if left_wh is None:
            continue
        drawn_uw = files.find_int(f"{folder}/power_now")
        if drawn_uw is None and (drawn_ua := files.find_int(f"{folder}/current_now")) is not None and volts:
            drawn_uw = round(drawn_ua * volts)
        discharging = files.find_text(f"{folder}/status") == "Discharging"
        return Battery(folder.rsplit("/", 1)[1], left_wh, abs(drawn_uw) / 1e3 if drawn_uw and discharging else None)
    return None


def _energy_wh(files: Files, folder: str, volts: float) -> float | None:
    if (energy_uwh := files.find_int(f"{folder}/energy_now")) is not None:
        return energy_uwh / 1e6
    if (charge_uah := files.find_int(f"{folder}/charge_now")) is not None and volts:
        return charge_uah / 1e6 * volts
    percent = files.find_int(f"{folder}/capacity")
    full = files.find_int(f"{folder}/energy_full") or files.find_int(f"{folder}/energy_full_design")
    return percent / 100 * full / 1e6 if percent is not None and full else None


class BatteryLife:
    """A requested battery life, from now on. For one thread."""

    def __init__(self, now_s: float, constraints: BoardConstraints) -> None:
        self.asked = constraints
        self._until_s = now_s + 3600 * (constraints.hours or 0.0)
        self._stated_j = None if constraints.battery_wh is None else constraints.battery_wh * _J_PER_WH
        self._counted_s = now_s
        self._limit: tuple[float, float] | None = None

    def drain(self, now_s: float, drawn_mw: float) -> None:
        if self._stated_j is not None:
            self._stated_j = max(self._stated_j - drawn_mw / 1e3 * (now_s - self._counted_s), 0.0)
        self._counted_s = now_s

    def left_wh(self, battery: Battery | None) -> float | None:
        if self._stated_j is not None:
            return self._stated_j / _J_PER_WH
        return battery.left_wh if battery is not None else None

    def hours(self, now_s: float) -> float:
        return max(self._until_s - now_s, 0.0) / 3600

    def limit_mw(self, now_s: float, left_wh: float, remaining_mw: float) -> float | None:
        """Power limit of the energy rails, with ``remaining_mw`` drawn elsewhere, kept for a minute."""
        hours = self.hours(now_s)
        if hours == 0.0:
            return None
        found_mw = max(1e3 * left_wh / hours - remaining_mw, 0.0)
        if self._limit is None or (
            now_s - self._limit[1] >= _EVERY_S and abs(found_mw - self._limit[0]) > _CHANGED_BY * self._limit[0]
        ):
            self._limit = (_STEP_MW * math.floor(found_mw / _STEP_MW), now_s)
        return self._limit[0]
