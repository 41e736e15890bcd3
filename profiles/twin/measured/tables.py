# SPDX-License-Identifier: Apache-2.0
"""Measured times and powers of programs on a real board."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ....kernels.grid import FrequencyConfiguration, FrequencyGrid
from ...adapt.measurements import LONGEST_MS, most_mw
from ...board import load_board
from ...errors import MeasurementError
from .mapping import AXES, SHIPPED, TableMapping, load_mapping
from .rows import (
    Levels,
    MergedRows,
    WrongNumber,
    WrongRow,
    levels_of,
    power_elsewhere,
    power_of,
    program_of,
    read_table,
    time_of,
)

Array = NDArray[np.float64]
_FAR = 2.0
"""Larger factors from a board's clocks mean another unit."""


class MeasuredTable(Struct, frozen=True, eq=False):
    """Measurements of one program at each configuration of a real board.

    Attributes:
        name: of the table; ``workload``: of the program.
        latency_ms, power_mw: of a frame, of the grid's shape; NaN if not measured.
        reference: its reference network, of ``batch`` images, or empty.
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
        return np.isfinite(self.latency_ms) & np.isfinite(self.power_mw)

    @property
    def energy_mj(self) -> Array:
        return self.latency_ms * self.power_mw / 1e3

    def nearest(self, index: tuple[int, ...]) -> tuple[int, int, int]:
        cells = np.argwhere(self.measured)
        cpu, gpu, emc = (int(place) for place in cells[np.abs(cells - np.array(index)).sum(axis=1).argmin()])
        return cpu, gpu, emc


def load_tables(data: Path, mappings: Sequence[Path] = ()) -> list[MeasuredTable]:
    """Tables below a folder, of these mappings or of shipped ones. Raises MeasurementError."""
    known = {path.stem: load_mapping(path) for path in (*mappings, *([] if mappings else sorted(SHIPPED.glob("*.yaml"))))}
    known = {name: mapping for name, mapping in known.items() if mappings or mapping.is_replayed}
    found: list[MeasuredTable] = []
    for name, mapping in known.items():
        folder = _holding(data, mapping.file)
        if mappings or folder is not None:
            found += _tables(name, mapping, folder or data)
    if not found:
        raise MeasurementError(f"{data}: none of the tables {', '.join(known)} is there")
    return found


def _holding(data: Path, file: str) -> Path | None:
    if (data / file).exists() or Path(file).is_absolute():
        return data
    found = min(data.rglob(file), default=None)
    return None if found is None else found.parents[len(Path(file).parts) - 1]


def find_table(data: Path, board: str, program: str, mappings: Sequence[Path] = ()) -> MeasuredTable:
    """Table of one program, by part of its name, on one board. Raises MeasurementError."""
    own = [table for table in load_tables(data, mappings) if table.board == board]
    found = [table for table in own if program in table.workload]
    exact = [table for table in found if table.workload == program]
    if len(exact or found) != 1:
        names = ", ".join(table.workload for table in found or own) or "none"
        raise MeasurementError(f"{data}: expected one program of {board} that is called {program!r:.80}; there are {names}")
    return (exact or found)[0]


class MeasuredRun(NamedTuple):
    board: str
    program: str
    batch: int
    levels: Levels
    took_ms: float
    drew_mw: float


def runs(path: Path, mapping: TableMapping, drawn: Mapping[Levels, float] | None = None) -> Iterator[MeasuredRun]:
    """Replayable runs on known boards; ``drawn`` is power by clocks of another table. Raises MeasurementError."""
    assert mapping.network is not None and mapping.power is not None
    merging = MergedRows(mapping)
    for line, row in read_table(path, mapping):
        board = mapping.device if isinstance(mapping.device, str) else mapping.boards.get(row[mapping.device.column], "")
        if not board:
            continue
        try:
            at = levels_of(row, mapping.clocks, mapping.held, _top(board))
            took_ms = time_of(row, mapping.time)
            drew_mw = power_of(row, mapping.power, took_ms) if drawn is None else drawn.get(at, math.nan)
            one = MeasuredRun(board, *program_of(row, mapping.network), at, took_ms, drew_mw)
            _check_possible(one, mapping)
            merging.take(one[:4], row)
            yield one
        except WrongNumber as error:
            told = f"{error.column} is {error.text!r:.40}, expected a positive number"
            raise MeasurementError(f"{path}, line {line}: {told}") from error
        except WrongRow as error:
            raise MeasurementError(f"{path}, line {line}: {error}") from error
    merging.check(path)


def _check_possible(one: MeasuredRun, mapping: TableMapping) -> None:
    grid, most = _extremes(one.board)
    for axis, level in zip(AXES, one.levels, strict=True):
        own = grid.levels(axis)
        if axis in mapping.clocks and not own[0] / _FAR <= level <= own[-1] * _FAR:
            clock, unit = mapping.clocks[axis], "kHz" if axis == "cpu_khz" else "Hz"
            has = f"{one.board} has {own[0]:,} to {own[-1]:,} {unit}"
            raise WrongRow(f"{clock.column} is {level:,} {unit}, and {has}; is it in {clock.unit}, as the mapping says?")
    assert mapping.power is not None
    if one.drew_mw > most:
        raise WrongRow(f"{mapping.power.named}: {one.drew_mw / 1e3:.4g} W, and {one.board} draws at most {most / 1e3:g} W")
    if one.took_ms > LONGEST_MS:
        raise WrongRow(f"{mapping.time.named}: {one.took_ms:.4g} ms is more than an hour")


def _tables(name: str, mapping: TableMapping, data: Path) -> Iterator[MeasuredTable]:
    path = data / mapping.file
    if not mapping.is_replayed:
        raise MeasurementError(f"mapping {name}: cannot be replayed; expected the members file, device, network and power")
    programs: dict[tuple[str, str, int], dict[Levels, list[tuple[float, float]]]] = {}
    for one in runs(path, mapping, power_elsewhere(mapping, data)):
        label = f"{one.program} batch {one.batch}" if mapping.network and mapping.network.batch else one.program
        programs.setdefault((one.board, label, one.batch), {}).setdefault(one.levels, []).append((one.took_ms, one.drew_mw))
    for (board, label, batch), cells in programs.items():
        yield _table(name, mapping, board, label, batch, cells)


@cache
def _top(board: str) -> Levels:
    return load_board(board).grid.top


@cache
def _extremes(board: str) -> tuple[FrequencyGrid, float]:
    described = load_board(board)
    return described.grid, most_mw(described)


def _table(
    name: str, mapping: TableMapping, board: str, label: str, batch: int, cells: Mapping[Levels, Sequence[tuple[float, float]]]
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
    return MeasuredTable(
        name,
        label,
        board,
        mapping.source,
        grid,
        figures[0],
        figures[1],
        mapping.network.reference if mapping.network else "",
        batch,
    )
