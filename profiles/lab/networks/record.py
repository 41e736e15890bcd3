# SPDX-License-Identifier: Apache-2.0
"""Record of measured networks: a folder that is valid after each network.

``about.json`` describes it; ``networks.jsonl.gz`` has a line per network, with calls and values at each configuration;
``left_out.jsonl`` has failures with reasons; ``counters.jsonl`` has a host GPU's counters.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import asdict
from numpy.typing import NDArray

from ....kernels.cost.roofline import DeviceRates
from ....kernels.errors import KernelsError
from ....kernels.graph import PerformanceGraph, graph_of
from ....kernels.grid import FrequencyConfiguration, FrequencyGrid
from ....kernels.network import Network
from ....kernels.values import PartlyCompared
from ...documents import DocumentError, convert
from ...errors import RecordError

FORMAT = 1
GIB = 1 << 30

#: Device features at one configuration, in this order. DNNPerf (tables I and II) has all but the host's
#: clock.
DEVICE_FEATURES = ("host_ghz", "gflops_per_s", "gbytes_per_s", "memory_gib")


def device_features(
    chip: DeviceRates, configurations: Sequence[FrequencyConfiguration], memory_gib: float
) -> NDArray[np.float64]:
    """:data:`DEVICE_FEATURES` at each configuration, ``(n, 4)``: clocks enter as rates."""
    cpu, gpu, emc = (np.array(column, np.float64) for column in zip(*configurations, strict=True))
    flops = chip.flops_per_gpu_cycle["float32"] * gpu / 1e9
    memory = np.full(len(cpu), memory_gib)
    return np.stack([cpu / 1e6, flops, chip.bytes_per_emc_cycle * emc / 1e9, memory], axis=1)


def device_levels(chip: DeviceRates, grid: FrequencyGrid) -> list[NDArray[np.float64]]:
    longest = [grid.configuration([min(at, size - 1) for size in grid.shape]) for at in range(max(grid.shape))]
    rates = device_features(chip, longest, 0.0)
    return [rates[:size, axis] for axis, size in enumerate(grid.shape)]


class RecordContents(PartlyCompared, frozen=True):
    """Description of a record.

    Attributes:
        metrics: names with units.
        conditions: of measurement, for readers.
        speed: of a shared processor at the start: its :data:`DEVICE_FEATURES` and reference times; not compared.
    """

    _ignored = frozenset({"speed"})
    source: str
    simulated: bool
    metrics: tuple[str, ...]
    conditions: str = ""
    format: int = FORMAT
    speed: Mapping[str, float] = field(default_factory=dict)


class RecordRow(Struct, frozen=True):
    """Values of a network on one ``board`` with these :data:`DEVICE_FEATURES`."""

    board: str
    device: tuple[float, ...]
    values: Mapping[str, float]


class MeasuredNetwork(Struct, frozen=True, eq=False, dict=True):
    """Network, family and rows; ``counters`` are a host GPU's, if counted."""

    name: str
    family: str
    network: Network
    rows: tuple[RecordRow, ...]
    counters: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def graph(self) -> PerformanceGraph:
        return graph_of(self.network)


class Query(Struct, frozen=True, eq=False):
    graph: PerformanceGraph
    device: tuple[float, ...]
    counters: Mapping[str, float] = field(default_factory=dict)


class MeasuredQuery(Query, frozen=True, eq=False, kw_only=True):
    name: str
    family: str
    board: str
    values: Mapping[str, float]


class NetworkRecord(Struct, frozen=True, eq=False):
    about: RecordContents
    networks: tuple[MeasuredNetwork, ...]
    left_out: Mapping[str, str]

    @property
    def samples(self) -> list[MeasuredQuery]:
        return [
            MeasuredQuery(
                one.graph, row.device, one.counters, name=one.name, family=one.family, board=row.board, values=row.values
            )
            for one in self.networks
            for row in one.rows
        ]


class NetworkRecorder:
    """Adds networks to a new or existing record. Raises RecordError."""

    def __init__(self, folder: Path, about: RecordContents) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            found = about_of(folder)
            if found is not None and found != about:
                raise RecordError(
                    f"{folder}: holds a record of {found.source} ({', '.join(found.metrics)}), not of {about.source}"
                )
            (folder / "about.json").write_text(json.dumps(asdict(found or about), indent=1) + "\n")
            self._cut()
        except OSError as error:
            raise RecordError(f"{folder}: {error.strerror or error}") from error
        self.done = {str(line["name"]) for line, _ in _lines(folder)} | set(_left_out(folder))

    @property
    def left_out(self) -> dict[str, str]:
        return _left_out(self._folder)

    def add(self, network: MeasuredNetwork) -> None:
        line = {
            "name": network.name,
            "family": network.family,
            "network": network.network.to_json(host_calls=True),
            "rows": [asdict(row) for row in network.rows],
        }
        with open(self._folder / "networks.jsonl.gz", "ab") as file:
            file.write(gzip.compress(json.dumps(line, separators=(",", ":")).encode() + b"\n", mtime=0))
        self.done.add(network.name)

    def leave_out(self, name: str, why: str) -> None:
        with open(self._folder / "left_out.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"name": name, "why": why}) + "\n")
        self.done.add(name)

    def _cut(self) -> None:
        whole = max((end for _, end in _lines(self._folder)), default=0)
        path = self._folder / "networks.jsonl.gz"
        if path.exists() and path.stat().st_size > whole:
            with open(path, "r+b") as file:
                file.truncate(whole)


def about_of(folder: Path) -> RecordContents | None:
    """Description of a folder's record; None without one. Raises RecordError if invalid."""
    return _about(folder) if (folder / "about.json").exists() else None


def read_record(folder: Path) -> NetworkRecord:
    """Read a record, also an interrupted one. Raises RecordError."""
    about = _about(folder)
    counters = read_counted(folder)
    networks = []
    for line, _ in _lines(folder):
        try:
            rows, name = tuple(convert(row, RecordRow) for row in line["rows"]), str(line["name"])
            network = Network.from_json(line["network"])
            networks.append(MeasuredNetwork(name, str(line["family"]), network, rows, counters.get(name, {})))
        except (KeyError, TypeError, DocumentError, KernelsError) as error:
            raise RecordError(f"{folder}: network {len(networks)}: not a record's line ({error!r:.200})") from error
    return NetworkRecord(about, tuple(networks), _left_out(folder))


def _about(folder: Path) -> RecordContents:
    try:
        about = convert(json.loads((folder / "about.json").read_bytes()), RecordContents)
    except (OSError, ValueError, DocumentError) as error:
        raise RecordError(
            f"{folder}: no record of networks ({error!s:.200}); 'jetdvfs-lab networks measure' makes one"
        ) from error
    if about.format != FORMAT:
        remedy = "upgrade jetdvfs to the one that made it" if about.format > FORMAT else "measure it again"
        raise RecordError(f"{folder}: a record of format {about.format}; this release reads {FORMAT}: {remedy}")
    return about


def _lines(folder: Path) -> Iterator[tuple[dict[str, Any], int]]:
    path = folder / "networks.jsonl.gz"
    if not path.exists():
        return
    data, at = path.read_bytes(), 0
    while at < len(data):
        member = zlib.decompressobj(wbits=31)
        try:
            text = member.decompress(data[at:])
        except zlib.error as error:
            raise RecordError(f"{path}: damaged at byte {at} ({error})") from error
        if not member.eof:
            return  # an interruption cut it short
        begins, at = at, len(data) - len(member.unused_data)
        for line in text.splitlines():
            try:
                yield json.loads(line), at
            except ValueError as error:
                raise RecordError(f"{path}: damaged at byte {begins} ({error})") from error


def add_counted(folder: Path, name: str, counters: Mapping[str, float]) -> None:
    with open(folder / "counters.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"name": name, "counters": dict(counters)}) + "\n")


def read_counted(folder: Path) -> dict[str, dict[str, float]]:
    return {str(line["name"]): dict(line["counters"]) for line in _whole_lines(folder / "counters.jsonl", "counters")}


def _left_out(folder: Path) -> dict[str, str]:
    return {str(line["name"]): str(line["why"]) for line in _whole_lines(folder / "left_out.jsonl", "why")}


def _whole_lines(path: Path, key: str) -> Iterator[dict[str, Any]]:
    """Whole lines with a network's name and ``key``."""
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and "name" in line and key in line:
            yield line
