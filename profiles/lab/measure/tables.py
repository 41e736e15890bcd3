# SPDX-License-Identifier: Apache-2.0
"""Imported tables as records. Impossible times reveal wrong units and are reported by line."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from ....kernels.cost.roofline import terms_ms
from ....kernels.errors import KernelsError
from ....kernels.grid import FrequencyConfiguration, FrequencyGrid
from ....kernels.network import DTYPE_BYTES, KernelInvocation, Network
from ....kernels.units import AXES
from ...adapt.measurements import (
    ABSURD,
    LONGEST_MS,
    TABLES,
    MeasurementRows,
    Measurements,
    has_work,
    least_ms,
    most_mw,
    too_far,
)
from ...board import load_board
from ...device import Device, MeasuredDevice
from ...errors import MeasurementError
from ...reference import reference_network
from ...twin.measured.mapping import NEEDS, Cell, TableMapping
from ...twin.measured.rows import (
    Levels,
    MergedRows,
    Row,
    WrongRow,
    levels_of,
    number_of,
    power_elsewhere,
    power_of,
    program_of,
    read_table,
    text_of,
    time_of,
    whole_of,
)
from .sized_kernels import kernel_of

_TOO_FAST = 10.0  # caches, tensor cores and fewer multiplications than the definition has make kernels faster than the bound
_TOO_SLOW = 300.0  # times the bound and a launch, of a table's middle row; real tables' are 1.3 to 15
_TOLD = 5  # rows that are named
_NEAR = 0.01  # clocks as tables round them


class _DeviceRows(Struct):
    """Rows of one device; ``distances`` holds line, time in ms, and relative time."""

    device: MeasuredDevice
    invocations: dict[Any, tuple[int, KernelInvocation]] = field(default_factory=dict)
    networks: dict[str, tuple[int, Network]] = field(default_factory=dict)
    rows: dict[str, list[tuple[int, int, float]]] = field(default_factory=dict)
    distances: list[tuple[int, float, float]] = field(default_factory=list)


def import_table(path: Path, mapping: TableMapping, devices: Sequence[str] = ()) -> dict[str, Measurements]:
    """Records of a table by device, of some ``devices`` or all. Raises MeasurementError."""
    mapping = mapping.of_table(path)
    if not mapping.device:
        raise MeasurementError(f"{path}: the mapping names no device; give the board")
    drawn = power_elsewhere(mapping, path.parents[len(Path(mapping.file).parts) - 1])
    found: dict[str, _DeviceRows] = {}
    wrong: list[tuple[int, str]] = []
    count, merging = 0, MergedRows(mapping)
    for line, row in read_table(path, mapping):
        count += 1
        try:
            _take(line, row, mapping, found, drawn, devices)
            if mapping.network is not None:
                merging.take((text_of(row, mapping.device), program_of(row, mapping.network), *_at(row, mapping)), row)
        except (WrongRow, KernelsError) as error:
            wrong.append((line, str(error)))
    wrong += [one for device in found.values() for one in _far(device)]
    if wrong:
        more = f" and {len(wrong) - _TOLD} more" if len(wrong) > _TOLD else ""
        told = "; ".join(f"line {line}: {why}" for line, why in sorted(wrong)[:_TOLD])
        raise MeasurementError(f"{path}: {len(wrong)} of {count} rows cannot be, nothing was imported; {told}{more}")
    merging.check(path)
    if not found:
        of = f" of {', '.join(devices)}" if devices else ""
        raise MeasurementError(f"{path}: no rows{of}")
    for name, one in found.items():
        middle = float(np.median([distance for *_, distance in one.distances])) if one.distances else 0.0
        if middle > _TOO_SLOW:
            raise MeasurementError(
                f"{path}: of {name} the middle row takes {middle:.3g} times the device's bound; "
                f"is column {mapping.time.named!r} in {mapping.time.unit}, as the mapping says? nothing was imported"
            )
    return {name: _record(one, path, mapping) for name, one in found.items()}


def _at(row: Row, mapping: TableMapping) -> tuple[str, ...]:
    return tuple(row[clock.column] for clock in mapping.clocks.values())


def _far(one: _DeviceRows) -> Iterator[tuple[int, str]]:
    far = too_far(np.array([distance for *_, distance in one.distances]))
    for (line, time_ms, _), is_far in zip(one.distances, far, strict=True):
        if is_far:
            yield line, f"{time_ms:.3g} ms is not within {ABSURD:,.0f} times the middle row's distance from its bound"


def _take(
    line: int,
    row: Row,
    mapping: TableMapping,
    found: dict[str, _DeviceRows],
    drawn: Mapping[Levels, float] | None,
    wanted: Sequence[str],
) -> None:
    called = text_of(row, mapping.device)
    described = mapping.devices.get(called)
    name = described.name if described is not None else mapping.boards.get(called, called)
    if wanted and name.casefold() not in map(str.casefold, wanted):
        return
    one = found.get(name) or _DeviceRows(_device(called, mapping))
    time_ms = time_of(row, mapping.time)
    if time_ms > LONGEST_MS:
        written = " + ".join(row[column] for column in mapping.time.columns)
        raise WrongRow(f"{mapping.time.named} of {written} {mapping.time.unit} is more than an hour")
    levels = levels_of(row, mapping.clocks, mapping.held, one.device.grid.top)
    configuration = _nearest(levels, one.device.grid)
    index = int(np.ravel_multi_index(one.device.grid.index(configuration), one.device.grid.shape))
    power_mw = None
    if mapping.power is not None:
        power_mw = power_of(row, mapping.power, time_ms) if drawn is None else drawn.get(levels)
    if mapping.network is not None:
        title, batch = program_of(row, mapping.network)
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
            raise WrongRow(f"{mapping.power and mapping.power.named}: no more than when nothing runs")
    _check_possible(work, time_ms, configuration, one.device)
    if mapping.power is not None and power_mw is not None and power_mw > (most := most_mw(one.device)):
        raise WrongRow(f"{mapping.power.named}: {power_mw / 1e3:.4g} W, and {one.device.name} draws at most {most / 1e3:g} W")
    if any(map(has_work, work)):
        one.distances.append((line, time_ms, time_ms / float(least_ms(work, np.array([index]), one.device).sum())))
    found[name] = one
    for table, figure in zip(tables, (time_ms, power), strict=True):
        if figure is not None:
            one.rows.setdefault(table, []).append((what, index, figure))


def _device(called: str, mapping: TableMapping) -> MeasuredDevice:
    described = mapping.devices.get(called)
    if described is not None:
        return Device(described.name, described.axes, described.chip, ("power",) if mapping.power else ())
    if called in mapping.boards or not isinstance(mapping.device, Cell):
        return load_board(mapping.boards.get(called, called))
    raise WrongRow(f"device {called!r:.60}; the mapping knows {', '.join((*mapping.devices, *mapping.boards))}")


def _nearest(levels: Levels, grid: FrequencyGrid) -> FrequencyConfiguration:
    found = []
    for axis, level in zip(AXES, levels, strict=True):
        nearest = min(grid.levels(axis), key=lambda one: abs(one - level))
        found.append(nearest if abs(nearest - level) <= _NEAR * level else level)
    return FrequencyConfiguration(*found)


def kernel_of_row(row: Row, mapping: TableMapping) -> KernelInvocation:
    """Kernel of a row, by the table's mapping. Raises ValueError."""
    launch = mapping.launch
    if launch is not None:
        flops, moved = (round(number_of(row, name)) if name else 0 for name in (launch.flops, launch.bytes))
        if min(flops, moved) < 0:
            raise WrongRow("fewer than no operations or bytes")
        return KernelInvocation(text_of(row, launch.kind), "", (), (), _dtype(row, launch.dtype), {}, flops, moved)
    columns = mapping.kernel
    assert columns is not None
    usual = dict(NEEDS[columns.form].usual) if columns.form in NEEDS else {}
    sizes = usual | {name: size if isinstance(size, int) else whole_of(row, size) for name, size in columns.sizes.items()}
    try:
        return kernel_of(columns.form, columns.kind, sizes, _dtype(row, columns.dtype))
    except ValueError as error:
        raise WrongRow(f"its sizes make no kernel: {error}") from error


def _network(name: str, batch: int, mapping: TableMapping) -> Network:
    assert mapping.network is not None
    title = f"{name} x{batch}" if batch > 1 else name
    if mapping.network.reference:
        return Network(title, (), reference_network(mapping.network.reference, batch).calls)
    return Network(title, (), ())


def _check_possible(
    launches: Sequence[KernelInvocation], time_ms: float, configuration: FrequencyConfiguration, device: MeasuredDevice
) -> None:
    """Raise WrongRow if a time is below the bound of known work."""
    if not any(call.flops or call.bytes for call in launches):
        return
    _, gpu_mhz, emc_mhz = configuration.mhz
    bound_ms = float(np.max(terms_ms(launches, [gpu_mhz], [emc_mhz], device.chip), axis=0).sum())
    if time_ms * _TOO_FAST < bound_ms:
        raise WrongRow(f"{time_ms:.3g} ms, and {device.name} needs about {bound_ms:.3g} ms: another unit?")


def _dtype(row: Row, cell: Cell | str) -> str:
    name = text_of(row, cell)
    if name not in DTYPE_BYTES:
        raise WrongRow(f"element type {name!r:.60}; valid: {', '.join(DTYPE_BYTES)}")
    return name


def _record(one: _DeviceRows, path: Path, mapping: TableMapping) -> Measurements:
    tables = {name: MeasurementRows.joined(()) for name in TABLES}
    for name, rows in one.rows.items():
        if mapping.rows == "sum":
            rows = _added_up(rows, sum if name.endswith("_ms") else statistics.median)
        what, index, value = zip(*rows, strict=True)
        tables[name] = MeasurementRows(
            np.array(what), np.zeros(len(rows), np.int64), np.array(index), np.array(value, np.float64)
        )
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


def _added_up(rows: Sequence[tuple[int, int, float]], of: Callable[[Sequence[float]], float]) -> list[tuple[int, int, float]]:
    cells: dict[tuple[int, int], list[float]] = {}
    for what, index, value in rows:
        cells.setdefault((what, index), []).append(value)
    return [(what, index, of(values)) for (what, index), values in cells.items()]
