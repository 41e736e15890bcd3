# SPDX-License-Identifier: Apache-2.0
"""Results of a measuring campaign, in one file."""

from __future__ import annotations

import contextlib
import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field, to_builtins
from numpy.typing import NDArray

from ...kernels.cost.roofline import LaunchFloor, bound_at_ms
from ...kernels.errors import KernelsError
from ...kernels.network import Call, HostOp, KernelInvocation, Network
from ...kernels.npz import check_npz
from ..board import BoardDescription, load_board
from ..device import Device, MeasuredDevice
from ..errors import MeasurementError

ABSURD = 1000.0
"""Impossible ratio to a table's median; for times, of distances from the bound."""
LONGEST_MS = 3.6e6
"""An hour."""

_LAUNCH = LaunchFloor(us=10.0)  # without it, a kernel of a few bytes is thousands of times its bound
_OF_MODE = 3.0  # times the watts in the highest power mode's name; the mode without limits exceeds those
# Any board; a board whose modes name no watts; a device that is no board.
_LEAST_W, _ANY_BOARD_W, _ANY_DEVICE_W = 30.0, 200.0, 5_000.0
_LONGEST_US = 1e6  # of pauses and timing overhead
_MOST_EVENTS = 1e4  # of one invocation
_DIFFERENCES = ("kernel_mw", "fixed_kernel_mw", "host_active_mw", "gap_us", "timing_us")  # noise takes them below zero
KERNEL_TABLES = ("kernel_ms", "kernel_mw", "gap_us", "timing_us", "fixed_kernel_ms", "fixed_kernel_mw", "kernel_events")
NETWORK_TABLES = ("network_ms", "network_mw", "fixed_network_ms", "fixed_network_mw", "graph_ms", "graph_gpu_ms", "graph_mw")


def most_mw(device: MeasuredDevice) -> float:
    """Upper bound of a device's power, in mW."""
    if not isinstance(device, BoardDescription):
        return 1e3 * _ANY_DEVICE_W
    names = [mode.name for modes in device.modes for mode in modes.table]
    watts = [float(found[1]) for name in names if (found := re.search(r"(?:^|_)(\d+)W(?:_|$)", name))]
    return 1e3 * (max(_OF_MODE * max(watts), _LEAST_W) if watts else _ANY_BOARD_W)


def too_far(distances: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mask of positive ratios, (n,), at least a factor of :data:`ABSURD` from the median."""
    logs = np.log(distances)
    return np.asarray(np.abs(logs - np.median(logs)) > np.log(ABSURD)) if len(logs) else np.zeros(0, np.bool_)


def has_work(kernel: KernelInvocation) -> bool:
    return bool(kernel.flops or kernel.bytes)


def least_ms(
    kernels: Sequence[KernelInvocation], configuration: NDArray[np.int64], device: MeasuredDevice
) -> NDArray[np.float64]:
    """Bound of n kernels plus a launch at m flat configuration indices, (n, m) in ms."""
    each, place = np.unique(configuration, return_inverse=True)
    grid = device.grid
    mhz = np.array([grid.at(index).mhz for index in each])[place]
    return bound_at_ms(kernels, mhz[None, :, 1], mhz[None, :, 2], device.chip, _LAUNCH)


def check_record(record: Measurements) -> None:
    """Check every value of a record. Raises MeasurementError for impossible values, BoardDescriptionError without the board."""
    device = record.described
    wrong = [one for name, rows in record.tables.items() for one in _wrong(record, device, name, rows)]
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise MeasurementError(f"{wrong[0]}{more}; nothing was taken from it")


def _wrong(record: Measurements, device: MeasuredDevice, name: str, rows: MeasurementRows) -> Iterator[str]:
    things = _things(record, name)
    if not _well_formed(rows, things, device.grid.size):
        within = f"{things} things and {device.grid.size} configurations"
        yield f"{name}: expected what, node, configuration, value of one length, within its {within}"
        return
    for mask, expected in _verdicts(record, device, name, rows):
        for place in np.flatnonzero(mask):
            clocks = device.grid.at(rows.configuration[place])
            unit = name.rpartition("_")[2].replace("mw", "mW")
            of = _called(record, name, int(rows.what[place]))
            yield f"{name}{of} at {clocks}: {rows.value[place]:.6g} {unit}, expected {expected}"


def _well_formed(rows: MeasurementRows, things: int, size: int) -> bool:
    columns = (rows.what, rows.node, rows.configuration, rows.value)
    if {column.shape for column in columns} != {(rows.value.size,)} or any(column.dtype.kind != "i" for column in columns[:3]):
        return False
    within = [(rows.what >= 0) & (rows.what < things), (rows.configuration >= 0) & (rows.configuration < size)]
    return rows.value.dtype.kind == "f" and all(bool(part.all()) for part in within)


def _verdicts(
    record: Measurements, device: MeasuredDevice, name: str, rows: MeasurementRows
) -> Iterator[tuple[NDArray[np.bool_], str]]:
    """Disjoint masks (rows,) of impossible values, each with the valid range."""
    value = rows.value
    least, in_words = (-np.inf, "a finite figure") if name in _DIFFERENCES else (0.0, "a finite figure above zero")
    sound = np.isfinite(value) & (value > least)
    yield ~sound, in_words
    unit = name.rpartition("_")[2]
    most, limit = {
        "events": (_MOST_EVENTS, f"at most {_MOST_EVENTS:,.0f}"),
        "ms": (LONGEST_MS, "at most an hour"),
        "us": (_LONGEST_US, "at most a second"),
        "mw": (most_mw(device), f"at most {most_mw(device) / 1e3:g} W of {device.name}"),
    }[unit]
    high = sound & (np.abs(value) > most)
    yield high, limit
    reference = _reference(record, device, name, rows)
    if reference is not None:
        known = sound & ~high & np.isfinite(reference)
        far = np.zeros(len(rows.value), np.bool_)
        far[known] = too_far(value[known] / reference[known])
        of_bound = "'s distance from its bound" if _timed(name) else ""
        yield far, f"within {ABSURD:,.0f} times the middle one{of_bound}"


def _reference(record: Measurements, device: MeasuredDevice, name: str, rows: MeasurementRows) -> NDArray[np.float64] | None:
    if name in _DIFFERENCES:
        return None
    if not _timed(name):
        return np.ones(len(rows.value))
    found = np.full(len(rows.value), np.nan)
    if not len(rows.value):
        return found
    order = np.argsort(rows.what, kind="stable")
    each, starts = np.unique(rows.what[order], return_index=True)
    for what, own in zip(each.tolist(), np.split(order, starts[1:]), strict=True):
        kernels = record.networks[what].launches if name in NETWORK_TABLES else (record.invocations[what],)
        if any(map(has_work, kernels)):
            found[own] = least_ms(kernels, rows.configuration[own], device).sum(axis=0)
    return found


def _timed(name: str) -> bool:
    return name.endswith("_ms")


def _things(record: Measurements, name: str) -> int:
    if name in KERNEL_TABLES:
        return len(record.invocations)
    if name in NETWORK_TABLES:
        return len(record.networks)
    return {"host_us": len(record.calls), "warm_idle_mw": len(record.temperatures_c)}.get(name, 1)


def _called(record: Measurements, name: str, what: int) -> str:
    if name in NETWORK_TABLES:
        return f" of network {record.networks[what].name:.80}"
    if name == "warm_idle_mw":
        return f" at {record.temperatures_c[what]:g} C"
    if name not in (*KERNEL_TABLES, "host_us"):
        return ""
    call = record.calls[what] if name == "host_us" else record.invocations[what]
    if isinstance(call, HostOp):
        return f" of call {call.name:.80}"
    shapes = ", ".join("x".join(map(str, shape)) for shape in call.inputs)
    return f" of {call.kind:.80} ({shapes:.80}{' ' if shapes else ''}{call.dtype})"


class MeasurementRows(Struct, frozen=True):
    """n measurements in columns: subject (kernel, call), board, flat grid index, and value in the table's unit."""

    what: NDArray[np.int64]
    node: NDArray[np.int64]
    configuration: NDArray[np.int64]
    value: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.value)

    def where(self, mask: NDArray[np.bool_]) -> MeasurementRows:
        return MeasurementRows(self.what[mask], self.node[mask], self.configuration[mask], self.value[mask])

    @classmethod
    def joined(cls, parts: Sequence[MeasurementRows]) -> MeasurementRows:
        if not parts:
            none = np.zeros(0, np.int64)
            return cls(none, none, none, np.zeros(0))
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS))


COLUMNS = ("what", "node", "configuration", "value")
TABLES: Mapping[str, str] = {
    "kernel_ms": "GPU time of invocations[what], ms",
    "kernel_mw": "power of the GPU-side rails above idle while invocations[what] runs, mW",
    "gap_us": "pause of the GPU between two launches of invocations[what] that follow back to back, us",
    "timing_us": "by how much invocations[what] takes longer timed by itself than repeated back to back, us",
    "host_us": "time the host takes to issue one call of calls[what], us",
    "host_active_mw": "power of the CPU rail above idle while the host issues work, mW (what: 0)",
    "idle_mw": "power of all energy rails when nothing runs, mW (what: 0)",
    "warm_idle_mw": "the same as idle_mw with the die at temperatures_c[what]",
    "network_ms": "latency of networks[what], ms",
    "network_mw": "mean power of all energy rails while networks[what] runs, mW",
    "fixed_network_ms": "latency of networks[what], again and again at the same few configurations on every board, ms",
    "fixed_network_mw": "mean power of all energy rails while networks[what] runs at those configurations, mW",
    "fixed_kernel_ms": "GPU time of the networks' invocations[what] at those configurations, ms",
    "fixed_kernel_mw": "power of the GPU-side rails above idle while invocations[what] runs at those configurations, mW",
    "graph_ms": "latency of networks[what] as a CUDA graph, from its start by the host to its end, ms",
    "graph_gpu_ms": "GPU time of one replay of that graph among several, ms",
    "graph_mw": "mean power of all energy rails while that graph is replayed, mW",
    "kernel_events": "GPU kernels, copies and fills that invocations[what] launches",
}
LATER = tuple(name for name in TABLES if name.startswith(("fixed_", "graph_", "kernel_events")))
"""Tables missing from earlier records; read as empty."""
_FORMAT = 1


class Measurements(Struct, frozen=True, dict=True):
    """Values of one campaign.

    Attributes:
        board: name of the board's description, or of ``device``.
        silicon_version: of simulated silicon, or empty.
        temperature_c: die temperature; ``temperatures_c`` are further ones of idle power.
        calls: with measured issue times.
        networks: measured as a whole.
        tables: one :class:`MeasurementRows` for each name in :data:`TABLES`.
        environment: measuring program and observed kernels, for display.
    """

    board: str
    silicon_version: str
    temperature_c: float
    rails: tuple[str, ...]
    invocations: tuple[KernelInvocation, ...]
    calls: tuple[Call, ...]
    networks: tuple[Network, ...]
    tables: Mapping[str, MeasurementRows]
    temperatures_c: tuple[float, ...] = ()
    device: Device | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(sorted({int(node) for rows in self.tables.values() for node in np.unique(rows.node)}))

    @cached_property
    def numbers_by_kind(self) -> Mapping[str, Sequence[int]]:
        """Positions of each kind's kernels in ``invocations``."""
        found: dict[str, list[int]] = {}
        for number, kernel in enumerate(self.invocations):
            found.setdefault(kernel.kind, []).append(number)
        return found

    @cached_property
    def work(self) -> NDArray[np.int64]:
        """Operations and bytes of each kernel together."""
        return np.array([kernel.flops + kernel.bytes for kernel in self.invocations], np.int64)

    @property
    def powered(self) -> bool:
        return bool(len(self.tables["kernel_mw"]))

    @property
    def described(self) -> MeasuredDevice:
        """Measured device. Raises BoardDescriptionError if not described."""
        return self.device or load_board(self.board)

    def save(self, path: Path) -> None:
        """Write one npz file, atomically. Raises MeasurementError; an old file then stays."""
        about = {
            "format": _FORMAT,
            "board": self.board,
            "silicon_version": self.silicon_version,
            "temperature_c": self.temperature_c,
            "temperatures_c": self.temperatures_c,
            "rails": self.rails,
            "calls": [call_json(call) for call in self.calls],
            "networks": [network.to_json(host_calls=True) for network in self.networks],
            "device": self.device and to_builtins(self.device),
            "environment": dict(self.environment),
            "invocations": [invocation.to_json() for invocation in self.invocations],
        }
        fresh = path.with_name(f"{path.name}.tmp")
        try:
            with fresh.open("wb") as file:
                np.savez_compressed(file, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays_of(self.tables))
            fresh.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise MeasurementError(f"{path}: {error.strerror or error}; nothing there was changed") from error

    @classmethod
    def load(cls, path: Path) -> Measurements:
        """Read the output of :meth:`save`. Raises MeasurementError, or BoardDescriptionError without the board."""
        try:
            check_npz(path, 1 << 30)
            with np.load(path, allow_pickle=False) as arrays:
                about = json.loads(arrays["about"].tobytes())
                if (version := about.get("format", _FORMAT)) != _FORMAT:  # earlier ones have no number
                    raise ValueError(
                        f"format {version!r:.40}; this release reads {_FORMAT}: upgrade jetdvfs to the one that made it"
                    )
                tables = rows_of(arrays)
            tables = {**{name: MeasurementRows.joined(()) for name in LATER}, **tables}
            if set(tables) != set(TABLES):
                raise ValueError(f"tables {', '.join(tables)}; expected {', '.join(TABLES)}")
            record = cls(
                board=about["board"],
                silicon_version=about["silicon_version"],
                temperature_c=float(about["temperature_c"]),
                rails=tuple(about["rails"]),
                invocations=tuple(KernelInvocation.from_json(item) for item in about["invocations"]),
                calls=tuple(_call(item) for item in about["calls"]),
                networks=tuple(Network.from_json(item) for item in about["networks"]),
                tables=tables,
                temperatures_c=tuple(float(item) for item in about["temperatures_c"]),
                device=Device.from_json(about["device"]) if about["device"] else None,
                environment=about["environment"],
            )
        except (OSError, KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile, KernelsError) as error:
            raise MeasurementError(f"measurements {path}: not a campaign's result ({error})") from error
        try:
            check_record(record)
        except MeasurementError as error:
            raise MeasurementError(f"{path}: {error}") from error
        return record


def arrays_of(tables: Mapping[str, MeasurementRows]) -> dict[str, Any]:
    return {f"{name}.{column}": getattr(rows, column) for name, rows in tables.items() for column in COLUMNS}


def rows_of(arrays: Mapping[str, NDArray[Any]]) -> dict[str, MeasurementRows]:
    names = [key.removesuffix(".value") for key in arrays if key.endswith(".value")]
    return {name: MeasurementRows(*(arrays[f"{name}.{column}"] for column in COLUMNS)) for name in names}


def call_json(call: Call) -> dict[str, Any]:
    return {"name": call.name, "scope": call.scope} if isinstance(call, HostOp) else call.to_json()


def _call(data: Mapping[str, Any]) -> Call:
    return HostOp(str(data["name"]), str(data["scope"])) if "name" in data else KernelInvocation.from_json(data)
