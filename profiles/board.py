# SPDX-License-Identifier: Apache-2.0
"""Board descriptions: everything the product knows about a board before it looks at a running one.

Adding a board is adding one YAML file to ``profiles/boards``; nothing else names boards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from ..kernels.errors import GridError
from ..kernels.grid import FrequencyGrid
from .errors import BoardDescriptionError

BOARDS_DIR = Path(__file__).with_name("boards")


@dataclass(frozen=True)
class CpuPolicy:
    """One cpufreq policy: the cores that share a clock."""

    name: str
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class PowerMonitor:
    """One INA3221: its I2C address, its hwmon node, its shunt and what each channel measures."""

    address: str
    hwmon: str
    shunt_uohm: int
    channels: tuple[str, ...]


@dataclass(frozen=True)
class ChipRates:
    """Datasheet work per clock cycle, from which a roofline bound follows.

    Attributes:
        flops_per_gpu_cycle: floating-point operations per GPU cycle, by element type.
        bytes_per_emc_cycle: DRAM bytes per memory-controller cycle.
    """

    flops_per_gpu_cycle: Mapping[str, float]
    bytes_per_emc_cycle: float


@dataclass(frozen=True)
class BoardDescription:
    """A board file, checked. ``raw`` keeps the sections that drivers and twins read by name."""

    name: str
    title: str
    soc: str
    jetpack: str
    l4t: str
    kernel: str
    model: str
    compatible: tuple[str, ...]
    modules: tuple[str, ...]
    grid: FrequencyGrid
    chip: ChipRates
    cpu_policies: tuple[CpuPolicy, ...]
    monitors: tuple[PowerMonitor, ...]
    energy_rails: tuple[str, ...]
    raw: Mapping[str, Any]

    @cached_property
    def cores(self) -> int:
        return int(self.raw["cpu"]["cores"])

    def section(self, name: str) -> Mapping[str, Any]:
        """One section of the file by name (``cpu``, ``gpu``, ``emc``, ``rails``, ``thermal``, ``twin``).

        Raises:
            BoardDescriptionError: the file has no such section.
        """
        value = self.raw.get(name)
        if not isinstance(value, Mapping):
            raise BoardDescriptionError(f"board {self.name}: no section {name!r}; it has {', '.join(self.raw)}")
        return value


def list_boards(folder: Path = BOARDS_DIR) -> tuple[str, ...]:
    """The names of the boards that are described."""
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


def load_board(name: str, folder: Path = BOARDS_DIR) -> BoardDescription:
    """Read one board description.

    Raises:
        BoardDescriptionError: there is no such board (the text lists those there are), or its file is malformed.
    """
    path = folder / f"{name}.yaml"
    if name not in list_boards(folder):
        raise BoardDescriptionError(f"board {name!r} is not described; valid: {', '.join(list_boards(folder))}")
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        return _parse(raw)
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError, GridError) as error:
        raise BoardDescriptionError(f"board file {path}: {error!r}") from error


def _parse(raw: Any) -> BoardDescription:
    axes, chip, rails = raw["axes"], raw["chip"], raw["rails"]
    return BoardDescription(
        name=raw["name"],
        title=raw["title"],
        soc=raw["soc"],
        jetpack=str(raw["jetpack"]),
        l4t=str(raw["l4t"]),
        kernel=str(raw["kernel"]),
        model=raw["model"],
        compatible=tuple(raw["compatible"]),
        modules=tuple(raw["modules"]),
        grid=FrequencyGrid(tuple(axes["cpu_khz"]), tuple(axes["gpu_hz"]), tuple(axes["emc_hz"])),
        chip=ChipRates({str(k): float(v) for k, v in chip["flops_per_gpu_cycle"].items()}, float(chip["bytes_per_emc_cycle"])),
        cpu_policies=tuple(CpuPolicy(p["name"], tuple(p["cpus"])) for p in raw["cpu"]["policies"]),
        monitors=tuple(
            PowerMonitor(m["address"], m["hwmon"], int(m["shunt_uohm"]), tuple(m["channels"])) for m in rails["monitors"]
        ),
        energy_rails=tuple(rails["energy"]),
        raw=raw,
    )
