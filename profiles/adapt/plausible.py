# SPDX-License-Identifier: Apache-2.0
"""What no measurement can be, of figures one by one: not finite, of nothing, or so far from others that it is a slip.

A time's distance is its ratio to what its work takes by the device's rates, after what a launch takes anywhere. Boards and
libraries differ in it by a hundred at most; a unit that was mistaken, or a digit that was lost, shows as a thousand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...kernels.cost.roofline import LaunchFloor, bound_at_ms
from ...kernels.network import Call, HostOp, KernelInvocation, Network
from ..board import BoardDescription
from ..device import MeasuredDevice
from ..errors import MeasurementError

ABSURD = 1000.0
"""No figure is so many times what the middle one of its table is, be it a power, or a time's distance from its bound."""
LONGEST_MS = 3.6e6
"""An hour."""

_LAUNCH = LaunchFloor(us=10.0)  # without it, a kernel of a few bytes is thousands of times its bound
_OF_MODE = 3.0  # times the watts that the highest power mode is named after, which the mode without limits exceeds
_LEAST_W, _ANY_BOARD_W, _ANY_DEVICE_W = 30.0, 200.0, 5_000.0  # any board; one whose modes name no watts; what is no board
_LONGEST_US = 1e6  # of pauses and what timing adds
_DIFFERENCES = ("kernel_mw", "fixed_kernel_mw", "host_active_mw", "gap_us", "timing_us")  # noise takes them below zero
_KERNELS = ("kernel_ms", "kernel_mw", "gap_us", "timing_us", "fixed_kernel_ms", "fixed_kernel_mw")
_NETWORKS = ("network_ms", "network_mw", "fixed_network_ms", "fixed_network_mw")


class Figures(Protocol):
    """The columns of a table: :class:`~jetdvfs.profiles.adapt.measurements.Rows`."""

    @property
    def what(self) -> NDArray[np.int64]: ...

    @property
    def node(self) -> NDArray[np.int64]: ...

    @property
    def configuration(self) -> NDArray[np.int64]: ...

    @property
    def value(self) -> NDArray[np.float64]: ...


class Record(Protocol):
    """What figures are checked beside: :class:`~jetdvfs.profiles.adapt.measurements.Measurements`."""

    @property
    def described(self) -> MeasuredDevice: ...

    @property
    def invocations(self) -> Sequence[KernelInvocation]: ...

    @property
    def calls(self) -> Sequence[Call]: ...

    @property
    def networks(self) -> Sequence[Network]: ...

    @property
    def temperatures_c(self) -> Sequence[float]: ...

    @property
    def tables(self) -> Mapping[str, Figures]: ...


def most_mw(device: MeasuredDevice) -> float:
    """More than a device can draw, in mW."""
    if not isinstance(device, BoardDescription):
        return 1e3 * _ANY_DEVICE_W
    names = [mode.name for modes in device.modes for mode in modes.table]
    watts = [float(found[1]) for name in names if (found := re.search(r"(?:^|_)(\d+)W(?:_|$)", name))]
    return 1e3 * (max(_OF_MODE * max(watts), _LEAST_W) if watts else _ANY_BOARD_W)


def too_far(distances: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of these positive ratios, (n,), are :data:`ABSURD` times the middle one, or as much below it; (n,)."""
    logs = np.log(distances)
    return np.asarray(np.abs(logs - np.median(logs)) > np.log(ABSURD)) if len(logs) else np.zeros(0, np.bool_)


def has_work(kernel: KernelInvocation) -> bool:
    """Whether a kernel's work is known; that of a launch by its name alone is not."""
    return bool(kernel.flops or kernel.bytes)


def least_ms(
    kernels: Sequence[KernelInvocation], configuration: NDArray[np.int64], device: MeasuredDevice
) -> NDArray[np.float64]:
    """What distances refer to: the bound of n kernels and a launch at m configurations (flat indices), (n, m) in ms."""
    each, place = np.unique(configuration, return_inverse=True)
    grid = device.grid
    mhz = np.array([grid.configuration(np.unravel_index(index, grid.shape)).mhz for index in each])[place]
    return bound_at_ms(kernels, mhz[None, :, 1], mhz[None, :, 2], device.chip, _LAUNCH)


def check_record(record: Record) -> None:
    """Check every figure of a record.

    Raises:
        MeasurementError: one cannot be; the text says in which table, of what and at which clocks, and how many there are.
        BoardDescriptionError: it is of a board that has no description here.
    """
    device = record.described
    wrong = [one for name, rows in record.tables.items() for one in _wrong(record, device, name, rows)]
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise MeasurementError(f"{wrong[0]}{more}; nothing was taken from it")


def _wrong(record: Record, device: MeasuredDevice, name: str, rows: Figures) -> Iterator[str]:
    """What is wrong with the rows of one table, in words."""
    things = _things(record, name)
    if not _well_formed(rows, things, device.grid.size):
        within = f"{things} things and {device.grid.size} configurations"
        yield f"{name}: expected what, node, configuration, value of one length, within its {within}"
        return
    for mask, expected in _verdicts(record, device, name, rows):
        for place in np.flatnonzero(mask):
            clocks = device.grid.configuration(np.unravel_index(rows.configuration[place], device.grid.shape))
            unit = name.rpartition("_")[2].replace("mw", "mW")
            of = _called(record, name, int(rows.what[place]))
            yield f"{name}{of} at {clocks}: {rows.value[place]:.6g} {unit}, expected {expected}"


def _well_formed(rows: Figures, things: int, size: int) -> bool:
    columns = (rows.what, rows.node, rows.configuration, rows.value)
    if {column.shape for column in columns} != {(rows.value.size,)} or any(column.dtype.kind != "i" for column in columns[:3]):
        return False
    within = [(rows.what >= 0) & (rows.what < things), (rows.configuration >= 0) & (rows.configuration < size)]
    return rows.value.dtype.kind == "f" and all(bool(part.all()) for part in within)


def _verdicts(record: Record, device: MeasuredDevice, name: str, rows: Figures) -> Iterator[tuple[NDArray[np.bool_], str]]:
    """Masks (rows,) of figures that cannot be, each with what would be valid; a row is in one of them at most."""
    value = rows.value
    least, in_words = (-np.inf, "a finite figure") if name in _DIFFERENCES else (0.0, "a finite figure above zero")
    sound = np.isfinite(value) & (value > least)
    yield ~sound, in_words
    unit = name.rpartition("_")[2]
    most, limit = {
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


def _reference(record: Record, device: MeasuredDevice, name: str, rows: Figures) -> NDArray[np.float64] | None:
    """What a table's figures are compared by, (rows,), NaN where nothing is known; None where they are not."""
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
        kernels = record.networks[what].launches if name in _NETWORKS else (record.invocations[what],)
        if any(map(has_work, kernels)):
            found[own] = least_ms(kernels, rows.configuration[own], device).sum(axis=0)
    return found


def _timed(name: str) -> bool:
    """Whether a table has times of kernels or networks, whose work is known."""
    return name.endswith("_ms")


def _things(record: Record, name: str) -> int:
    """How many things the rows of a table may be of."""
    if name in _KERNELS:
        return len(record.invocations)
    if name in _NETWORKS:
        return len(record.networks)
    return {"host_us": len(record.calls), "warm_idle_mw": len(record.temperatures_c)}.get(name, 1)


def _called(record: Record, name: str, what: int) -> str:
    """What a row is of, for people; empty where its table is of one thing only."""
    if name in _NETWORKS:
        return f" of network {record.networks[what].name:.80}"
    if name == "warm_idle_mw":
        return f" at {record.temperatures_c[what]:g} C"
    if name not in (*_KERNELS, "host_us"):
        return ""
    call = record.calls[what] if name == "host_us" else record.invocations[what]
    if isinstance(call, HostOp):
        return f" of call {call.name:.80}"
    shapes = ", ".join("x".join(map(str, shape)) for shape in call.inputs)
    return f" of {call.kind:.80} ({shapes:.80}{' ' if shapes else ''}{call.dtype})"
