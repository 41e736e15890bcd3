# SPDX-License-Identifier: Apache-2.0
"""Cooling devices: clocks that the kernel or the firmware lowers now, and the degree.

Linux, Documentation/driver-api/thermal/sysfs-api.rst; alerts (``gpu-throttle-alert``) come from NVIDIA's firmware.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..files import Files

DEVICES = "/sys/class/thermal/cooling_device*"
# Fans and devices that only warn (hot-surface-alert) lower no clock.
_LOWERS_CLOCKS = re.compile(r"(thermal-)?(cpufreq|devfreq)[-.].*|.*-throttle-alert|.*-balanced")
_AXES = {"cpu": ("cpu_khz",), "gpu": ("gpu_hz",)}


class CoolingDevice(NamedTuple):
    name: str
    folder: str

    def read(self, files: Files) -> CoolingState | None:
        state, most = (files.find_int(f"{self.folder}/{name}") for name in ("cur_state", "max_state"))
        return None if state is None else CoolingState(self.name, state, most or state)


class CoolingState(NamedTuple):
    """State of a cooling device: 0 is no cooling, ``most`` the strongest."""

    name: str
    state: int
    most: int

    @property
    def axes(self) -> tuple[str, ...]:
        """Clocks that it lowers; empty if its name does not tell."""
        return next((axes for part, axes in _AXES.items() if part in self.name), ())

    def __str__(self) -> str:
        return f"cooling device {self.name} is at {self.state} of {self.most}"


def find_devices(files: Files) -> tuple[CoolingDevice, ...]:
    named = ((folder, files.find_text(f"{folder}/type")) for folder in files.glob(DEVICES))
    return tuple(CoolingDevice(name, folder) for folder, name in named if name and _LOWERS_CLOCKS.fullmatch(name))


def active(states: tuple[CoolingState, ...]) -> tuple[CoolingState, ...]:
    return tuple(one for one in states if one.state > 0)
