# SPDX-License-Identifier: Apache-2.0
"""Energy of a processor's packages by powercap (RAPL), readable by root since Linux 5.10; files and units: the kernel's
Documentation/power/powercap/powercap.rst."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

POWERCAP = Path("sys/class/powercap")


class Rapl:
    """The packages' counters below a root directory; without any that can be read, it has no rails."""

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
        """Counters in uJ. Raises OSError if one is no longer readable."""
        return {name: _count(path) for name, (path, _) in self._zones.items()}

    def since_mj(self, before: Mapping[str, int]) -> dict[str, float]:
        """What each package has taken since ``before``, in mJ; a counter may have begun again once."""
        now = self.read_uj()
        return {name: (now[name] - before[name]) % self._zones[name][1] / 1e3 for name in now}


def _count(path: Path) -> int:
    return int(path.read_text())
