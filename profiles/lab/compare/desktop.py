# SPDX-License-Identifier: Apache-2.0
"""Difficulty of simulated kernels compared with the same shapes on desktop GPUs (sitar-lab/NeuSight).

Times are of repeated operators: at least the host's issue time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ....kernels.network import KernelInvocation
from ...adapt.network_errors import mean_error_percent
from ...board import load_board
from ...twin.measured.mapping import TableMapping, load_mapping
from ...twin.silicon.chip import Clocks
from ...twin.silicon.silicon import Silicon
from ..measure.tables import kernel_of_row
from .fit import numbers, read_rows

FILES = {"conv2d": "conv.csv.gz", "add": "add.csv.gz", "matmul": "linear.csv.gz"}
GPUS = ("Tesla V100", "Tesla T4", "NVIDIA A100", "Tesla P100", "Tesla P4")
COMPARED = GPUS[:2]
"""GPUs whose shapes are simulated; the rest show how much GPUs differ."""
MAPPING = "gpu-kernels"
_LONGEST_S = 0.5  # a kernel of a desktop GPU that would take longer than that here is left out
_HELD_OUT = 0.2

Learn = Callable[[NDArray[np.float32], NDArray[np.float64]], Callable[[NDArray[np.float32]], NDArray[np.float64]]]


def errors(kind: str, board: str, data: Path, learn: Learn, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """Mean error in percent of held-out kernels, on each GPU and simulated. Raises ComparisonDataError."""
    rows = list(read_rows(data, FILES[kind]))
    real, simulated = {}, {}
    for gpu in GPUS:
        table = [row for row in rows if row["Device"].startswith(gpu)]
        features = np.array([_features(_call(kind, row)) for row in table], np.float32)
        real[gpu] = _held_out(features, numbers(table, "latency_ms", FILES[kind]), learn, seed)
        if gpu in COMPARED:
            seconds = again_s(kind, table, board)
            kept = seconds < _LONGEST_S
            simulated[gpu] = _held_out(features[kept], seconds[kept], learn, seed)
    return real, simulated


def again_s(kind: str, rows: Sequence[Mapping[str, str]], board: str) -> NDArray[np.float64]:
    """Time of each repeated kernel at top clocks: its own or the host's."""
    silicon, clocks = Silicon(None, board), Clocks.of([load_board(board).grid.top])
    calls = [_call(kind, row) for row in rows]
    busy = silicon.kernels(calls, clocks).seconds + silicon.gap_s(clocks)
    return np.asarray(np.maximum(busy, silicon.issue_s(calls, clocks))[:, 0])


def _held_out(features: NDArray[np.float32], seconds: NDArray[np.float64], learn: Learn, seed: int) -> float:
    held = np.random.default_rng(seed).random(len(seconds)) < _HELD_OUT
    predict = learn(features[~held], seconds[~held])
    return mean_error_percent(predict(features[held]), seconds[held])


def _features(call: KernelInvocation) -> tuple[float, ...]:
    return tuple(np.log([*_sizes(call), *map(float, call.output), _elements(call), _work(call)]).tolist())


def _sizes(call: KernelInvocation) -> Iterator[float]:
    if call.kind == "conv2d":
        weight = call.params["weight"]
        assert isinstance(weight, tuple)
        yield from (float(call.inputs[0][0]), *map(float, weight), float(call.inputs[0][2]), *map(float, call.output[2:]))
    else:
        yield from (float(call.params[name]) for name in ("m", "n", "k") if name in call.params)  # type: ignore[arg-type]


def _elements(call: KernelInvocation) -> float:
    return float(sum(map(prod, call.inputs)) + prod(call.output))


def _work(call: KernelInvocation) -> float:
    if call.kind == "conv2d":
        weight = call.params["weight"]
        assert isinstance(weight, tuple)
        return float(prod(weight[1:]) * prod(call.output))
    return float(prod(list(_sizes(call)) or [_elements(call)]))


def _call(kind: str, row: Mapping[str, str]) -> KernelInvocation:
    return kernel_of_row(row, _mapping(FILES[kind]))


@lru_cache
def _mapping(table: str) -> TableMapping:
    return load_mapping(MAPPING).of_table(Path(table))
