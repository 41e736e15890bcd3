# SPDX-License-Identifier: Apache-2.0
"""Tables of what programs took and drew on a real board over its clocks; a YAML file says what the columns of each one mean."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ....kernels.grid import FrequencyConfiguration, FrequencyGrid
from ...board import load_board
from ...documents import DocumentError, Text, read_file
from ...errors import MeasurementError

SHIPPED = Path(__file__).parent / "tables"

Array = NDArray[np.float64]
Axis: TypeAlias = Literal["cpu_khz", "gpu_hz", "emc_hz"]
_MS: Mapping[str, float] = {"s": 1e3, "ms": 1.0, "us": 1e-3}
_MW: Mapping[str, float] = {"W": 1e3, "mW": 1.0, "J": 1e3, "mJ": 1.0}  # energies are divided by the latency in seconds
_HZ: Mapping[str, float] = {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6}


@dataclass(frozen=True)
class ClockColumn:
    """A column of clocks."""

    column: Text
    unit: Literal["Hz", "kHz", "MHz"]


@dataclass(frozen=True)
class LatencyColumns:
    """Columns of times, whose sum a frame takes."""

    columns: tuple[Text, ...]
    unit: Literal["s", "ms", "us"]


@dataclass(frozen=True)
class PowerColumns:
    """Columns of powers, or of energies of a frame, that add up; of another file where one is named, which has clocks too."""

    columns: tuple[Text, ...]
    unit: Literal["W", "mW", "J", "mJ"]
    file: str = ""
    clocks: Mapping[Axis, ClockColumn] = field(default_factory=dict)


@dataclass(frozen=True)
class Replayed:
    """What a table's columns mean.

    Attributes:
        source: where it comes from, for people.
        file: it, below the folder of the data.
        board: the board's name, or a column that has it.
        boards: the board's name by what stands in that column.
        name: what the program is called; ``workload``: the columns by whose texts programs are told apart.
        clocks: columns by axis; an axis without one has one level, the board's top.
        rows: what several rows of one program at one configuration come to.
        median_over: an axis that changes nothing but noise: the median over it is taken.
        only: rows are taken where these columns have these texts.
        reference: the reference network that the program is, for whoever predicts it; empty: nobody knows its launches.
        batch: the column that says for how many images at once.
    """

    source: Text
    file: Text
    board: Text
    name: Text
    clocks: Mapping[Axis, ClockColumn]
    latency: LatencyColumns
    power: PowerColumns
    boards: Mapping[str, Text] = field(default_factory=dict)
    workload: tuple[str, ...] = ()
    rows: Literal["sum", "median"] = "median"
    median_over: Axis | None = None
    only: Mapping[str, str] = field(default_factory=dict)
    reference: str = ""
    batch: str = ""


@dataclass(frozen=True, eq=False)
class MeasuredTable:
    """What one program took and drew at each configuration of a real board.

    Attributes:
        name: of the table; ``workload``: of the program.
        board: the board's name here, and ``source``: who measured it.
        grid: the configurations.
        latency_ms, power_mw: of a frame, of the grid's shape; NaN where it was not measured.
        reference: the reference network that the program is, of ``batch`` images; empty where nobody knows its launches.
    """

    name: str
    workload: str
    board: str
    source: str
    grid: FrequencyGrid
    latency_ms: Array
    power_mw: Array
    reference: str = ""
    batch: int = 1

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Where it was measured."""
        return np.isfinite(self.latency_ms) & np.isfinite(self.power_mw)

    @property
    def energy_mj(self) -> Array:
        return self.latency_ms * self.power_mw / 1e3

    def nearest(self, index: tuple[int, ...]) -> tuple[int, int, int]:
        """The measured configuration that is nearest to one, by grid index."""
        cells = np.argwhere(self.measured)
        cpu, gpu, emc = (int(place) for place in cells[np.abs(cells - np.array(index)).sum(axis=1).argmin()])
        return cpu, gpu, emc


def load_tables(data: Path, mappings: Sequence[Path] = ()) -> list[MeasuredTable]:
    """The tables of a folder, or anywhere below it: those of the mappings given, or of those shipped whose file is there.

    Raises:
        MeasurementError: there is none, or one cannot be read as its mapping says.
    """
    known = list(mappings) or sorted(SHIPPED.glob("*.yaml"))
    found: list[MeasuredTable] = []
    for path in known:
        mapping = _mapping(path)
        folder = _holding(data, mapping.file)
        if mappings or folder is not None:
            found += _tables(path.stem, mapping, folder or data)
    if not found:
        raise MeasurementError(f"{data}: none of the tables {', '.join(path.stem for path in known)} is there")
    return found


def _holding(data: Path, file: str) -> Path | None:
    """The folder that has a file: this one, or one anywhere below it."""
    if (data / file).exists() or Path(file).is_absolute():
        return data
    found = min(data.rglob(file), default=None)
    return None if found is None else found.parents[len(Path(file).parts) - 1]


def find_table(data: Path, board: str, program: str) -> MeasuredTable:
    """The table of one program on one board.

    Args:
        program: what its name has in it.

    Raises:
        MeasurementError: no table, or more than one, is called like this.
    """
    own = [table for table in load_tables(data) if table.board == board]
    found = [table for table in own if program in table.workload]
    exact = [table for table in found if table.workload == program]
    if len(exact or found) != 1:
        names = ", ".join(table.workload for table in found or own) or "none"
        raise MeasurementError(f"{data}: expected one program of {board} that is called {program!r:.80}; there are {names}")
    return (exact or found)[0]


def _mapping(path: Path) -> Replayed:
    try:
        return read_file(path, Replayed, "mapping")
    except DocumentError as error:
        raise MeasurementError(str(error)) from error


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
            for row in (reader := csv.DictReader(file)):
                yield reader.line_num, row
    except (OSError, EOFError, UnicodeError, csv.Error) as error:
        raise MeasurementError(f"{path}: {error}") from error


@cache
def _top(board: str) -> tuple[int, int, int]:
    return load_board(board).grid.top


class _Reader:
    """Reads the numbers of one file, and says where one is missing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def number(self, line: int, row: Mapping[str, str], column: str) -> float:
        text = row.get(column)
        if text is None:
            raise MeasurementError(f"{self.path}: no column {column!r}; it has {', '.join(row)[:200]}")
        try:
            value = float(text)
            if not 0 < value < math.inf:
                raise ValueError
        except ValueError:
            raise MeasurementError(f"{self.path}, line {line}: {column} is {text!r:.40}, expected a positive number") from None
        return value

    def levels(
        self, line: int, row: Mapping[str, str], clocks: Mapping[Axis, ClockColumn], top: tuple[int, int, int]
    ) -> tuple[int, int, int]:
        levels = []
        for axis, own in zip(FrequencyConfiguration._fields, top, strict=True):
            clock = next((clock for name, clock in clocks.items() if name == axis), None)
            hertz = 0.0 if clock is None else self.number(line, row, clock.column) * _HZ[clock.unit]
            levels.append(own if clock is None else round(hertz / (1e3 if axis == "cpu_khz" else 1.0)))
        return levels[0], levels[1], levels[2]


def _tables(name: str, mapping: Replayed, data: Path) -> Iterator[MeasuredTable]:
    reader = _Reader(data / mapping.file)
    programs: dict[tuple[str, str, int], dict[tuple[int, int, int], list[tuple[float, float]]]] = {}
    drawn = _powers(mapping, data)
    for line, row in _rows(reader.path):
        if any(row.get(column) != text for column, text in mapping.only.items()):
            continue
        board = mapping.boards.get(row.get(mapping.board, ""), "") if mapping.boards else mapping.board
        if not board:
            continue
        label = " ".join([mapping.name, *(row.get(column, "") for column in mapping.workload)])
        levels = reader.levels(line, row, mapping.clocks, _top(board))
        latency_ms = sum(reader.number(line, row, column) for column in mapping.latency.columns) * _MS[mapping.latency.unit]
        if drawn is None:
            power = sum(reader.number(line, row, column) for column in mapping.power.columns) * _MW[mapping.power.unit]
            power_mw = power / (latency_ms / 1e3) if mapping.power.unit.endswith("J") else power
        else:
            power_mw = drawn.get(levels, math.nan)
        batch = round(reader.number(line, row, mapping.batch)) if mapping.batch else 1
        programs.setdefault((board, label, batch), {}).setdefault(levels, []).append((latency_ms, power_mw))
    for (board, label, batch), cells in programs.items():
        yield _table(name, mapping, board, label, batch, cells)


def _powers(mapping: Replayed, data: Path) -> dict[tuple[int, int, int], float] | None:
    """The power at each configuration, where another file has it."""
    power = mapping.power
    if not power.file:
        return None
    reader = _Reader(data / power.file)
    top = _top(mapping.board)
    return {
        reader.levels(line, row, power.clocks, top): sum(reader.number(line, row, column) for column in power.columns)
        * _MW[power.unit]
        for line, row in _rows(reader.path)
    }


def _table(
    name: str,
    mapping: Replayed,
    board: str,
    label: str,
    batch: int,
    cells: Mapping[tuple[int, int, int], Sequence[tuple[float, float]]],
) -> MeasuredTable:
    grid = FrequencyGrid(*(tuple(sorted({levels[axis] for levels in cells})) for axis in range(3)))
    figures = np.full((2, *grid.shape), np.nan)
    for levels, rows in cells.items():
        places = tuple(
            grid.levels(axis).index(level) for axis, level in zip(FrequencyConfiguration._fields, levels, strict=True)
        )
        latency, power = np.array(rows).T
        figures[(0, *places)] = latency.sum() if mapping.rows == "sum" else np.median(latency)
        figures[(1, *places)] = np.median(power)
    if mapping.median_over is not None:
        axis = FrequencyConfiguration._fields.index(mapping.median_over)
        figures = np.nanmedian(figures, axis=axis + 1, keepdims=True)
        kept = [
            grid.levels(one)[-1:] if one == mapping.median_over else grid.levels(one) for one in FrequencyConfiguration._fields
        ]
        grid = FrequencyGrid(*kept)
    return MeasuredTable(name, label, board, mapping.source, grid, figures[0], figures[1], mapping.reference, batch)
