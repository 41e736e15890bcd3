# SPDX-License-Identifier: Apache-2.0
"""Real layers of an AGX Orin 64GB (branes-ai/graphs), each network predicted by models trained without it.

Fused layers were timed one by one through an interpreter. Trees learn the distance from two estimates: a bound by operations,
bytes and interpreter time, and time by rates (:mod:`.nodes`). A layer is their geometric mean, a network the sum of its layers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ....adapt.network_errors import mean_error_percent
from ....errors import ComparisonDataError
from ..agx_orin import LAYERS, MODES, MeasuredMode
from ..fit import numbers, read_table
from .nodes import fitted_ms, works

GOALS: Mapping[int, float] = {1: 7.0, 4: 4.0, 16: 10.0, 64: 14.0}
"""Goal for the mean error in percent, by batch."""
MAPPING = "orin-agx-layers"
"""Shipped mapping of such tables."""
_HEADINGS = (
    "calib_dir", "model", "batch", "precision", "thermal_profile", "date", "fusion_pattern", "flops", "total_bytes",
    "lat_mean_ms", "nodes",
)  # fmt: skip
_BYTES = {"FP32": 4, "FP16": 2, "BF16": 2}
NODE_MS, _NODE_HZ = 0.15, 2.2016e9  # of an interpreter's call at that clock
_LANES, _BYTES_PER_CYCLE = 256, 64
_PARTS = ("Conv2d", "BatchNorm", "ReLU", "SiLU", "Linear", "LayerNorm", "Multihead", "AdaptiveAvg", "Unfused", "add")
_NODES = (
    "add", "mul", "permute", "reshape", "view", "transpose", "flatten", "avgpool", "mean", "cat", "dropout", "softmax", "relu",
    "expand", "getitem", "stochastic", "norm", "pad", "roll", "linear", "maxpool", "classifier", "downsample", "attn", "mlp",
    "ln",
)  # fmt: skip
_DEPTH, _RATE = 5, 0.1
_ROUNDS, _COLUMNS = {"bound": 300, "rates": 200}, {"bound": 0.7, "rates": 0.4}
_SHARES = {"bound": 0.25, "rates": 0.75}
_BELOW = 0.98  # runs scatter, and of the same scatter the mean relative error is least a little below its middle


class NetworkRow(Struct, frozen=True):
    """Held-out network at a batch.

    Attributes:
        cases: runs, over modes, types and campaigns.
        percent: mean absolute error of the sum of its layers' times.
        together_percent: absolute error of the sum over all runs.
        scatter_percent: ``percent`` without each mode's median error, in hindsight.
    """

    network: str
    batch: int
    cases: int
    percent: float
    together_percent: float
    scatter_percent: float


class BatchMeans(Struct, frozen=True):
    """Means at a batch: ``percent`` and ``scatter_percent`` over runs, ``together_percent`` over networks."""

    percent: float
    together_percent: float
    scatter_percent: float


def read_layers(path: Path) -> list[Mapping[str, str]]:
    """Rows of the table. Raises ComparisonDataError."""
    rows = list(read_table(path))
    if missing := [column for column in _HEADINGS if not rows or column not in rows[0]]:
        raise ComparisonDataError(f"{path}: no column {', '.join(missing)}; expected a table such as {LAYERS}")
    return rows


def left_out(
    rows: Sequence[Mapping[str, str]],
    threads: int,
    seed: int = 0,
    progress: Callable[[int, int, str], None] = lambda done, total, text: None,
) -> Iterator[NetworkRow]:
    """Leave out each network in turn, one row per batch. Raises ComparisonDataError."""
    measured_ms = np.asarray(numbers(rows, "lat_mean_ms", LAYERS))
    cases, case = np.unique(
        [f"{row['calib_dir']}|{row['model']}|{row['batch']}|{row['precision']}|{row['date']}" for row in rows],
        return_inverse=True,
    )
    whole_ms = np.bincount(case, measured_ms)
    weight = (measured_ms / whole_ms[case]) ** 0.7  # the sum counts
    predictor = _Predictor(rows, measured_ms, weight, threads, seed)
    mode_of = np.full(len(cases), "", object)
    mode_of[case] = [row["thermal_profile"] for row in rows]
    model_of = np.array([row["model"] for row in rows])
    batch_of = np.array([int(row["batch"]) for row in rows])
    names = sorted(set(model_of))
    for number, name in enumerate(names):
        progress(number, len(names), f"without {name}")
        out = model_of == name
        predicted_ms = np.bincount(case[out], predictor.without_ms(out), len(cases))
        for batch in sorted(set(batch_of[out])):
            own = np.unique(case[out & (batch_of == batch)])
            yield _row(name, int(batch), predicted_ms[own], whole_ms[own], mode_of[own])
    progress(len(names), len(names), "done")


def _row(
    name: str, batch: int, predicted_ms: NDArray[np.float64], measured_ms: NDArray[np.float64], modes: NDArray[np.object_]
) -> NetworkRow:
    ratio = predicted_ms / measured_ms
    middle = np.array([np.median(ratio[modes == mode]) for mode in modes])
    percent, together, scatter = (
        mean_error_percent(*pair)
        for pair in ((predicted_ms, measured_ms), (predicted_ms.sum(), measured_ms.sum()), (ratio, middle))
    )
    return NetworkRow(name, batch, len(ratio), percent, together, scatter)


class _Predictor:
    """Layer times from other layers; arrays of shape ``(layers,)``."""

    def __init__(
        self,
        rows: Sequence[Mapping[str, str]],
        measured_ms: NDArray[np.float64],
        weight: NDArray[np.float64],
        threads: int,
        seed: int,
    ) -> None:
        self._rows, self._measured_ms, self._weight = rows, measured_ms, weight
        self._threads, self._seed = threads, seed
        self._features, self._bound_ms = _described(rows)
        self._work = works(rows)
        batch = np.array([float(row["batch"]) for row in rows])
        self._sized = np.column_stack([self._features, self._work.described(), batch])

    def without_ms(self, out: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Predicted times of held-out layers in ms, shape ``(layers left out,)``."""
        by_rates_ms = fitted_ms(self._work, self._rows, self._measured_ms, np.where(out, 0.0, self._weight))
        sized = np.column_stack([self._sized, np.log(by_rates_ms)]).astype(np.float32)
        firsts = (("bound", self._features, self._bound_ms), ("rates", sized, by_rates_ms))
        logs = sum(_SHARES[kind] * self._learned(features, first_ms, out, kind) for kind, features, first_ms in firsts)
        return np.asarray(_BELOW * np.exp(logs))

    def _learned(
        self, features: NDArray[np.float32], first_ms: NDArray[np.float64], out: NDArray[np.bool_], kind: str
    ) -> NDArray[np.float64]:
        import xgboost

        parameters = {
            "max_depth": _DEPTH, "learning_rate": _RATE, "subsample": 0.8, "colsample_bytree": _COLUMNS[kind],
            "min_child_weight": 0.01, "max_bin": 128, "nthread": self._threads, "seed": self._seed, "verbosity": 0,
        }  # fmt: skip
        off = np.log(self._measured_ms[~out] / first_ms[~out])
        booster = xgboost.train(parameters, xgboost.DMatrix(features[~out], off, weight=self._weight[~out]), _ROUNDS[kind])
        return np.asarray(np.log(first_ms[out]) + booster.predict(xgboost.DMatrix(features[out])).astype(np.float64))


def nearest(rows: Sequence[Mapping[str, str]]) -> dict[int, float]:
    """By batch, mean error in percent of the best possible value. Raises ComparisonDataError."""
    runs: dict[tuple[str, ...], dict[str, float]] = {}
    for row, took_ms in zip(rows, numbers(rows, "lat_mean_ms", LAYERS), strict=True):
        whole = runs.setdefault(tuple(row[name] for name in ("batch", "model", "precision", "thermal_profile")), {})
        campaign = f"{row['calib_dir']}|{row['date']}"
        whole[campaign] = whole.get(campaign, 0.0) + took_ms
    found: dict[int, list[float]] = {}
    for (batch, *_), by_campaign in runs.items():
        times_ms = np.array(list(by_campaign.values()))
        if len(times_ms) > 1:
            # The mean of relative errors is least at one of the figures themselves.
            errors = np.abs(times_ms[:, None] / times_ms[None, :] - 1).mean(axis=1)
            found.setdefault(int(batch), []).append(100 * float(errors.min()))
    return {batch: float(np.mean(percents)) for batch, percents in sorted(found.items())}


def means(rows: Sequence[NetworkRow]) -> dict[int, BatchMeans]:
    found = {}
    for batch in GOALS:
        own = [row for row in rows if row.batch == batch]
        if own:
            runs = [row.cases for row in own]
            percent, scatter = np.average([(row.percent, row.scatter_percent) for row in own], axis=0, weights=runs)
            found[batch] = BatchMeans(float(percent), float(np.mean([row.together_percent for row in own])), float(scatter))
    return found


def _described(rows: Sequence[Mapping[str, str]]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Features of each layer, and its bound in ms. Network-specific pattern numbers are omitted."""
    features, bounds = [], []
    for row in rows:
        mode, nodes = MODES[row["thermal_profile"]], row["nodes"].split("|")
        compute_ms, memory_ms, host_ms = _terms_ms(row, mode, len(nodes))
        bounds.append(host_ms + max(compute_ms, memory_ms) + 0.5 * min(compute_ms, memory_ms))
        flops, moved, joined = float(row["flops"]), float(row["total_bytes"]), row["nodes"].lower()
        node = next((place for place, part in enumerate(_NODES) if part in joined), len(_NODES))
        features.append(
            [
                np.log(flops + 1), np.log(moved + 1), len(nodes), np.log((flops + 1) / (moved + 1)),
                node, mode.cpu_hz, mode.gpu_hz, mode.emc_hz, mode.sm_count,
                list(_BYTES).index(row["precision"]), np.log(compute_ms + 1e-6), np.log(memory_ms + 1e-6), np.log(host_ms),
                *(len(re.findall(part, row["fusion_pattern"])) for part in _PARTS),
            ]
        )  # fmt: skip
    return np.array(features, np.float32), np.array(bounds)


def _terms_ms(row: Mapping[str, str], mode: MeasuredMode, nodes: int) -> tuple[float, float, float]:
    half = _BYTES[row["precision"]] / 4
    compute_ms = 1e3 * float(row["flops"]) * half / (mode.sm_count * _LANES * mode.gpu_hz)
    memory_ms = 1e3 * float(row["total_bytes"]) * half / (_BYTES_PER_CYCLE * mode.emc_hz)
    return compute_ms, memory_ms, nodes * NODE_MS * _NODE_HZ / mode.cpu_hz
