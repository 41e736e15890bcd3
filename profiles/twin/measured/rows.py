# SPDX-License-Identifier: Apache-2.0
"""Mapped rows of a table."""

from __future__ import annotations

import csv
import gzip
import math
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from ...board import load_board
from ...errors import MeasurementError
from .mapping import AXES, Axis, Cell, ClockColumn, NetworkColumns, PowerColumn, TableMapping, TimeColumn

Row: TypeAlias = Mapping[str, str]
Levels: TypeAlias = tuple[int, int, int]

_MS: Mapping[str, float] = {"s": 1e3, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
_MW: Mapping[str, float] = {"W": 1e3, "mW": 1.0, "J": 1e3, "mJ": 1.0}  # energies are divided by the time in seconds
_HZ: Mapping[str, float] = {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9}
_OF_TOOLS = ("==", "#")
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d*)?")
_UNIT_NAMES = {"nsecond": "ns", "usecond": "us", "msecond": "ms", "second": "s"}


class WrongRow(ValueError):
    """Impossible row."""


class WrongNumber(WrongRow):
    """Invalid number in a cell."""

    def __init__(self, column: str, text: str, why: str) -> None:
        super().__init__(f"{column} {text!r:.60} {why}")
        self.column, self.text = column, text


def read_table(path: Path, mapping: TableMapping) -> Iterator[tuple[int, Row]]:
    """Rows of a CSV (perhaps gzipped) or Parquet table with their lines, without ``==`` and ``#`` lines and unwanted rows.

    Raises MeasurementError, also for another time unit than mapped.
    """
    for number, (line, row) in enumerate(read_lines(path, mapping.columns)):
        if number == 0 and mapping.units_row:
            _check_units(path, mapping.time, row, line)
        elif all(row[column] == text for column, text in mapping.only.items()):
            yield line, row


def time_of(row: Row, time: TimeColumn) -> float:
    """In ms."""
    value = sum(positive(row, column) for column in time.columns)
    return 1e3 / value if time.unit == "1/s" else value * _MS[time.unit]


def power_of(row: Row, power: PowerColumn, took_ms: float) -> float:
    """In mW; energies are divided by the run's time."""
    value = sum(positive(row, column) for column in power.columns) * _MW[power.unit]
    return value / (took_ms / 1e3) if power.unit.endswith("J") else value


def power_elsewhere(mapping: TableMapping, data: Path) -> Mapping[Levels, float] | None:
    """Power in mW by clocks from the mapping's other file."""
    power = mapping.power
    if power is None or not power.file or not isinstance(mapping.device, str):
        return None
    path, top = data / power.file, load_board(mapping.device).grid.top
    found = {}
    for line, row in read_lines(path, {*power.columns, *(clock.column for clock in power.clocks.values())}):
        try:
            found[levels_of(row, power.clocks, {}, top)] = power_of(row, power, math.nan)
        except WrongRow as error:
            raise MeasurementError(f"{path}, line {line}: {error}") from error
    return found


def levels_of(row: Row, clocks: Mapping[Axis, ClockColumn], held: Mapping[Axis, int], top: Sequence[int]) -> Levels:
    cpu, gpu, emc = (
        _level(row, axis, clocks[axis]) if axis in clocks else held.get(axis, highest)
        for axis, highest in zip(AXES, top, strict=True)
    )
    return cpu, gpu, emc


def _level(row: Row, axis: Axis, clock: ClockColumn) -> int:
    if clock.values and row[clock.column] not in clock.values:
        raise WrongRow(f"{clock.column} {row[clock.column]!r:.60}; the mapping knows {', '.join(clock.values)}")
    value = clock.values[row[clock.column]] if clock.values else positive(row, clock.column)
    return round(value * _HZ[clock.unit] / (1e3 if axis == "cpu_khz" else 1.0))


def text_of(row: Row, cell: Cell | str) -> str:
    """Text of a cell; a string is itself."""
    if isinstance(cell, str):
        return cell
    found = (row[cell.column] or "").strip()
    if cell.at is not None:
        parts = found.split("x")
        if cell.at >= len(parts):
            raise WrongRow(f"{cell.column} {found!r:.60} has no part {cell.at}")
        found = parts[cell.at]
    if cell.values and found not in cell.values:
        raise WrongRow(f"{cell.column} {found!r:.60}; the mapping knows {', '.join(cell.values)}")
    return str(cell.values.get(found, found))


def program_of(row: Row, network: NetworkColumns) -> tuple[str, int]:
    name = " ".join((text_of(row, network.name), *(row[column] for column in network.workload)))
    return name, whole_of(row, network.batch) if network.batch else 1


def number_of(row: Row, column: str) -> float:
    value = as_number(row[column] or "")
    if not math.isfinite(value):
        raise WrongNumber(column, row[column], "is no number")
    return value


def as_number(text: str) -> float:
    """Number of a text, or NaN; commas are between thousands."""
    try:
        return float(text.replace(",", "") if _THOUSANDS.fullmatch(text) else text)
    except ValueError:
        return math.nan


def is_text(text: str) -> bool:
    """True for a cell that is no number; an empty one, also as pandas writes it, is no text."""
    return text.casefold() not in ("", "nan") and math.isnan(as_number(text))


def positive(row: Row, column: str) -> float:
    value = number_of(row, column)
    if value <= 0:
        raise WrongNumber(column, row[column], "is not more than zero")
    return value


def whole_of(row: Row, cell: Cell | str) -> int:
    """Whole number of a cell; a string is a column."""
    cell = Cell(cell) if isinstance(cell, str) else cell
    written = text_of(row, cell)
    value = number_of({cell.column: written}, cell.column)
    if value < 0 or value != int(value):
        raise WrongNumber(cell.column, written, "is not a whole number")
    return int(value)


def read_lines(path: Path, columns: Set[str] = frozenset()) -> Iterator[tuple[int, Row]]:
    """All rows of a table with these columns. Raises MeasurementError."""
    try:
        if path.suffix == ".parquet":
            yield from _parquet(path, columns)
            return
        with gzip.open(path, "rt", encoding="utf-8-sig") if path.suffix == ".gz" else path.open(encoding="utf-8-sig") as stream:
            line = 0
            numbered = enumerate(stream, 1)

            def words() -> Iterator[str]:
                nonlocal line
                for line, words in numbered:  # noqa: B007 (the line is told with the row)
                    if not words.startswith(_OF_TOOLS) and words.strip():
                        yield words

            heading = next(words(), "")
            separator = max(",;\t", key=heading.count)
            reader = csv.DictReader(chain((heading,), words()), delimiter=separator, skipinitialspace=True)
            reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
            _check_columns(path, columns, reader.fieldnames)
            for row in reader:
                cells = {name: (row[name] or "").strip() for name in reader.fieldnames}
                # With semicolons between cells, a comma is the decimal point.
                yield line, cells if separator != ";" else {name: _pointed(text) for name, text in cells.items()}
    except (OSError, EOFError, UnicodeError, csv.Error) as error:
        raise MeasurementError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _pointed(text: str) -> str:
    return text.replace(",", ".") if _DECIMAL_COMMA.fullmatch(text) else text


def _parquet(path: Path, columns: Set[str]) -> Iterator[tuple[int, Row]]:
    try:
        import pandas

        table = pandas.read_parquet(path)
    except ImportError as error:
        raise MeasurementError(f"{path}: reading Parquet needs pandas and pyarrow; a CSV table needs neither") from error
    except ValueError as error:  # pyarrow's
        raise MeasurementError(f"{path}: {' '.join(str(error).split()):.200}") from error
    _check_columns(path, columns, [str(name) for name in table.columns])
    for number, row in enumerate(table.to_dict("records"), 1):
        yield number, {str(name): str(value) for name, value in row.items()}


def _check_columns(path: Path, columns: Set[str], there: Sequence[str]) -> None:
    missing = sorted(columns - set(there))
    if missing:
        raise MeasurementError(f"{path}: no column {', '.join(missing)}; it has {', '.join(there)}")


def _check_units(path: Path, time: TimeColumn, units: Row, line: int) -> None:
    for column in time.columns:
        written = units[column].strip()
        if _UNIT_NAMES.get(written, written) != time.unit:
            raise MeasurementError(f"{path}: line {line}: column {column!r} is in {written!r}, the mapping says {time.unit}")


_MOST_TEXTS = 20


class MergedRows:
    """Rows of one program and configuration that differ in unmapped columns."""

    def __init__(self, mapping: TableMapping) -> None:
        self._named = mapping.columns if not mapping.rows else None
        self._texts: dict[str, set[str]] = {}
        self._first: dict[Hashable, Row] = {}
        self._apart: set[str] = set()

    def take(self, key: Hashable, row: Row) -> None:
        if self._named is None:
            return
        texts = {name: text for name, text in row.items() if name not in self._named and is_text(text)}
        for name, text in texts.items():
            known = self._texts.setdefault(name, set())
            if len(known) <= _MOST_TEXTS:
                known.add(text)
        before = self._first.setdefault(key, texts)
        self._apart |= {name for name, text in texts.items() if before.get(name, text) != text}

    def check(self, path: Path) -> None:
        """Raise MeasurementError if a column with few texts distinguishes merged rows."""
        apart = sorted(name for name in self._apart if len(self._texts[name]) <= _MOST_TEXTS)
        if apart:
            raise MeasurementError(
                f"{path}: rows of one program at the same clocks differ in {', '.join(apart)}; name these columns in "
                "network.workload, as clocks with values, or in only; or say rows: median to take them as repetitions"
            )
