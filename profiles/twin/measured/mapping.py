# SPDX-License-Identifier: Apache-2.0
"""Mappings: meaning of measurement tables' columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from ....kernels.errors import GridError
from ....kernels.grid import FrequencyGrid
from ....kernels.network import DTYPE_BYTES
from ...board import ChipRates
from ...documents import Count, DocumentError, Text, read_file
from ...errors import MeasurementError

SHIPPED = Path(__file__).parent / "mappings"

Axis: TypeAlias = Literal["cpu_khz", "gpu_hz", "emc_hz"]
AXES: tuple[Axis, ...] = get_args(Axis)
Form: TypeAlias = Literal["convolution", "linear", "product", "elements"]
Columns: TypeAlias = Text | tuple[Text, ...]
"""Column, or several that add up."""


class FormSizes(Struct, frozen=True):
    sizes: tuple[str, ...]
    usual: Mapping[str, int]


NEEDS: Mapping[str, FormSizes] = {
    "convolution": FormSizes(
        ("batch", "channels", "filters", "height", "width", "window", "stride"),
        {"padding": 0, "dilation": 1, "groups": 1, "bias": 0},
    ),
    "linear": FormSizes(("m", "n", "k"), {"bias": 0}),
    "product": FormSizes(("m", "n", "k"), {"batch": 1}),
}


class Cell(Struct, frozen=True):
    """Cell of a column.

    Attributes:
        at: part of it from 0, for several numbers joined by x.
        values: record text of each table text; by default the same.
    """

    column: Text
    at: Count | None = None
    values: Mapping[str, str | int] = field(default_factory=dict)


class _SummedColumns(Struct, frozen=True):
    """Summed columns."""

    column: Columns

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,) if isinstance(self.column, str) else self.column

    @property
    def named(self) -> str:
        return " + ".join(self.columns)


class TimeColumn(_SummedColumns, frozen=True):
    """Time of one run of a row's program or kernel."""

    unit: Literal["s", "ms", "us", "ns", "1/s"]


class ClockColumn(Struct, frozen=True):
    """Column of clocks, or of texts for clocks."""

    column: Text
    unit: Literal["Hz", "kHz", "MHz", "GHz"]
    values: Mapping[str, float] = field(default_factory=dict)


class PowerColumn(_SummedColumns, frozen=True):
    """Power, or energy of one run.

    Attributes:
        idle_mw: idle power of the same sensors; kernels keep the power above it.
        file: another table with the columns, at the same clocks, below the data's folder; ``clocks`` are its columns.
    """

    unit: Literal["W", "mW", "J", "mJ"]
    idle_mw: float = 0.0
    file: str = ""
    clocks: Mapping[Axis, ClockColumn] = field(default_factory=dict)


class DescribedDevice(Struct, frozen=True):
    """Device without a board description; without axes, one configuration at 1 GHz."""

    name: Text
    chip: ChipRates
    axes: FrequencyGrid = field(default_factory=lambda: FrequencyGrid((1_000_000,), (10**9,), (10**9,)))


class KernelColumns(Struct, frozen=True):
    """Measured kernel of a row; a size is a number, a column or a cell."""

    form: Form
    sizes: Mapping[str, Cell | str | int]
    kind: Text = "elementwise"
    dtype: Cell | str = "float32"


class LaunchColumns(Struct, frozen=True):
    """Measured launch of a row without sizes: a kernel without a model."""

    kind: Cell
    flops: str = ""
    bytes: str = ""
    dtype: Cell | str = "float32"


class NetworkColumns(Struct, frozen=True):
    """Measured network or program of a row.

    Attributes:
        workload: further columns that distinguish programs; appended to the name.
        reference: its reference network; empty if its launches are unknown.
    """

    name: Cell | str
    workload: tuple[Text, ...] = ()
    batch: str = ""
    reference: str = ""


class TableMapping(Struct, frozen=True):
    """Checked mapping.

    Attributes:
        source: origin of the table, for people.
        file: table to replay, below the data's folder.
        device: device or board of a row, or its column; empty if given at import.
        kernels: measured item of a row, by the table's file name without endings.
        devices, boards: other devices and described boards, by their names in the table.
        clocks: columns by axis; an axis without one is at its top, or ``held``.
        rows: combination of repeated rows; empty: the median, if no column distinguishes them.
        median_over: axis that only adds noise: its median is replayed.
        only: required texts of columns.
    """

    source: Text
    time: TimeColumn
    file: str = ""
    device: Cell | str = ""
    kernel: KernelColumns | None = None
    kernels: Mapping[str, KernelColumns] = field(default_factory=dict)
    launch: LaunchColumns | None = None
    network: NetworkColumns | None = None
    devices: Mapping[str, DescribedDevice] = field(default_factory=dict)
    boards: Mapping[str, Text] = field(default_factory=dict)
    power: PowerColumn | None = None
    clocks: Mapping[Axis, ClockColumn] = field(default_factory=dict)
    held: Mapping[Axis, int] = field(default_factory=dict)
    rows: Literal["", "sum", "median"] = ""
    median_over: Axis | None = None
    only: Mapping[str, str] = field(default_factory=dict)
    units_row: bool = False

    def __post_init__(self) -> None:
        if sum(bool(part) for part in (self.kernel, self.kernels, self.launch, self.network)) != 1:
            raise ValueError("undefined row; valid: one of kernel, kernels, launch, network")
        if self.power is not None and self.power.file and not (self.file and isinstance(self.device, str)):
            raise ValueError("power.file: expected the members file, and device as a board's name")
        kernels = [*self.kernels.values(), *([self.kernel] if self.kernel else [])]
        for kernel in kernels:
            if kernel.form not in NEEDS:
                continue
            needs = NEEDS[kernel.form]
            missing = [name for name in needs.sizes if name not in kernel.sizes]
            unknown = [name for name in kernel.sizes if name not in (*needs.sizes, *needs.usual)]
            if missing or unknown:
                valid = ", ".join((*needs.sizes, *(f"{name} ({value})" for name, value in needs.usual.items())))
                raise ValueError(f"kernel.sizes of a {kernel.form}: {', '.join(missing or unknown)}: expected {valid}")
        dtypes = [kernel.dtype for kernel in kernels] + ([self.launch.dtype] if self.launch else [])
        for dtype in dtypes:
            if isinstance(dtype, str) and dtype not in DTYPE_BYTES:
                raise ValueError(f"dtype {dtype!r}; valid: {', '.join(DTYPE_BYTES)}")

    def of_table(self, path: Path) -> TableMapping:
        """Mapping of one table. Raises MeasurementError if it is for other tables."""
        if not self.kernels:
            return self
        stem = path.name.partition(".")[0]
        if stem not in self.kernels:
            raise MeasurementError(f"{path}: the mapping is for tables called {', '.join(self.kernels)}")
        return replace(self, kernel=self.kernels[stem], kernels={})

    @property
    def is_replayed(self) -> bool:
        return bool(self.file and self.device and self.network and self.power)

    @property
    def columns(self) -> set[str]:
        parts: list[Any] = [self.device, *self.clocks.values()]
        if self.kernel is not None:
            # A size that is a text is a column.
            sizes = [Cell(size) if isinstance(size, str) else size for size in self.kernel.sizes.values()]
            parts += [self.kernel.dtype, *sizes]
        named: list[str] = [*self.time.columns, *self.only]
        if self.power is not None and not self.power.file:
            named += self.power.columns
        if self.launch is not None:
            parts += [self.launch.kind, self.launch.dtype]
            named += [self.launch.flops, self.launch.bytes]
        if self.network is not None:
            parts.append(self.network.name)
            named += [*self.network.workload, self.network.batch]
        return {*filter(None, named), *(part.column for part in parts if isinstance(part, (Cell, ClockColumn)))}


def shipped_mappings() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.yaml")))


def load_mapping(name: str | Path) -> TableMapping:
    """Read a mapping: a file, or a shipped name. Raises MeasurementError."""
    path = SHIPPED / f"{name}.yaml" if name in shipped_mappings() else Path(name)
    if path.suffix != ".yaml":
        raise MeasurementError(f"mapping {str(name)!r}: expected a .yaml file, or one of {', '.join(shipped_mappings())}")
    try:
        return read_file(path, TableMapping, "mapping", _renewed)
    except DocumentError as error:
        raise MeasurementError(str(error)) from error
    except GridError as error:
        raise MeasurementError(f"mapping {path}: {error}") from error


_OF_A_PROGRAM = ("name", "workload", "reference", "batch")


def _renewed(document: Any) -> Any:
    """Mapping with present names instead of ``board``, ``latency``, ``columns``, and a program's name on top."""
    if not isinstance(document, dict) or "latency" not in document or "time" in document:
        return document
    made = {key: value for key, value in document.items() if key not in (*_OF_A_PROGRAM, "board", "latency")}
    made["time"] = document["latency"]
    if "board" in document:
        made["device"] = {"column": document["board"]} if "boards" in document else document["board"]
    if "name" in document:
        made["network"] = {key: document[key] for key in _OF_A_PROGRAM if key in document}
    for part in ("time", "power"):
        if isinstance(made.get(part), dict) and "columns" in made[part]:
            made[part] = {("column" if key == "columns" else key): value for key, value in made[part].items()}
    return made
