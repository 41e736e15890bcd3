# SPDX-License-Identifier: Apache-2.0
"""Merged records, without host names, worker names and paths."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from .... import __version__
from ....kernels.network import HostOp, Network
from ...adapt.measurements import KERNEL_TABLES, NETWORK_TABLES, TABLES, MeasurementRows, Measurements
from ...errors import MeasurementError
from .learned import LearnedState, with_learned

_TOLD = (
    "meter", "python", "torch", "threads", "device", "device_name", "clocks_locked", "clocks_seen_mhz", "source", "jetdvfs",
    "jetpack", "l4t", "kernel", "power_mode", "fan_drive", "governors", "rejected", "measured_again", "refused", "die_c",
    "gpu_really_hz", "cuda", "cudnn", "cudnn_benchmark", "cudnn_tf32", "matmul_tf32", "event_us", "reference_ms", "driver",
    "power_limit_mw", "clock_reasons", "without_power",
)  # fmt: skip
_SETTINGS = {"cudnn_tf32", "matmul_tf32", "cudnn_benchmark"}  # of PyTorch on a GPU, which change kernel times
_ALIKE_C = 3.0  # idle power at dies further apart is not of one table


class RecordPart(Struct, frozen=True):
    """One record's part of a merged record; ``rows`` counts its values."""

    board: str
    silicon_version: str
    nodes: tuple[int, ...]
    rows: int
    made_by: Mapping[str, Any]


def shareable(record: Measurements) -> Measurements:
    kept = {name: record.environment[name] for name in _TOLD if name in record.environment}
    parts = record.environment.get("parts")
    return replace(record, environment={"jetdvfs": __version__, **kept, **({"parts": parts} if parts else {})})


def merged(
    records: Mapping[str, Measurements], learned: Mapping[str, LearnedState] | None = None
) -> tuple[Measurements, dict[str, RecordPart]]:
    """Merge records and daemons' learned observations, given by name; return also the part of each.

    The result does not depend on their order. Boards are renumbered, except simulated ones. Raises MeasurementError if records
    do not match, or share a board.
    """
    records = dict(sorted(records.items(), key=lambda one: (one[1].nodes, _content(one[1]))))
    _check_alike(records)
    each = [shareable(record) for record in records.values()]
    first = each[0]
    invocations = _Union(lambda kernel: kernel.signature, [record.invocations for record in each])
    calls = _Union(lambda call: (call.name,) if isinstance(call, HostOp) else call.signature, [one.calls for one in each])
    networks = _Union(lambda network: network.digest, [record.networks for record in each])
    temperatures = _Union(float, [record.temperatures_c for record in each])
    tables: dict[str, list[MeasurementRows]] = {name: [] for name in TABLES}
    parts, next_node = dict[str, RecordPart](), 0
    for number, (name_of, record) in enumerate(zip(records, each, strict=True)):
        old = record.nodes
        nodes = old if record.silicon_version else tuple(range(next_node, next_node + len(old)))
        next_node += len(old)
        places = {
            **dict.fromkeys(KERNEL_TABLES, invocations.places[number]),
            **dict.fromkeys(NETWORK_TABLES, networks.places[number]),
            "host_us": calls.places[number], "warm_idle_mw": temperatures.places[number],
        }  # fmt: skip
        for name, rows in record.tables.items():
            what = places[name][rows.what] if name in places else rows.what
            node = np.array(nodes, np.int64)[np.searchsorted(old, rows.node)] if len(rows) else rows.node
            tables[name].append(replace(rows, what=what, node=node))
        count = sum(len(rows) for rows in record.tables.values())
        made_by = {name: value for name, value in record.environment.items() if name != "parts"}
        parts[name_of] = RecordPart(record.board, record.silicon_version, nodes, count, made_by)
    found = replace(
        first,
        invocations=tuple(invocations.items),
        calls=tuple(calls.items),
        networks=tuple(_distinguished(networks.items)),
        temperatures_c=tuple(temperatures.items),
        tables={name: MeasurementRows.joined(found) for name, found in tables.items()},
    )
    found, added = with_learned(found, learned or {})
    for name, (board, many) in added.items():
        parts[name] = RecordPart(found.board, found.silicon_version, (board,), many, {"meter": "learned by the daemon"})
    told = {"meter": "several records", "parts": [asdict(part) for part in parts.values()]}
    return replace(found, environment=told), parts


def _content(record: Measurements) -> bytes:
    return hashlib.sha256(b"".join(rows.value.tobytes() for rows in record.tables.values())).digest()


class _Union:
    def __init__(self, key: Callable[[Any], Hashable], lists: Sequence[Sequence[Any]]) -> None:
        numbers: dict[Hashable, int] = {}
        self.items: list[Any] = []
        self.places: list[NDArray[np.int64]] = []
        for items in lists:
            for item in items:
                if key(item) not in numbers:
                    numbers[key(item)] = len(self.items)
                    self.items.append(item)
            self.places.append(np.array([numbers[key(item)] for item in items], np.int64))


def _distinguished(networks: Sequence[Network]) -> Iterator[Network]:
    seen: dict[str, int] = {}
    for network in networks:
        seen[network.name] = seen.get(network.name, 0) + 1
        yield network if seen[network.name] == 1 else replace(network, name=f"{network.name}-{seen[network.name]}")


def _check_alike(records: Mapping[str, Measurements]) -> None:
    (first_name, first), *others = records.items()
    for name, record in others:
        pairs = {
            "board": (first.board, record.board),
            "silicon": (first.silicon_version or "real", record.silicon_version or "real"),
            "rails": (", ".join(first.rails) or "none", ", ".join(record.rails) or "none"),
        }
        for what, (one, other) in pairs.items():
            if one != other:
                raise MeasurementError(f"{first_name} and {name}: of different {what}: {one} and {other}")
        for setting in sorted(_SETTINGS & set(first.environment) & set(record.environment)):
            if first.environment[setting] != record.environment[setting]:
                raise MeasurementError(f"{first_name} and {name}: {setting} was on for one of them and off for the other")
        if first.described.grid != record.described.grid:
            raise MeasurementError(f"{first_name} and {name}: of different clocks")
        known = not math.isnan(first.temperature_c) and not math.isnan(record.temperature_c)
        if known and abs(first.temperature_c - record.temperature_c) > _ALIKE_C:
            raise MeasurementError(
                f"{first_name} and {name}: measured with dies of {first.temperature_c:g} and {record.temperature_c:g} C; "
                f"records that are merged are at most {_ALIKE_C:g} C apart"
            )
    seen: dict[bytes, str] = {}
    for name, record in records.items():
        for node in record.nodes:
            content = b"".join(rows.value[rows.node == node].tobytes() for rows in record.tables.values())
            if content in seen:
                raise MeasurementError(
                    f"{seen[content]} and board {node} of {name}: are the same figures, and would count twice"
                )
            seen[content] = f"board {node} of {name}"
