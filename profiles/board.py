# SPDX-License-Identifier: Apache-2.0
"""Board descriptions: one YAML file each in ``profiles/boards``.

A file that is ``like`` another holds only the differences; its inherited ``verified`` marks become ``derived``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct, field

from ..kernels.errors import GridError
from ..kernels.grid import FrequencyGrid
from ..kernels.text import valid_instead
from .documents import (
    Count,
    DocumentError,
    NotNegative,
    Place,
    Positive,
    Text,
    convert,
    dotted,
    laid_over,
    load_yaml,
    unknown_members,
)
from .errors import BoardDescriptionError

__all__ = [
    "BoardDescription",
    "ChipRates",
    "CpuPolicy",
    "GpuSlice",
    "GpuSlices",
    "ModeSet",
    "PowerMode",
    "PowerMonitor",
    "Release",
    "list_boards",
    "load_board",
]

Mark: TypeAlias = Literal["verified", "derived", "unknown"]
MARKS: tuple[str, ...] = get_args(Mark)
"""From strongest to weakest."""


def weakest(marks: Iterable[str]) -> str:
    """Weakest mark; ``unknown`` without any."""
    return MARKS[max((MARKS.index(mark) for mark in marks), default=len(MARKS) - 1)]


def collect_marks(raw: Mapping[str, Any]) -> dict[str, str]:
    """Marks of a description by dotted name: ``cpu``, ``cpu.governors``, ``modes.base``. Raises DocumentError."""
    return dict(_collect(raw, ()))


def derived(raw: Any) -> Any:
    """Description with ``verified`` marks lowered, for a board that inherits it."""
    if isinstance(raw, Mapping):
        return {key: _lowered(value) if key in ("status", "marks") else derived(value) for key, value in raw.items()}
    return [derived(item) for item in raw] if isinstance(raw, list) else raw


def _lowered(status: Any) -> Any:
    if isinstance(status, Mapping):
        return {part: _lowered(mark) for part, mark in status.items()}
    return "derived" if status == "verified" else status


def _collect(section: Mapping[str, Any], at: Place) -> Iterator[tuple[str, str]]:
    for name, part in section.items():
        if not isinstance(part, Mapping) or name == "status":
            continue
        here = (*at, name)
        status = part.get("status")
        if isinstance(status, Mapping):
            yield from ((dotted((*here, piece)), _mark(mark, (*here, "status", piece))) for piece, mark in status.items())
        elif status is not None:
            yield dotted(here), _mark(status, (*here, "status"))
        yield from _collect(part, here)


def _mark(value: Any, at: Place) -> str:
    if value not in MARKS:
        raise DocumentError(f"expected {', '.join(MARKS[:-1])} or {MARKS[-1]}, got {value!r:.60}", at)
    return str(value)


Section: TypeAlias = Literal["identity", "axes", "cpu", "gpu", "emc", "rails", "thermal", "throttling", "fan", "modes"]
SECTIONS: tuple[str, ...] = get_args(Section)
"""Required sections, each with its mark."""

Role: TypeAlias = Literal["cpu", "gpu", "soc", "cv", "dram", "module", "other"]
"""Load of a rail: a part of the chip, memory, the module, or other parts."""

UNUSED = "NC"
"""Unconnected channel of a power monitor."""

# The part of a section that its driver needs; further parts serve the twin, or give transition times.
_STANDS_ON = {"identity": "modules", "cpu": "policies", "gpu": "devfreq", "rails": "monitors", "thermal": "zones"}
BOARDS_DIR = Path(__file__).with_name("boards")


class CpuPolicy(Struct, frozen=True):
    """One cpufreq policy: cores that share a clock."""

    name: Text
    cpus: tuple[Count, ...]


class PowerMonitor(Struct, frozen=True):
    """Power monitor: I2C address, hwmon node, shunt, channel labels, and chip."""

    address: Text
    hwmon: Text
    shunt_uohm: Positive
    channels: tuple[Text, ...]
    chip: Literal["ina3221", "ina238"]


class Release(Struct, frozen=True):
    """JetPack release, and its marks that differ from the description's."""

    jetpack: Text
    l4t: Text
    kernel: Text
    marks: Mapping[Section, Mark] = field(default_factory=dict)


class PowerMode(Struct, frozen=True):
    """One nvpmodel mode: online cores and clock caps; None if absent.

    ``masks`` are powered-down units (``tpc_pg_mask``), which may need a reboot.
    """

    id: Count
    name: Text
    cores: Positive | None = None
    cpu_min_khz: Positive | None = None
    cpu_khz: Positive | None = None
    gpu_hz: Positive | None = None
    emc_hz: Positive | None = None
    masks: Mapping[str, Count] = field(default_factory=dict)


class ModeSet(Struct, frozen=True):
    """Modes of one nvpmodel configuration; a board has one per firmware."""

    name: str
    conf: str
    default: int
    table: tuple[PowerMode, ...]


class ChipRates(Struct, frozen=True):
    """Datasheet work per clock cycle, for the roofline bound; memory in GiB, 0 if unknown."""

    flops_per_gpu_cycle: Mapping[str, NotNegative]
    bytes_per_emc_cycle: NotNegative
    dram_gib: NotNegative = 0


class GpuSlice(Struct, frozen=True):
    """Part of a GPU that MIG gives to one application."""

    name: Text
    multiprocessors: Positive


class GpuSlices(Struct, frozen=True):
    """MIG slices of a board's GPU, and its total multiprocessors."""

    multiprocessors: Positive
    slices: tuple[GpuSlice, ...]


class BoardDescription(Struct, frozen=True, dict=True):
    """Checked board file; ``raw`` keeps the sections that drivers and twins read by name.

    Attributes:
        energy_rails: disjoint rails that sum to the energy of an inference.
        total_rails: rails that sum to the module's power.
        within: rails that measure a part of another one.
        parts: rails whose sum may replace one that some carriers do not measure.
        roles: loads of each rail.
        firmware: different axes, by firmware.
        marks: verification state, by section or part of one (see :data:`Mark`).
        like: described board whose files an undescribed module uses; else empty.
        sibling: board whose description fills gaps, or empty.
        sources: of verified facts.
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
    parts: Mapping[str, tuple[str, ...]]
    roles: Mapping[str, tuple[Role, ...]]
    releases: tuple[Release, ...]
    firmware: Mapping[str, FrequencyGrid]
    modes: tuple[ModeSet, ...]
    mig: GpuSlices | None
    marks: Mapping[str, str]
    raw: Mapping[str, Any]
    like: str = ""
    sibling: str = ""
    sources: tuple[str, ...] = ()

    @cached_property
    def cores(self) -> int:
        return int(self.raw["cpu"]["cores"])

    @cached_property
    def host_rails(self) -> tuple[str, ...]:
        """Energy rails that feed the CPU and not the GPU; maybe empty."""
        feeds = {rail: self.roles.get(rail, ()) for rail in self.energy_rails}
        return tuple(rail for rail, roles in feeds.items() if "cpu" in roles and "gpu" not in roles)

    @property
    def own_memory(self) -> bool:
        """False: a Jetson's GPU and CPU share the memory."""
        return False

    def mark(self, section: str, release: Release | None = None) -> str:
        """Mark of a section's part that its driver needs, on one release."""
        for name, mark in release.marks.items() if release is not None else ():
            if name == section:
                return mark
        part = self.raw["emc"]["drivers"][0] if section == "emc" else _STANDS_ON.get(section)
        whole = [mark for name, mark in self.marks.items() if name.partition(".")[0] == section]
        return self.marks.get(section) or self.marks.get(f"{section}.{part}") or weakest(whole)

    def section(self, name: str) -> Mapping[str, Any]:
        """One section of the file (those of :data:`SECTIONS`, ``chip``, ``twin``). Raises BoardDescriptionError."""
        value = self.raw.get(name)
        if not isinstance(value, Mapping):
            raise BoardDescriptionError(f"board {self.name}: no section {name!r}; it has {', '.join(self.raw)}")
        return value


def list_boards(folder: Path = BOARDS_DIR) -> tuple[str, ...]:
    """Names of the described boards.

    Examples:
        >>> "agx-xavier" in list_boards()
        True
    """
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


def load_board(name: str, folder: Path = BOARDS_DIR) -> BoardDescription:
    """Read one board description.

    Raises:
        BoardDescriptionError: unknown or malformed.

    Examples:
        >>> load_board("orin-nano-8gb").grid.shape
        (22, 8, 4)
    """
    path = folder / f"{name}.yaml"
    if name not in list_boards(folder):
        raise BoardDescriptionError(f"board {name!r} is not described{valid_instead(name, list_boards(folder))}")
    try:
        return _read(path, path.stat().st_mtime_ns)
    except (OSError, UnicodeError) as error:
        raise BoardDescriptionError(f"board file {path}: {error}") from error


@lru_cache(maxsize=64)
def _read(path: Path, _: int) -> BoardDescription:
    text = path.read_text(encoding="utf-8")
    try:
        return parse_board(_whole(load_yaml(text), path.parent, (path.stem,)))
    except DocumentError as error:
        raise BoardDescriptionError(error.in_file(f"board file {path}", text)) from error


_ITS_OWN = ("name", "title", "model", "compatible", "modules")  # of a board that is like another one


def _whole(raw: Any, folder: Path, on_the_way: tuple[str, ...]) -> Any:
    """Description merged over that of the board it is ``like``. Raises BoardDescriptionError, or DocumentError for a cycle."""
    if not isinstance(raw, dict) or "like" not in raw:
        return raw
    name = str(raw["like"])
    if name in on_the_way:
        raise DocumentError(f"a board that is like itself: {' -> '.join((*on_the_way, name))}", ("like",))
    if missing := [key for key in _ITS_OWN if key not in raw]:
        raise DocumentError(f"like {name}, but without {', '.join(missing)} of its own")
    known = list_boards(folder)
    if name not in known:
        raise DocumentError(f"no board {name!r:.40}{valid_instead(name, known)}", ("like",))
    below = _whole(load_yaml((folder / f"{name}.yaml").read_text(encoding="utf-8")), folder, (*on_the_way, name))
    if not isinstance(below, dict):
        raise DocumentError(f"board {name!r} cannot be read", ("like",))
    twin = {"like": name, "silicon": below.get("twin", {}).get("silicon", name)}
    own = {key: value for key, value in raw.items() if key != "like"}
    return laid_over({**derived(below), "twin": twin, "sibling": name, "sources": []}, own)


class _Cpu(Struct, frozen=True):
    cores: Positive
    policies: tuple[CpuPolicy, ...]
    transition_ms: NotNegative


class _Gpu(Struct, frozen=True):
    devfreq: tuple[Text, ...]
    transition_ms: NotNegative


class _Emc(Struct, frozen=True):
    drivers: tuple[Text, ...]
    transition_ms: NotNegative


class _RailSection(Struct, frozen=True):
    energy: tuple[Text, ...]
    total: tuple[Text, ...]
    monitors: tuple[PowerMonitor, ...]
    roles: Mapping[str, tuple[Role, ...]]
    driver: Text
    within: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, tuple[Text, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        measured = {rail for monitor in self.monitors for rail in monitor.channels} - {UNUSED}
        for rail in (*self.energy, *self.total, *self.roles, *self.parts, *sum(self.parts.values(), ())):
            if rail not in measured:
                raise ValueError(f"no monitor measures {rail!r}; valid: {', '.join(sorted(measured))}")
        if measured - set(self.roles):
            raise ValueError(f"no roles of {', '.join(sorted(measured - set(self.roles)))}")
        for counted in (self.energy, self.total):
            for rail in counted:
                if self.within.get(rail) in counted:
                    raise ValueError(f"{rail} lies within {self.within[rail]} and would be counted twice")


class _Modes(Struct, frozen=True):
    conf: Text
    default: Count
    table: tuple[PowerMode, ...]


class _OtherAxes(Struct, frozen=True):
    cpu_khz: tuple[int, ...] | None = None
    gpu_hz: tuple[int, ...] | None = None
    emc_hz: tuple[int, ...] | None = None

    def over(self, grid: FrequencyGrid) -> FrequencyGrid:
        return FrequencyGrid(self.cpu_khz or grid.cpu_khz, self.gpu_hz or grid.gpu_hz, self.emc_hz or grid.emc_hz)


class _BoardFile(Struct, frozen=True):
    name: Text
    title: Text
    soc: Text
    jetpack: Text
    l4t: Text
    kernel: Text
    model: Text
    compatible: tuple[Text, ...]
    modules: tuple[Text, ...]
    axes: FrequencyGrid
    chip: ChipRates
    cpu: _Cpu
    gpu: _Gpu
    emc: _Emc
    rails: _RailSection
    releases: tuple[Release, ...]
    modes: Mapping[str, _Modes]
    firmware: Mapping[str, _OtherAxes] = field(default_factory=dict)
    mig: GpuSlices | None = None
    sibling: str = ""
    sources: tuple[Text, ...] = ()


def parse_board(raw: Any) -> BoardDescription:
    """Check a board file's content. Raises DocumentError."""
    try:
        file = convert(raw, _BoardFile)
        firmware = {name: axes.over(file.axes) for name, axes in file.firmware.items()}
    except GridError as error:
        raise DocumentError(str(error)) from error
    for at, known in unknown_members(raw, _BoardFile):
        if any(isinstance(key, int) for key in at):  # a section may have more, for a driver or a twin; a list's entry may not
            raise DocumentError(f"unknown; valid: {', '.join(known)}", at)
    marks = collect_marks(raw)
    unmarked = [name for name in SECTIONS if not any(mark.partition(".")[0] == name for mark in marks)]
    if unmarked:
        raise DocumentError(f"no status in {', '.join(unmarked)}; valid: {', '.join(MARKS)}")
    return BoardDescription(
        name=file.name,
        title=file.title,
        soc=file.soc,
        jetpack=file.jetpack,
        l4t=file.l4t,
        kernel=file.kernel,
        model=file.model,
        compatible=file.compatible,
        modules=file.modules,
        grid=file.axes,
        chip=file.chip,
        cpu_policies=file.cpu.policies,
        monitors=file.rails.monitors,
        energy_rails=file.rails.energy,
        total_rails=file.rails.total,
        within=file.rails.within,
        parts=file.rails.parts,
        roles=file.rails.roles,
        releases=file.releases,
        firmware=firmware,
        modes=tuple(ModeSet(name, modes.conf, modes.default, modes.table) for name, modes in file.modes.items()),
        mig=file.mig,
        marks=marks,
        raw=raw,
        sibling=file.sibling,
        sources=file.sources,
    )
