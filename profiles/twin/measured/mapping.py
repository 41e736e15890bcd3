# SPDX-License-Identifier: Apache-2.0
"""Mappings: the meaning of the columns of a table of measurements. One YAML file per kind of table; some are shipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

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
"""A column, or several that add up."""


@dataclass(frozen=True)
class Needs:
    """The sizes that a form is made of, and those that have a usual value."""

    sizes: tuple[str, ...]
    usual: Mapping[str, int]


NEEDS: Mapping[str, Needs] = {
    "convolution": Needs(
        ("batch", "channels", "filters", "height", "width", "window", "stride"),
        {"padding": 0, "dilation": 1, "groups": 1, "bias": 0},
    ),
    "linear": Needs(("m", "n", "k"), {"bias": 0}),
    "product": Needs(("m", "n", "k"), {"batch": 1}),
}


@dataclass(frozen=True)
class Cell:
    """A column's cell.

    Attributes:
        column: its heading.
        at: which part of it, counted from 0, where it is several numbers with an x between them.
        values: what stands in the record for each text that may stand in the table; nothing: the text itself.
    """

    column: Text
    at: Count | None = None
    values: Mapping[str, str | int] = field(default_factory=dict)


class _Summed:
    """Columns whose numbers add up."""

    column: Columns

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,) if isinstance(self.column, str) else self.column

    @property
    def named(self) -> str:
        """Their names, for messages."""
        return " + ".join(self.columns)


@dataclass(frozen=True)
class Time(_Summed):
    """Times of one run of a row's program or kernel, or runs in a second: frames, images, tokens."""

    column: Columns
    unit: Literal["s", "ms", "us", "ns", "1/s"]


@dataclass(frozen=True)
class Clock:
    """A column of clocks, or of texts that each stand for one."""

    column: Text
    unit: Literal["Hz", "kHz", "MHz", "GHz"]
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Power(_Summed):
    """Powers, or energies of one run.

    Attributes:
        idle_mw: the power that the same sensors show when nothing runs; of kernels, the power above it is kept.
        file: another table that has the columns, at the same clocks; its name below the folder of the data.
        clocks: columns of that table by axis.
    """

    column: Columns
    unit: Literal["W", "mW", "J", "mJ"]
    idle_mw: float = 0.0
    file: str = ""
    clocks: Mapping[Axis, Clock] = field(default_factory=dict)


@dataclass(frozen=True)
class DescribedDevice:
    """A device that is no board of ours; without axes, at the one configuration of clocks of 1 GHz."""

    name: Text
    chip: ChipRates
    axes: FrequencyGrid = field(default_factory=lambda: FrequencyGrid((1_000_000,), (10**9,), (10**9,)))


@dataclass(frozen=True)
class KernelColumns:
    """The kernel that a row measured; a size is a number, a column's name, or a cell."""

    form: Form
    sizes: Mapping[str, Cell | str | int]
    kind: Text = "elementwise"
    dtype: Cell | str = "float32"


@dataclass(frozen=True)
class LaunchColumns:
    """What a row measured where a table does not say its sizes: such a kernel counts as one that has no model."""

    kind: Cell
    flops: str = ""
    bytes: str = ""
    dtype: Cell | str = "float32"


@dataclass(frozen=True)
class NetworkColumns:
    """The network or program that a row measured.

    Attributes:
        workload: columns whose texts tell programs apart; they follow the name.
        batch: the column with the number of images at once.
        reference: the reference network that it is; empty if its launches are unknown.
    """

    name: Cell | str
    workload: tuple[Text, ...] = ()
    batch: str = ""
    reference: str = ""


@dataclass(frozen=True)
class TableMapping:
    """A mapping, checked.

    Attributes:
        source: where the table comes from, for people.
        file: the table that is replayed, below the folder of the data.
        device: the device or board of a row: its name, or the column that has it; empty if the import must state it.
        kernels: what a row measured, by the table's file name without endings.
        devices: devices that are no boards, by their names in the table.
        boards: names of boards here, by their names in the table.
        clocks: columns by axis; an axis without one is at its top, or at the level that ``held`` states.
        held: the levels of axes without a column.
        rows: the figure of several rows of one program at one configuration; empty: the median, if no column tells them apart.
        median_over: an axis that changes nothing but noise: the median over it is replayed.
        only: texts of columns that a row must have.
        units_row: True if the line below the heading holds units.
    """

    source: Text
    time: Time
    file: str = ""
    device: Cell | str = ""
    kernel: KernelColumns | None = None
    kernels: Mapping[str, KernelColumns] = field(default_factory=dict)
    launch: LaunchColumns | None = None
    network: NetworkColumns | None = None
    devices: Mapping[str, DescribedDevice] = field(default_factory=dict)
    boards: Mapping[str, Text] = field(default_factory=dict)
    power: Power | None = None
    clocks: Mapping[Axis, Clock] = field(default_factory=dict)
    held: Mapping[Axis, int] = field(default_factory=dict)
    rows: Literal["", "sum", "median"] = ""
    median_over: Axis | None = None
    only: Mapping[str, str] = field(default_factory=dict)
    units_row: bool = False

    def __post_init__(self) -> None:
        if sum(bool(part) for part in (self.kernel, self.kernels, self.launch, self.network)) != 1:
            raise ValueError("says not what a row is; valid: one of kernel, kernels, launch, network")
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
        """The mapping of one table.

        Raises:
            MeasurementError: it is for tables of other names.
        """
        if not self.kernels:
            return self
        stem = path.name.partition(".")[0]
        if stem not in self.kernels:
            raise MeasurementError(f"{path}: the mapping is for tables called {', '.join(self.kernels)}")
        return replace(self, kernel=self.kernels[stem], kernels={})

    @property
    def is_replayed(self) -> bool:
        """True if boards can replay the table: its place, board, program, times and powers are known."""
        return bool(self.file and self.device and self.network and self.power)

    @property
    def columns(self) -> set[str]:
        """The columns that the table must have."""
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
        return {*filter(None, named), *(part.column for part in parts if isinstance(part, (Cell, Clock)))}


def shipped_mappings() -> tuple[str, ...]:
    """The names of the mappings that come with the product."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.yaml")))


def load_mapping(name: str | Path) -> TableMapping:
    """Read a mapping: a file, or the name of one that is shipped.

    Raises:
        MeasurementError: there is none, or it is malformed; the text says where.
    """
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
    """A mapping with today's names: replays had ``board``, ``latency``, ``columns``, and a program's name on top."""
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
