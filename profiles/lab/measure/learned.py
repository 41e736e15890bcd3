# SPDX-License-Identifier: Apache-2.0
"""Learned observations of daemons (``learned.json`` of the state folder) as boards of a record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ....kernels.errors import GridError
from ....kernels.grid import FrequencyConfiguration
from ...adapt.measurements import MeasurementRows, Measurements, check_record
from ...documents import DocumentError, NotNegative, convert
from ...errors import MeasurementError

_VERSION = 2
_WANTED = "expected the learned.json of a daemon's state folder"


class LearnedObservation(Struct, frozen=True):
    """Frames at one configuration; ``power_mw`` is that of inferences only without a period."""

    configuration: FrequencyConfiguration
    latency_ms: NotNegative | None = None
    power_mw: NotNegative | None = None
    period_ms: NotNegative | None = None
    doubt: NotNegative = 0.0


class LearnedProgram(Struct, frozen=True):
    name: str
    observed: tuple[LearnedObservation, ...]


class LearnedState(Struct, frozen=True):
    """A daemon's learned observations; releases before 1.0 did not name the board."""

    programs: tuple[LearnedProgram, ...]
    board: str = ""


def read_learned(path: Path) -> LearnedState:
    """Raises MeasurementError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if (version := document["version"]) != _VERSION:
            raise MeasurementError(f"{path}: version {version!r:.40} of learned observations; this release reads {_VERSION}")
        return convert(document, LearnedState)
    except DocumentError as error:
        raise MeasurementError(f"{path}: {error}; {_WANTED}") from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        fault = error.strerror if isinstance(error, OSError) else repr(error)
        raise MeasurementError(f"{path}: no learned observations ({fault:.120}); {_WANTED}") from error


def with_learned(record: Measurements, learned: Mapping[str, LearnedState]) -> tuple[Measurements, dict[str, tuple[int, int]]]:
    """Record with a further board for each state, given by name; return also each one's board number and number of rows.

    A program counts if the record has a network of its name; its power, if known for all its configurations. Raises
    MeasurementError for another board, a repeated state, or one without such programs.
    """
    grid, names = record.described.grid, {network.name: what for what, network in enumerate(record.networks)}
    first, tables, added = max(record.nodes, default=-1) + 1, dict(record.tables), dict[str, tuple[int, int]]()
    new: dict[str, list[tuple[int, int, int, float]]] = {"network_ms": [], "network_mw": []}
    seen: dict[str, str] = {}
    for name, state in sorted(learned.items(), key=lambda one: repr(one[1])):
        if state.board not in ("", record.board):
            raise MeasurementError(f"{name}: learned on board {state.board:.80}; expected {record.board}, the records' board")
        if (other := seen.setdefault(repr(state), name)) != name:
            raise MeasurementError(f"{other} and {name}: are the same observations, and would count twice")
        node, before = first + len(added), sum(map(len, new.values()))
        for program in state.programs:
            what, timed = names.get(program.name), [one for one in program.observed if one.latency_ms and not one.doubt]
            if what is None:
                continue
            try:
                cells = [int(np.ravel_multi_index(grid.index(one.configuration), grid.shape)) for one in timed]
            except GridError as error:
                raise MeasurementError(f"{name}: {program.name:.80}: {error}; expected clocks of {record.board}") from error
            new["network_ms"] += [(what, node, cell, one.latency_ms or 0.0) for cell, one in zip(cells, timed, strict=True)]
            if record.powered and all(one.power_mw and not one.period_ms for one in timed):
                new["network_mw"] += [(what, node, cell, one.power_mw or 0.0) for cell, one in zip(cells, timed, strict=True)]
        if (rows := sum(map(len, new.values())) - before) == 0:
            raise MeasurementError(f"{name}: observed no network of the records; expected some of {', '.join(names):.200}")
        added[name] = node, rows
    for table, figures in new.items():
        whats, nodes, places = np.array([figure[:3] for figure in figures], np.int64).reshape(-1, 3).T
        more = MeasurementRows(whats, nodes, places, np.array([figure[3] for figure in figures], np.float64))
        tables[table] = MeasurementRows.joined([tables[table], more])
    found = replace(record, tables=tables)
    check_record(found)
    return found, added
