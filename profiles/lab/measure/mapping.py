# SPDX-License-Identifier: Apache-2.0
"""What the columns of a table of measurements mean: a YAML file for each kind of table, some of them shipped; and
kernel invocations from the sizes that tables have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Literal, TypeAlias

from ....kernels.errors import GridError
from ....kernels.grid import FrequencyGrid
from ....kernels.kinds import flops, kind_of
from ....kernels.network import DTYPE_BYTES, KernelInvocation, ParamValue, Shape
from ...board import ChipRates
from ...documents import Count, DocumentError, Text, read_file
from ...errors import MeasurementError

SHIPPED = Path(__file__).parent / "mappings"

TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns"]
PowerUnit: TypeAlias = Literal["W", "mW", "J", "mJ"]
ClockUnit: TypeAlias = Literal["Hz", "kHz", "MHz"]
MS: Mapping[str, float] = {"s": 1e3, "ms": 1.0, "us": 1e-3, "ns": 1e-6}


Form: TypeAlias = Literal["convolution", "linear", "product", "elements"]


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


def kernel_of(form: Form, kind: str, sizes: Mapping[str, int], dtype: str) -> KernelInvocation:
    """A kernel from its sizes.

    Args:
        form: ``convolution``; ``linear``, an activation by a weight; ``product`` of two activations; ``elements``, a pointwise
            kind whose tensors all have the sizes given, in order.
        kind: of ``elements``, which; of the others ``conv2d`` and ``matmul`` it is.

    Raises:
        ValueError: the sizes make no kernel.
    """
    return _FORMS[form](kind, sizes, dtype)


def _kernel(
    kind: str, inputs: tuple[Shape, ...], output: Shape, params: Mapping[str, ParamValue], parameters: int, dtype: str
) -> KernelInvocation:
    if min(map(min, (*inputs, output))) < 1:
        raise ValueError(f"a tensor of {' x '.join(map(str, output))}")
    moved = DTYPE_BYTES[dtype] * (sum(map(prod, (*inputs, output))) + parameters)
    return KernelInvocation(kind, "", inputs, output, dtype, params, flops(kind, inputs, output, params), moved)


def _convolution(kind: str, sizes: Mapping[str, int], dtype: str) -> KernelInvocation:
    batch, channels, filters, window, groups = (sizes[name] for name in ("batch", "channels", "filters", "window", "groups"))
    if channels % groups or filters % groups:
        raise ValueError(f"{groups} groups of {channels} channels and {filters} filters")
    stride, padding, dilation = (sizes[name] for name in ("stride", "padding", "dilation"))
    height, width = ((sizes[side] + 2 * padding - dilation * (window - 1) - 1) // stride + 1 for side in ("height", "width"))
    weight = (filters, channels // groups, window, window)
    params: dict[str, ParamValue] = {
        "weight": weight, "bias": bool(sizes["bias"]), "groups": groups,
        "stride": (stride, stride), "padding": (padding, padding), "dilation": (dilation, dilation),
    }  # fmt: skip
    image = (batch, channels, sizes["height"], sizes["width"])
    parameters = prod(weight) + (filters if sizes["bias"] else 0)
    return _kernel("conv2d", (image,), (batch, filters, height, width), params, parameters, dtype)


def _linear(kind: str, sizes: Mapping[str, int], dtype: str) -> KernelInvocation:
    m, n, k = (sizes[name] for name in ("m", "n", "k"))
    params: dict[str, ParamValue] = {"m": m, "k": k, "n": n, "batch": 1, "bias": bool(sizes["bias"])}
    return _kernel("matmul", ((m, k),), (m, n), params, k * n + (n if sizes["bias"] else 0), dtype)


def _product(kind: str, sizes: Mapping[str, int], dtype: str) -> KernelInvocation:
    m, n, k, batch = (sizes[name] for name in ("m", "n", "k", "batch"))
    params: dict[str, ParamValue] = {"m": m, "k": k, "n": n, "batch": batch, "bias": False}
    return _kernel("matmul", ((batch, m, k), (batch, k, n)), (batch, m, n), params, 0, dtype)


def _elements(kind: str, sizes: Mapping[str, int], dtype: str) -> KernelInvocation:
    shape = tuple(sizes.values())
    return _kernel(kind, (shape,) * max(kind_of(kind).operands, 1), shape, {}, 0, dtype)


_FORMS: Mapping[str, Callable[[str, Mapping[str, int], str], KernelInvocation]] = {
    "convolution": _convolution,
    "linear": _linear,
    "product": _product,
    "elements": _elements,
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


@dataclass(frozen=True)
class Time:
    """A column of times."""

    column: Text
    unit: TimeUnit


@dataclass(frozen=True)
class Power:
    """A column of powers, or of energies for one run.

    Attributes:
        idle_mw: what the same sensors show when nothing runs; of kernels, what is above it is kept.
    """

    column: Text
    unit: PowerUnit
    idle_mw: float = 0.0


@dataclass(frozen=True)
class Clock:
    """A column of clocks, or of texts that each stand for one."""

    column: Text
    unit: ClockUnit
    values: Mapping[str, float] = field(default_factory=dict)


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
    """The network that a row measured; with ``reference``, the reference network that it is."""

    name: Cell | str
    batch: str = ""
    reference: str = ""


@dataclass(frozen=True)
class Mapped:
    """A mapping, checked.

    Attributes:
        source: where the table comes from, for people.
        device: the device or board of a row: its name, or the column that has it; empty where whoever imports must say it.
        kernels: what a row measured, by the table's file name without endings.
        devices: what is known of devices that are no boards, by what the table calls them.
        boards: the boards' names here, by what the table calls them.
        clocks: columns by axis (``cpu_khz``, ``gpu_hz``, ``emc_hz``); an axis without one is at its top or where ``held`` says.
        held: the levels of axes that no column says.
        only: rows are taken where these columns have these texts.
        units_row: whether the line below the heading holds units.
    """

    source: Text
    time: Time
    device: Cell | str = ""
    kernel: KernelColumns | None = None
    kernels: Mapping[str, KernelColumns] = field(default_factory=dict)
    launch: LaunchColumns | None = None
    network: NetworkColumns | None = None
    devices: Mapping[str, DescribedDevice] = field(default_factory=dict)
    boards: Mapping[str, Text] = field(default_factory=dict)
    power: Power | None = None
    clocks: Mapping[Literal["cpu_khz", "gpu_hz", "emc_hz"], Clock] = field(default_factory=dict)
    held: Mapping[Literal["cpu_khz", "gpu_hz", "emc_hz"], int] = field(default_factory=dict)
    only: Mapping[str, str] = field(default_factory=dict)
    units_row: bool = False

    def __post_init__(self) -> None:
        if sum(bool(part) for part in (self.kernel, self.kernels, self.launch, self.network)) != 1:
            raise ValueError("says not what a row is; valid: one of kernel, kernels, launch, network")
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

    def of_table(self, path: Path) -> Mapped:
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


def shipped_mappings() -> tuple[str, ...]:
    """The names of the mappings that come with the product."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.yaml")))


def load_mapping(name: str) -> Mapped:
    """Read a mapping: a file's name, or that of one that is shipped.

    Raises:
        MeasurementError: there is none, or it is malformed; the text says where.
    """
    path = SHIPPED / f"{name}.yaml" if name in shipped_mappings() else Path(name)
    if path.suffix != ".yaml":
        raise MeasurementError(f"mapping {name!r}: expected a .yaml file, or one of {', '.join(shipped_mappings())}")
    try:
        return read_file(path, Mapped, "mapping")
    except DocumentError as error:
        raise MeasurementError(str(error)) from error
    except GridError as error:
        raise MeasurementError(f"mapping {path}: {error}") from error
