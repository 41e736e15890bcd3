# SPDX-License-Identifier: Apache-2.0
"""Published latencies of TensorRT engines, and predictions by the shipped profiles.

Columns of ``engines.csv``: ``board``, ``model`` (a file next to it), ``input``, ``as``, ``latency_ms``, and optionally
``gpu_mhz`` (default: the highest).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from ....kernels.cost.model import surface
from ....kernels.decompose import decompose
from ....kernels.engine.fusing import ENGINE_TYPES, as_engine
from ....kernels.errors import KernelsError
from ....kernels.inputs import parse_input
from ...bundle.bundle import load_bundle
from ...errors import BundleError, ComparisonDataError
from .fit import find_file, read_table

TABLE = "engines.csv"
GOAL = 0.15
"""Median absolute error of a board's engines of one element type."""


_shipped = lru_cache(maxsize=4)(load_bundle)


class PublishedEngine(Struct, frozen=True):
    board: str
    model: str
    compiled: str
    latency_ms: float
    predicted_ms: float

    @property
    def error(self) -> float:
        return self.predicted_ms / self.latency_ms - 1


def engines(data: Path) -> Iterator[PublishedEngine]:
    """Predict every row of the table. Raises ComparisonDataError."""
    path = find_file(data, TABLE)
    for number, row in enumerate(read_table(path), 1):
        try:
            yield _predicted(path.parent, row)
        except KeyError as error:
            raise ComparisonDataError(f"{path}: no column {error}; expected board, model, input, as, latency_ms") from error
        except (ValueError, KernelsError, BundleError) as error:
            raise ComparisonDataError(f"{path}, row {number}: {error}") from error


def _predicted(folder: Path, row: Mapping[str, str]) -> PublishedEngine:
    compiled, latency_ms = row["as"], float(row["latency_ms"])
    if compiled not in ENGINE_TYPES or not latency_ms > 0:
        raise ValueError(
            f"as {compiled!r:.40}, latency_ms {latency_ms}; expected one of {', '.join(ENGINE_TYPES)}, and more than 0"
        )
    network = decompose(folder / row["model"], [parse_input(row["input"])])
    listed = as_engine(network, ENGINE_TYPES[compiled])
    cost = _shipped(f"{row['board']}-sim").cost
    clocks = cost.grid.top
    if row.get("gpu_mhz"):
        wanted_hz = 1e6 * float(row["gpu_mhz"])
        clocks = clocks._replace(gpu_hz=min(cost.grid.gpu_hz, key=lambda level: abs(level - wanted_hz)))
    found = surface(listed, cost, execution="engine").at(clocks)
    return PublishedEngine(row["board"], row["model"], compiled, latency_ms, found.latency_ms)
