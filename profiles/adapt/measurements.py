# SPDX-License-Identifier: Apache-2.0
"""What a measuring campaign found: figures by kernel, board and frequency configuration, in one file."""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.errors import KernelsError
from ...kernels.network import Call, HostOp, KernelInvocation, Network
from ...kernels.stored import check_npz
from ..board import load_board
from ..device import Device, MeasuredDevice
from ..errors import MeasurementError
from .plausible import check_record


@dataclass(frozen=True)
class Rows:
    """n measurements in four columns.

    Attributes:
        what: index of what was measured (a kernel, a call), int64.
        node: the board it was measured on, int64.
        configuration: flat index of the frequency configuration in the grid, int64.
        value: the figure, float64, in the unit of the table it stands in.
    """

    what: NDArray[np.int64]
    node: NDArray[np.int64]
    configuration: NDArray[np.int64]
    value: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.value)

    def where(self, mask: NDArray[np.bool_]) -> Rows:
        """The rows of which ``mask`` (n,) is true."""
        return Rows(self.what[mask], self.node[mask], self.configuration[mask], self.value[mask])

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """All rows of several tables, in order."""
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
}
LATER = ("fixed_network_ms", "fixed_network_mw", "fixed_kernel_ms", "fixed_kernel_mw")
"""Tables that records did not always have; one without them has them empty."""


@dataclass(frozen=True)
class Measurements:
    """The figures of one campaign.

    Attributes:
        board: name of the board's description, or of ``device``; its grid gives configurations their meaning.
        silicon_version: version of the simulated silicon, or an empty string for real boards.
        temperature_c: die temperature while measuring.
        temperatures_c: others that idle power was measured at.
        rails: the energy rails.
        invocations: the kernels that were measured.
        calls: the calls whose issue time was measured.
        networks: those that were measured as a whole.
        tables: one :class:`Rows` for each name in :data:`TABLES`.
        device: what was measured, where it is no board that has a description.
        environment: what measured, and what it saw run: for people.
    """

    board: str
    silicon_version: str
    temperature_c: float
    rails: tuple[str, ...]
    invocations: tuple[KernelInvocation, ...]
    calls: tuple[Call, ...]
    networks: tuple[Network, ...]
    tables: Mapping[str, Rows]
    temperatures_c: tuple[float, ...] = ()
    device: Device | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(sorted({int(node) for rows in self.tables.values() for node in np.unique(rows.node)}))

    @property
    def powered(self) -> bool:
        """Whether power was measured."""
        return bool(len(self.tables["kernel_mw"]))

    @property
    def described(self) -> MeasuredDevice:
        """What was measured.

        Raises:
            BoardDescriptionError: it is a board that has no description here.
        """
        return self.device or load_board(self.board)

    def save(self, path: Path) -> None:
        """Write everything as one npz file; one of that name is replaced as a whole.

        Raises:
            MeasurementError: it cannot be written; one that was there is as it was.
        """
        about = {
            "board": self.board,
            "silicon_version": self.silicon_version,
            "temperature_c": self.temperature_c,
            "temperatures_c": self.temperatures_c,
            "rails": self.rails,
            "calls": [call_json(call) for call in self.calls],
            "networks": [network.to_json(host_calls=True) for network in self.networks],
            "device": self.device and self.device.to_json(),
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
        """Read what :meth:`save` wrote.

        Raises:
            MeasurementError: the file cannot be read as such, or has a figure that cannot be.
            BoardDescriptionError: it is of a board that has no description here.
        """
        try:
            check_npz(path, 1 << 30)
            with np.load(path, allow_pickle=False) as arrays:
                about = json.loads(arrays["about"].tobytes())
                tables = rows_of(arrays)
            tables = {**{name: Rows.joined(()) for name in LATER}, **tables}
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


def arrays_of(tables: Mapping[str, Rows]) -> dict[str, Any]:
    """Tables as the named arrays of an npz file."""
    return {f"{name}.{column}": getattr(rows, column) for name, rows in tables.items() for column in COLUMNS}


def rows_of(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Rows]:
    """The tables among the named arrays of an npz file."""
    names = [key.removesuffix(".value") for key in arrays if key.endswith(".value")]
    return {name: Rows(*(arrays[f"{name}.{column}"] for column in COLUMNS)) for name in names}


def call_json(call: Call) -> dict[str, Any]:
    """A call as JSON."""
    return {"name": call.name, "scope": call.scope} if isinstance(call, HostOp) else call.to_json()


def _call(data: Mapping[str, Any]) -> Call:
    return HostOp(str(data["name"]), str(data["scope"])) if "name" in data else KernelInvocation.from_json(data)
