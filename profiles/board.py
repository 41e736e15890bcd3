# SPDX-License-Identifier: Apache-2.0
"""Board descriptions: everything the product knows about a board before it looks at a running one.

Adding a board is adding one YAML file to ``profiles/boards``; nothing else names boards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import yaml

from ..kernels.errors import GridError
from ..kernels.grid import FrequencyGrid
from .errors import BoardDescriptionError
from .marks import MARKS, collect_marks, weakest

# The sections that every description has, each with its mark.
SECTIONS = ("identity", "axes", "cpu", "gpu", "emc", "rails", "thermal", "throttling", "fan", "modes")
MONITOR_CHIPS = ("ina3221", "ina238")
# The part of a section that its driver stands on; the others are known to the twin, or say how long a change takes.
_STANDS_ON = {"identity": "modules", "cpu": "policies", "gpu": "devfreq", "rails": "monitors", "thermal": "zones"}
BOARDS_DIR = Path(__file__).with_name("boards")


@dataclass(frozen=True)
class CpuPolicy:
    """One cpufreq policy: the cores that share a clock."""

    name: str
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class PowerMonitor:
    """One power monitor: its I2C address, its hwmon node, its shunt, what each channel measures, and which chip it is."""

    address: str
    hwmon: str
    shunt_uohm: int
    channels: tuple[str, ...]
    chip: str = "ina3221"


@dataclass(frozen=True)
class Release:
    """A JetPack that runs on a board, and the marks that differ from those of the description's sections."""

    jetpack: str
    l4t: str
    kernel: str
    marks: Mapping[str, str]


@dataclass(frozen=True)
class PowerMode:
    """One nvpmodel mode: the cores it leaves online and the clocks it caps; None where it does not.

    Attributes:
        masks: units that it powers down (``tpc_pg_mask``); changing them may need a reboot.
    """

    id: int
    name: str
    cores: int | None = None
    cpu_min_khz: int | None = None
    cpu_khz: int | None = None
    gpu_hz: int | None = None
    emc_hz: int | None = None
    masks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ModeSet:
    """The modes of one nvpmodel configuration; a board has one per firmware."""

    name: str
    conf: str
    default: int
    table: tuple[PowerMode, ...]


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
    """A board file, checked. ``raw`` keeps the sections that drivers and twins read by name.

    Attributes:
        energy_rails: the rails whose sum is the energy of an inference; none lies within another.
        total_rails: the rails whose sum is what the module draws.
        within: rails that measure a part of another one.
        firmware: axes that a board with other firmware offers instead, by the firmware's name.
        marks: how much is known, by section or part of one (see :mod:`.marks`).
    """

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
    total_rails: tuple[str, ...]
    within: Mapping[str, str]
    releases: tuple[Release, ...]
    firmware: Mapping[str, FrequencyGrid]
    modes: tuple[ModeSet, ...]
    marks: Mapping[str, str]
    raw: Mapping[str, Any]

    @cached_property
    def cores(self) -> int:
        return int(self.raw["cpu"]["cores"])

    def mark(self, section: str, release: Release | None = None) -> str:
        """How much is known of what the driver of a section stands on, on one release."""
        if release is not None and section in release.marks:
            return release.marks[section]
        part = self.raw["emc"]["drivers"][0] if section == "emc" else _STANDS_ON.get(section)
        whole = [mark for name, mark in self.marks.items() if name.partition(".")[0] == section]
        return self.marks.get(section) or self.marks.get(f"{section}.{part}") or weakest(whole)

    def section(self, name: str) -> Mapping[str, Any]:
        """One section of the file by name (those of :data:`SECTIONS`, ``chip``, ``twin``).

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
        return _read(path, path.stat().st_mtime_ns)
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError, GridError) as error:
        raise BoardDescriptionError(f"board file {path}: {error!r}") from error


@lru_cache(maxsize=64)
def _read(path: Path, _: int) -> BoardDescription:
    # libyaml's loader is ten times as fast, and not everywhere.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return parse_board(yaml.load(path.read_text(encoding="utf-8"), Loader=loader))


def parse_board(raw: Any) -> BoardDescription:
    """Check what a board file holds.

    Raises:
        KeyError, TypeError, ValueError, AttributeError, GridError: it is malformed.
    """
    axes, chip, rails = raw["axes"], raw["chip"], raw["rails"]
    marks = collect_marks(raw)
    unmarked = [name for name in SECTIONS if not any(mark.partition(".")[0] == name for mark in marks)]
    if unmarked:
        raise ValueError(f"no status in {', '.join(unmarked)}; valid: {', '.join(MARKS)}")
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
        grid=_grid(axes, {}),
        chip=ChipRates({str(k): float(v) for k, v in chip["flops_per_gpu_cycle"].items()}, float(chip["bytes_per_emc_cycle"])),
        cpu_policies=tuple(CpuPolicy(p["name"], tuple(p["cpus"])) for p in raw["cpu"]["policies"]),
        monitors=tuple(
            PowerMonitor(m["address"], m["hwmon"], int(m["shunt_uohm"]), tuple(m["channels"]), _monitor_chip(m))
            for m in rails["monitors"]
        ),
        energy_rails=_counted_once(rails, "energy"),
        total_rails=_counted_once(rails, "total"),
        within=dict(rails.get("within", {})),
        releases=tuple(
            Release(str(r["jetpack"]), str(r["l4t"]), str(r["kernel"]), _release_marks(r.get("marks", {})))
            for r in raw["releases"]
        ),
        firmware={str(name): _grid(other, axes) for name, other in raw.get("firmware", {}).items()},
        modes=tuple(_mode_set(name, part) for name, part in raw["modes"].items()),
        marks=marks,
        raw=raw,
    )


def _grid(axes: Mapping[str, Any], otherwise: Mapping[str, Any]) -> FrequencyGrid:
    cpu_khz, gpu_hz, emc_hz = (tuple((axes if name in axes else otherwise)[name]) for name in ("cpu_khz", "gpu_hz", "emc_hz"))
    return FrequencyGrid(cpu_khz, gpu_hz, emc_hz)


def _counted_once(rails: Mapping[str, Any], key: str) -> tuple[str, ...]:
    counted, within = tuple(rails[key]), rails.get("within", {})
    measured = {rail for monitor in rails["monitors"] for rail in monitor["channels"]}
    for rail in counted:
        if rail not in measured:
            raise ValueError(f"rails.{key}: no monitor measures {rail!r}; valid: {', '.join(sorted(measured))}")
        if within.get(rail) in counted:
            raise ValueError(f"rails.{key}: {rail} lies within {within[rail]} and would be counted twice")
    return counted


def _monitor_chip(monitor: Mapping[str, Any]) -> str:
    chip = str(monitor.get("chip", MONITOR_CHIPS[0]))
    if chip not in MONITOR_CHIPS:
        raise ValueError(f"rails.monitors: chip {chip!r}; valid: {', '.join(MONITOR_CHIPS)}")
    return chip


def _release_marks(marks: Mapping[str, Any]) -> dict[str, str]:
    for section, mark in marks.items():
        if section not in SECTIONS or mark not in MARKS:
            raise ValueError(f"releases: mark {section}: {mark}; valid: {', '.join(SECTIONS)}: {', '.join(MARKS)}")
    return dict(marks)


def _mode_set(name: str, section: Mapping[str, Any]) -> ModeSet:
    table = []
    for row in section["table"]:
        clocks = {key: value for key, value in row.items() if not key.endswith("_pg_mask")}
        table.append(PowerMode(**clocks, masks={key: value for key, value in row.items() if key not in clocks}))
    return ModeSet(str(name), section["conf"], int(section["default"]), tuple(table))
