# SPDX-License-Identifier: Apache-2.0
"""Tables that others measured, as records: every row is checked, and one that cannot be is named by its line.

What no device can do tells wrong units: a kernel, or a network of known launches, that is over before the device's rates allow
it, one that takes a thousand times as long as the others beside what it has to do, or a whole table whose middle one takes
hundreds of times as long as what it has to do and a launch.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ....kernels.cost.roofline import terms_ms
from ....kernels.errors import KernelsError
from ....kernels.grid import FrequencyConfiguration
from ....kernels.network import DTYPE_BYTES, KernelInvocation, Network
from ....kernels.units import AXES
from ...adapt.measurements import TABLES, Measurements, Rows
from ...adapt.plausible import ABSURD, LONGEST_MS, has_work, least_ms, most_mw, too_far
from ...board import load_board
from ...device import Device, MeasuredDevice
from ...errors import MeasurementError
from ...reference import reference_network
from .mapping import MS, NEEDS, Cell, Mapped, kernel_of

_TOO_FAST = 10.0  # caches, tensor cores and fewer multiplications than the definition has make kernels faster than the bound
_TOO_SLOW = 300.0  # times what its work and a launch take, of a table's middle row; real tables' are 1.3 to 15
_TOLD = 5  # rows that are named
_NEAR = 0.01  # clocks as tables round them
_HZ: Mapping[str, float] = {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6}


@dataclass
class _Found:
    """What the rows of one device come to.

    Attributes:
        distances: of each row whose work is known, its line, its time in ms, and that beside what its work takes.
    """

    device: MeasuredDevice
    invocations: dict[Any, tuple[int, KernelInvocation]] = field(default_factory=dict)
    networks: dict[str, tuple[int, Network]] = field(default_factory=dict)
    rows: dict[str, list[tuple[int, int, float]]] = field(default_factory=dict)
    distances: list[tuple[int, float, float]] = field(default_factory=list)


class _Wrong(ValueError):
    """A row that cannot be."""


def import_table(path: Path, mapping: Mapped, devices: Sequence[str] = ()) -> dict[str, Measurements]:
    """The records of a table, one for each device, by the device's name.

    Args:
        devices: the only ones that are wanted; all by default.

    Raises:
        MeasurementError: the table cannot be read, has not the columns that the mapping names, or has rows that cannot be.
    """
    mapping = mapping.of_table(path)
    if not mapping.device:
        raise MeasurementError(f"{path}: the mapping does not say what was measured; say the board")
    found: dict[str, _Found] = {}
    wrong: list[tuple[int, str]] = []
    count = 0
    for line, row in read_table(path, mapping):
        if any(row.get(column) != text for column, text in mapping.only.items()):
            continue
        count += 1
        try:
            _take(line, row, mapping, found, devices)
        except (_Wrong, KernelsError) as error:
            wrong.append((line, str(error)))
    wrong += [one for device in found.values() for one in _far(device)]
    if wrong:
        more = f" and {len(wrong) - _TOLD} more" if len(wrong) > _TOLD else ""
        told = "; ".join(f"line {line}: {why}" for line, why in sorted(wrong)[:_TOLD])
        raise MeasurementError(f"{path}: {len(wrong)} of {count} rows cannot be, nothing was imported; {told}{more}")
    if not found:
        of = f" of {', '.join(devices)}" if devices else ""
        raise MeasurementError(f"{path}: no rows{of}")
    for name, one in found.items():
        middle = float(np.median([distance for *_, distance in one.distances])) if one.distances else 0.0
        if middle > _TOO_SLOW:
            raise MeasurementError(
                f"{path}: of {name} the middle row takes {middle:.3g} times what the device needs; "
                f"is column {mapping.time.column!r} in {mapping.time.unit}, as the mapping says? nothing was imported"
            )
    return {name: _record(one, path, mapping) for name, one in found.items()}


def read_table(path: Path, mapping: Mapped) -> Iterator[tuple[int, Mapping[str, str]]]:
    """The rows of a CSV table, which may be gzipped, or of a Parquet file, each with its line; a Parquet file's from 1.

    Lines that begin with ``==`` or ``#`` are the words of the tool that wrote it.

    Raises:
        MeasurementError: it cannot be read, or a column is missing.
    """
    try:
        if path.suffix == ".parquet":
            yield from _parquet(path, mapping)
            return
        with gzip.open(path, "rt", encoding="utf-8-sig") if path.suffix == ".gz" else path.open(encoding="utf-8-sig") as stream:
            of_tool = ("==", "#")
            numbered = (item for item in enumerate(stream, 1) if not item[1].startswith(of_tool) and item[1].strip())
            lines: list[int] = []

            def text() -> Iterator[str]:
                for number, line in numbered:
                    lines.append(number)
                    yield line

            reader = csv.DictReader(text())
            _check_columns(path, mapping, reader.fieldnames or ())
            for number, row in enumerate(reader):
                if number == 0 and mapping.units_row:
                    _check_unit(path, mapping, row, lines[-1])
                else:
                    yield lines[-1], row
    except (OSError, EOFError, UnicodeError, csv.Error) as error:
        raise MeasurementError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _parquet(path: Path, mapping: Mapped) -> Iterator[tuple[int, Mapping[str, str]]]:
    try:
        import pandas

        table = pandas.read_parquet(path)
    except ImportError as error:
        raise MeasurementError(f"{path}: reading Parquet needs pandas and pyarrow; a CSV table needs neither") from error
    except ValueError as error:  # pyarrow's
        raise MeasurementError(f"{path}: {' '.join(str(error).split()):.200}") from error
    _check_columns(path, mapping, [str(name) for name in table.columns])
    for number, row in enumerate(table.to_dict("records"), 1):
        yield number, {str(name): str(value) for name, value in row.items()}


def _check_columns(path: Path, mapping: Mapped, there: Sequence[str]) -> None:
    missing = sorted(set(_columns(mapping)) - set(there))
    if missing:
        raise MeasurementError(f"{path}: no column {', '.join(missing)}; it has {', '.join(there)}")


def _check_unit(path: Path, mapping: Mapped, units: Mapping[str, str], line: int) -> None:
    names = {"nsecond": "ns", "usecond": "us", "msecond": "ms", "second": "s"}
    unit = units[mapping.time.column].strip()
    if names.get(unit, unit) != mapping.time.unit:
        raise MeasurementError(
            f"{path}: line {line}: column {mapping.time.column!r} is in {unit!r}, the mapping says {mapping.time.unit}"
        )


def _columns(mapping: Mapped) -> Iterator[str]:
    cells: list[Any] = [mapping.device if isinstance(mapping.device, Cell) else None, mapping.time, mapping.power]
    cells += [*mapping.clocks.values(), *mapping.only]
    if mapping.kernel is not None:
        cells += [mapping.kernel.dtype if isinstance(mapping.kernel.dtype, Cell) else None]
        cells += [size for size in mapping.kernel.sizes.values() if not isinstance(size, int)]
    if mapping.launch is not None:
        dtype = mapping.launch.dtype
        cells += [mapping.launch.kind, mapping.launch.flops, mapping.launch.bytes, dtype if isinstance(dtype, Cell) else None]
    if mapping.network is not None:
        cells += [mapping.network.name if isinstance(mapping.network.name, Cell) else None, mapping.network.batch]
    yield from (cell if isinstance(cell, str) else cell.column for cell in cells if cell)


def _far(one: _Found) -> Iterator[tuple[int, str]]:
    """Rows whose time is no device's beside the other rows', by their lines."""
    far = too_far(np.array([distance for *_, distance in one.distances]))
    for (line, time_ms, _), is_far in zip(one.distances, far, strict=True):
        if is_far:
            yield line, f"{time_ms:.3g} ms is not within {ABSURD:,.0f} times the middle row's distance from its bound"


def _take(line: int, row: Mapping[str, str], mapping: Mapped, found: dict[str, _Found], wanted: Sequence[str]) -> None:
    called = _text(row, mapping.device)
    described = mapping.devices.get(called)
    name = described.name if described is not None else mapping.boards.get(called, called)
    if wanted and name.casefold() not in map(str.casefold, wanted):
        return
    one = found.get(name) or _Found(_device(called, mapping))
    time_ms = _positive(row, mapping.time.column) * MS[mapping.time.unit]
    if time_ms > LONGEST_MS:
        raise _Wrong(f"{mapping.time.column} of {row[mapping.time.column]} {mapping.time.unit} is more than an hour")
    configuration = _configuration(row, mapping, one.device)
    index = int(np.ravel_multi_index(one.device.grid.index(configuration), one.device.grid.shape))
    power_mw = None
    if mapping.power is not None:
        value = _positive(row, mapping.power.column) * (1.0 if mapping.power.unit in ("mW", "mJ") else 1e3)
        power_mw = value if mapping.power.unit in ("W", "mW") else value / time_ms * 1e3
    if mapping.network is not None:
        batch = _whole(row, mapping.network.batch) if mapping.network.batch else 1
        title = _text(row, mapping.network.name)
        key = f"{title} {batch}"
        if key not in one.networks:
            one.networks[key] = (len(one.networks), _network(title, batch, mapping))
        what, network = one.networks[key]
        work: Sequence[KernelInvocation] = network.launches
        tables, power = ("network_ms", "network_mw"), power_mw
    else:
        kernel = kernel_of_row(row, mapping)
        what = one.invocations.setdefault((kernel.signature, kernel.flops, kernel.bytes), (len(one.invocations), kernel))[0]
        work = (kernel,)
        tables = ("kernel_ms", "kernel_mw")
        power = None if power_mw is None or mapping.power is None else power_mw - mapping.power.idle_mw
        if power is not None and power <= 0:
            raise _Wrong(f"{mapping.power and mapping.power.column}: no more than when nothing runs")
    _check_possible(work, time_ms, configuration, one.device)
    if mapping.power is not None and power_mw is not None and power_mw > (most := most_mw(one.device)):
        raise _Wrong(f"{mapping.power.column}: {power_mw / 1e3:.4g} W, and {one.device.name} draws at most {most / 1e3:g} W")
    if any(map(has_work, work)):
        one.distances.append((line, time_ms, time_ms / float(least_ms(work, np.array([index]), one.device).sum())))
    found[name] = one
    for table, figure in zip(tables, (time_ms, power), strict=True):
        if figure is not None:
            one.rows.setdefault(table, []).append((what, index, figure))


def _device(called: str, mapping: Mapped) -> MeasuredDevice:
    described = mapping.devices.get(called)
    if described is not None:
        return Device(described.name, described.axes, described.chip, ("power",) if mapping.power else ())
    if called in mapping.boards or not isinstance(mapping.device, Cell):
        return load_board(mapping.boards.get(called, called))
    raise _Wrong(f"device {called!r:.60}; the mapping knows {', '.join((*mapping.devices, *mapping.boards))}")


def _configuration(row: Mapping[str, str], mapping: Mapped, device: MeasuredDevice) -> FrequencyConfiguration:
    levels = []
    for axis in AXES:
        there = device.grid.levels(axis)
        clock = mapping.clocks.get(axis)  # type: ignore[call-overload]
        if clock is None:
            levels.append(mapping.held.get(axis, there[-1]))  # type: ignore[call-overload]
            continue
        if clock.values and row[clock.column] not in clock.values:
            raise _Wrong(f"{clock.column} {row[clock.column]!r:.60}; the mapping knows {', '.join(clock.values)}")
        value = clock.values[row[clock.column]] if clock.values else _positive(row, clock.column)
        value *= _HZ[clock.unit] / (1e3 if axis == "cpu_khz" else 1.0)
        nearest = min(there, key=lambda level: abs(level - value))
        levels.append(nearest if abs(nearest - value) <= _NEAR * value else round(value))
    return FrequencyConfiguration(*levels)


def kernel_of_row(row: Mapping[str, str], mapping: Mapped) -> KernelInvocation:
    """The kernel that a row measured, by the mapping of its table.

    Raises:
        ValueError: the row has no such kernel.
    """
    launch = mapping.launch
    if launch is not None:
        flops, moved = (round(_number(row, name)) if name else 0 for name in (launch.flops, launch.bytes))
        if min(flops, moved) < 0:
            raise _Wrong("fewer than no operations or bytes")
        return KernelInvocation(_text(row, launch.kind), "", (), (), _dtype(row, launch.dtype), {}, flops, moved)
    columns = mapping.kernel
    assert columns is not None
    usual = dict(NEEDS[columns.form].usual) if columns.form in NEEDS else {}
    sizes = usual | {name: size if isinstance(size, int) else _whole(row, size) for name, size in columns.sizes.items()}
    try:
        return kernel_of(columns.form, columns.kind, sizes, _dtype(row, columns.dtype))
    except ValueError as error:
        raise _Wrong(f"its sizes make no kernel: {error}") from error


def _network(name: str, batch: int, mapping: Mapped) -> Network:
    assert mapping.network is not None
    title = f"{name} x{batch}" if batch > 1 else name
    if mapping.network.reference:
        return Network(title, (), reference_network(mapping.network.reference, batch).calls)
    return Network(title, (), ())


def _check_possible(
    launches: Sequence[KernelInvocation], time_ms: float, configuration: FrequencyConfiguration, device: MeasuredDevice
) -> None:
    """Hold a time against the rates of the device, where the table or the network says what was to be done."""
    if not any(call.flops or call.bytes for call in launches):
        return
    _, gpu_mhz, emc_mhz = configuration.mhz
    bound_ms = float(np.max(terms_ms(launches, [gpu_mhz], [emc_mhz], device.chip), axis=0).sum())
    if time_ms * _TOO_FAST < bound_ms:
        raise _Wrong(f"{time_ms:.3g} ms, and {device.name} needs about {bound_ms:.3g} ms: another unit?")


def _text(row: Mapping[str, str], cell: Cell | str) -> str:
    """The cell's text as the record has it; what is no cell is the text."""
    if isinstance(cell, str):
        return cell
    text = (row[cell.column] or "").strip()
    if cell.at is not None:
        parts = text.split("x")
        if cell.at >= len(parts):
            raise _Wrong(f"{cell.column} {text!r:.60} has no part {cell.at}")
        text = parts[cell.at]
    if cell.values and text not in cell.values:
        raise _Wrong(f"{cell.column} {text!r:.60}; the mapping knows {', '.join(cell.values)}")
    return str(cell.values.get(text, text))


def _dtype(row: Mapping[str, str], cell: Cell | str) -> str:
    name = _text(row, cell)
    if name not in DTYPE_BYTES:
        raise _Wrong(f"element type {name!r:.60}; valid: {', '.join(DTYPE_BYTES)}")
    return name


def _number(row: Mapping[str, str], column: str) -> float:
    text = row[column] or ""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _Wrong(f"{column} {text!r:.60} is no number")
    return value


def _positive(row: Mapping[str, str], column: str) -> float:
    value = _number(row, column)
    if value <= 0:
        raise _Wrong(f"{column} {row[column]!r:.60} is not more than zero")
    return value


def _whole(row: Mapping[str, str], cell: Cell | str) -> int:
    column = cell if isinstance(cell, str) else cell.column
    text = _text(row, Cell(cell) if isinstance(cell, str) else cell)
    value = _number({column: text}, column)
    if value < 0 or value != int(value):
        raise _Wrong(f"{column} {text!r:.60} is not a whole number")
    return int(value)


def _record(one: _Found, path: Path, mapping: Mapped) -> Measurements:
    tables = {name: Rows.joined(()) for name in TABLES}
    for name, rows in one.rows.items():
        what, index, value = zip(*rows, strict=True)
        tables[name] = Rows(np.array(what), np.zeros(len(rows), np.int64), np.array(index), np.array(value, np.float64))
    return Measurements(
        board=one.device.name,
        silicon_version="",
        temperature_c=math.nan,
        rails=one.device.energy_rails,
        invocations=tuple(kernel for _, kernel in one.invocations.values()),
        calls=(),
        networks=tuple(network for _, network in one.networks.values()),
        tables=tables,
        device=one.device if isinstance(one.device, Device) else None,
        environment={"table": path.name, "source": mapping.source},
    )
