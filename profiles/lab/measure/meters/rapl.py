# SPDX-License-Identifier: Apache-2.0
"""Package energy by powercap (RAPL), readable by root only since Linux 5.10.

Files and units: kernel Documentation/power/powercap/powercap.rst.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

POWERCAP = Path("sys/class/powercap")


class Rapl:
    def __init__(self, root: Path = Path("/")) -> None:
        self._zones: dict[str, tuple[Path, int]] = {}
        for zone in sorted((root / POWERCAP).glob("intel-rapl:*")):
            if zone.name.count(":") != 1:
                continue  # a part of a package
            try:
                name = (zone / "name").read_text().strip()
                _count(zone / "energy_uj")
                self._zones[name] = (zone / "energy_uj", _count(zone / "max_energy_range_uj") + 1)
            except (OSError, ValueError):
                continue  # not ours to read

    @property
    def rails(self) -> tuple[str, ...]:
        return tuple(self._zones)

    def read_uj(self) -> dict[str, int]:
        """Counters in uJ. Raises OSError if no longer readable."""
        return {name: _count(path) for name, (path, _) in self._zones.items()}

    def since_mj(self, before: Mapping[str, int]) -> dict[str, float]:
        """Energy of each package since ``before``, in mJ, across at most one wrap."""
        now = self.read_uj()
        return {name: (now[name] - before[name]) % self._zones[name][1] / 1e3 for name in now}


def _count(path: Path) -> int:
    return int(path.read_text())
