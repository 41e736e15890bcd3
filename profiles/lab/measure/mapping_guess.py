# SPDX-License-Identifier: Apache-2.0
"""Draft mapping of a table of measurements."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import yaml
from msgspec import Struct

from ...board import BoardDescription, load_board
from ...twin.measured.rows import as_number, is_text, read_lines

_ROWS = 500
_MOST_TEXTS = 20
_AXES = {"cpu_khz": ("cpu",), "gpu_hz": ("gpu", "gpc"), "emc_hz": ("emc", "mem", "memory", "dram", "ddr")}
_CLOCK_WORDS = frozenset(["freq", "frequency", "clock", "clk", "hz", "khz", "mhz", "ghz"])
_CLOCKS = {"hz": "Hz", "khz": "kHz", "mhz": "MHz", "ghz": "GHz"}
_HZ = {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9}
_TIMES = {"s": "s", "sec": "s", "seconds": "s", "ms": "ms", "msec": "ms", "us": "us", "usec": "us", "ns": "ns", "nsec": "ns"}
_TIME_WORDS = frozenset(["latency", "lat", "time", "duration", "elapsed", "runtime"])
_RATES = frozenset(["fps", "qps", "ips", "tps", "throughput"])
_PER_SECOND = re.compile(r"(/|(?<![a-z])per)[ _]?s(ec(onds?)?)?(?![a-z])", re.IGNORECASE)
_OF_WORK = re.compile(r"[kmgt]?i?(b|bytes?|bits?|flops?|ops)", re.IGNORECASE)
_POWERS = {"w": "W", "watt": "W", "watts": "W", "mw": "mW", "j": "J", "joule": "J", "joules": "J", "mj": "mJ"}
_POWER_WORDS = frozenset(["power", "energy"])
_TOTAL = ("vdd_in", "pom_5v_in", "sys5v", "total", "module", "board")
_SPREAD = frozenset(["std", "stdev", "min", "max", "p90", "p95", "p99", "var", "variance", "idle"])


class TableColumn(Struct, frozen=True):
    """Column of a table; ``numbers`` is empty if any cell is text."""

    name: str
    words: frozenset[str]
    numbers: tuple[float, ...]
    texts: frozenset[str]


class MappingGuess(Struct, frozen=True):
    text: str
    questions: tuple[str, ...]


def guess(path: Path, board: str = "") -> MappingGuess:
    """Guess the meaning of the columns of a CSV or Parquet table; a board's clocks tell omitted units.

    Raises MeasurementError, BoardDescriptionError.
    """
    columns = _columns(path)
    described = load_board(board) if board else None
    questions: list[str] = []
    document: dict[str, object] = {"source": "?", "file": path.name, "device": board or "?"}
    questions += ["source: who measured it"] + ([] if board else ["device: the name of the board (jetdvfs board list)"])
    left = list(columns)
    clocks = dict(_clocks(left, described, questions))
    time = _figure(left, _TIMES, _TIME_WORDS, "time", questions)
    power = _figure(left, _POWERS, _POWER_WORDS, "power", questions)
    network: dict[str, object] = {"name": path.name.partition(".")[0]}
    for column in [one for one in left if "batch" in one.words and one.numbers][:1]:
        network["batch"] = column.name
        left.remove(column)
    apart = [one.name for one in left if not one.numbers and 1 < len(one.texts) <= _MOST_TEXTS]
    if apart:
        network["workload"] = apart
    document["network"] = network
    for name, part in (("clocks", clocks), ("time", time), ("power", power)):
        if part:
            document[name] = part
    unused = [one.name for one in left if one.name not in apart]
    text = "".join(f"# {one}\n" for one in questions) + (f"# not used: {', '.join(unused)}\n" if unused else "")
    return MappingGuess(text + yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120), tuple(questions))


def _columns(path: Path) -> list[TableColumn]:
    rows = [row for _, row in islice(read_lines(path), _ROWS)]
    return [_column(name, [row.get(name) or "" for row in rows]) for name in (rows[0] if rows else ())]


def _column(name: str, cells: Sequence[str]) -> TableColumn:
    numbers = () if any(map(is_text, cells)) else tuple(n for n in map(as_number, cells) if not math.isnan(n))
    spaced = re.sub(r"([a-z])([A-Z][a-z])", r"\1 \2", name)
    texts = frozenset(islice(dict.fromkeys(cells), _MOST_TEXTS + 1))
    return TableColumn(name, frozenset(filter(None, re.split(r"[^a-z0-9]+", spaced.casefold()))), numbers, texts)


def _clocks(
    left: list[TableColumn], board: BoardDescription | None, questions: list[str]
) -> Iterator[tuple[str, Mapping[str, str]]]:
    for axis, words in _AXES.items():
        found = [
            one
            for one in left
            if one.numbers and _stem(one) & set(words) and (_stem(one) & _CLOCK_WORDS or one.words <= set(words))
        ]
        if not found:
            questions.append(f"{axis}: no column; at the board's top, unless held: {{{axis}: LEVEL}} says otherwise")
            continue
        column = found[0]
        left.remove(column)
        unit = next((_CLOCKS[word] for word in _CLOCKS if word in _stem(column)), "") or _of_size(column, axis, board)
        if not unit:
            questions.append(f"clocks.{axis}.unit: of {column.name}; valid: {', '.join(_HZ)}")
        yield axis, {"column": column.name, "unit": unit or "?"}


def _stem(column: TableColumn) -> set[str]:
    """Words of a column, with unit endings split off (``gpu_freqmhz``)."""
    ends = [(word, unit) for word in column.words for unit in ("khz", "mhz", "ghz") if word.endswith(unit)]
    return set(column.words) | {part for word, unit in ends for part in (unit, word.removesuffix(unit)) if part}


def _of_size(column: TableColumn, axis: str, board: BoardDescription | None) -> str:
    if board is None:
        return ""
    top_hz = getattr(board.grid.top, axis) * (1e3 if axis == "cpu_khz" else 1.0)
    highest = max(column.numbers)
    return min(_HZ, key=lambda unit: abs(math.log(max(highest, 1e-9) * _HZ[unit] / top_hz)))


def _is_rate(column: TableColumn) -> bool:
    """True for inferences a second, not for bytes or operations."""
    return bool(column.words & _RATES or _PER_SECOND.search(column.name)) and not any(map(_OF_WORK.fullmatch, column.words))


def _told(column: TableColumn) -> frozenset[str]:
    return column.words - {"s", "sec", "second", "seconds"} if _PER_SECOND.search(column.name) else column.words


def _figure(
    left: list[TableColumn], units: Mapping[str, str], words: frozenset[str], part: str, questions: list[str]
) -> Mapping[str, object]:
    called = [one for one in left if _told(one) & (units.keys() | words) and not one.words & _SPREAD]
    found = [one for one in called if one.numbers]
    if not found and part == "time" and (rates := [one for one in left if one.numbers and _is_rate(one)]):
        left.remove(rates[0])
        return {"column": rates[0].name, "unit": "1/s"}
    if not found:
        texts = [f"{one.name} is not a number in each row, such as {min(one.texts)!r:.60}" for one in called]
        questions.append(f"{part}: {'; '.join(texts) or 'no column is called so'}")
        return {}
    chosen = [one for one in found if any(total in one.name.casefold() for total in _TOTAL)][:1] or found[:1]
    others = [one.name for one in found if one not in chosen]
    if others:
        questions.append(f"{part}: {chosen[0].name}, or {', '.join(others)}? Columns in a list add up")
    left.remove(chosen[0])
    unit = next((units[word] for word in units if word in chosen[0].words), "")
    if not unit:
        questions.append(f"{part}.unit: of {chosen[0].name}; valid: {', '.join(dict.fromkeys(units.values()))}")
    return {"column": chosen[0].name, "unit": unit or "?"}
