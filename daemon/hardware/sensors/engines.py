# SPDX-License-Identifier: Apache-2.0
"""Clocks of codec and vision units, which are never set."""

from __future__ import annotations

import re

from ..files import Files

_DEVFREQ, _BPMP = "/sys/class/devfreq", "/sys/kernel/debug/bpmp/debug/clk"
_NAMED = re.compile(r"(?:.*\.)?(vic|nvdec|nvenc|nvjpg1?|ofa|gpu-nvd-\d)")
_CLOCKS = {"vic": "vic", "nvdec": "nvdec", "nvenc": "nvenc", "nvjpg": "nvjpg", "ofa": "ofa", "pva0_vps": "pva"}


class EngineClocks:
    """The units that the kernel shows: as devfreq devices (``gpu-nvd-0``), else among the firmware's clocks."""

    def __init__(self, files: Files) -> None:
        self._files = files
        devices = ((match[1], name) for name in files.list_names(_DEVFREQ) if (match := _NAMED.fullmatch(name)))
        self._rates = {unit: f"{_DEVFREQ}/{name}/cur_freq" for unit, name in devices}
        self._states: dict[str, str] = {}
        for clock, unit in _CLOCKS.items():
            if unit not in self._rates and files.exists(f"{_BPMP}/{clock}/rate"):
                self._rates[unit], self._states[unit] = f"{_BPMP}/{clock}/rate", f"{_BPMP}/{clock}/state"

    def read(self) -> dict[str, int]:
        found = {}
        for unit, path in self._rates.items():
            on = unit not in self._states or self._files.find_text(self._states[unit]) != "0"
            if (rate := self._files.find_int(path) if on else 0) is not None:
                found[unit] = rate
        return found
