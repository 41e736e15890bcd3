# SPDX-License-Identifier: Apache-2.0
"""Plain recipe of MIRAGE (SEC '21), sections 4.2 and 4.3, on simulated boards, and the paper's published shares.

Features are raw shapes, parameters and clocks, labels log measurements; XGBoost is within the ranges of Table 2; configurations
are uniformly random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ....kernels.grid import FrequencyConfiguration
from ....kernels.network import KernelInvocation
from ....kernels.units import AXES, per_mhz
from ...board import BoardDescription
from ...twin.silicon.silicon import Silicon
from ..measure.meters.simulated import TwinMeter
from ..measure.sampling import random_configurations

TRAINING_NODES = tuple(range(11))
KINDS = ("conv2d", "batch_norm", "matmul")
ALL_KINDS = (*KINDS, "relu", "max_pool2d", "adaptive_avg_pool2d", "add", "cat")
"""Kinds of the gate."""
LIMITS = (5.0, 10.0, 15.0, 20.0)
PAPER_WITHIN: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "conv2d": {"runtime": (65.15, 82.11, 89.97, 93.89), "power": (47.08, 78.57, 91.06, 95.61)},
    "batch_norm": {"runtime": (85.02, 95.77, 98.11, 99.00), "power": (61.68, 88.52, 92.91, 95.40)},
    "matmul": {"runtime": (95.25, 98.75, 99.55, 99.76), "power": (72.12, 95.68, 98.70, 99.44)},
    "relu": {"runtime": (85.39, 95.85, 98.04, 98.83), "power": (71.10, 94.28, 97.20, 98.18)},
    "max_pool2d": {"runtime": (58.52, 85.04, 93.50, 96.60), "power": (57.09, 83.94, 90.76, 94.04)},
    "adaptive_avg_pool2d": {"runtime": (72.97, 92.59, 97.13, 98.66), "power": (43.95, 80.86, 93.47, 97.80)},
    "add": {"runtime": (79.69, 92.07, 95.85, 97.56), "power": (45.39, 78.43, 91.44, 96.68)},
    "cat": {"runtime": (49.36, 77.00, 88.55, 93.66), "power": (46.28, 74.14, 85.80, 92.50)},
}
"""MIRAGE, Tables 4 and 5: percent of predictions within each of :data:`LIMITS`."""


def plain_features(
    kind: str, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration]
) -> NDArray[np.float32]:
    """Raw sizes and parameters, then CPU, GPU and memory clock in MHz."""
    columns = [_plain(kind, call) for call in invocations]
    clocks = np.array([tuple(configuration) for configuration in configurations], np.float64) / [per_mhz(axis) for axis in AXES]
    return np.concatenate([np.array(columns, np.float32), clocks.astype(np.float32)], axis=1)


def _plain(kind: str, call: KernelInvocation) -> tuple[float, ...]:
    if kind == "conv2d":
        values: list[float] = [*call.inputs[0]]
        for name in ("weight", "bias", "stride", "padding", "dilation", "groups"):
            value = call.params[name]
            values += value if isinstance(value, tuple) else [float(value or 0)]
        return tuple(values)
    if kind == "matmul":
        return tuple(float(call.params[name]) for name in ("k", "n"))  # type: ignore[arg-type]
    sizes = _four(call.inputs[0])
    if kind == "max_pool2d":
        return (*sizes, *(float(number) for name in _WINDOW for number in _pair(call.params[name])))
    if kind == "adaptive_avg_pool2d":
        return (*sizes, *map(float, call.output[-2:]))
    if kind == "cat":
        return (*sizes, float(len(call.inputs)), float(call.output[1] if len(call.output) > 1 else 1))
    return sizes


_WINDOW = ("kernel_size", "stride", "padding")


def _four(shape: Sequence[int]) -> tuple[float, ...]:
    return (*map(float, shape[-4:]), *(1.0,) * (4 - len(shape)))


def _pair(value: object) -> tuple[int, ...]:
    numbers = tuple(value) if isinstance(value, tuple) else (int(str(value)),)
    return numbers if len(numbers) > 1 else numbers * 2


class KindMeasurements(Struct, frozen=True):
    """Kernels of one kind on one board; ``real`` marks the networks' own."""

    node: int
    features: NDArray[np.float32]
    labels: dict[str, NDArray[np.float64]]
    real: NDArray[np.bool_]


def measured(
    kind: str, calls: Sequence[KernelInvocation], board: BoardDescription, node: int, seed: int, real: int = 0
) -> KindMeasurements:
    """Measure calls of one kind at random configurations; the first ``real`` are the networks'."""
    configurations = random_configurations(board.grid, len(calls), np.random.default_rng([seed, node, 7]))
    meter = TwinMeter(Silicon(node, board), seed)
    runtime = meter.kernel_times_ms(calls, configurations)
    rails = meter.kernel_powers(calls, configurations).rails_mw
    power = np.sum([rails[rail] for rail in board.energy_rails], axis=0)
    own = np.arange(len(calls)) < real
    return KindMeasurements(node, plain_features(kind, calls, configurations), {"runtime": runtime, "power": power}, own)


def trained(
    features: NDArray[np.float32],
    labels: NDArray[np.float64],
    rounds: int,
    threads: int,
    seed: int,
    *,
    learning_rate: float = 0.05,
    depth: int = 11,
) -> Callable[[NDArray[np.float32]], NDArray[np.float64]]:
    import xgboost

    settings = {
        "objective": "reg:squarederror", "tree_method": "hist", "max_bin": 512, "max_depth": depth, "min_child_weight": 5,
        "subsample": 0.9, "colsample_bytree": 0.9, "learning_rate": learning_rate, "reg_alpha": 0.001, "reg_lambda": 0.01,
        "nthread": threads, "seed": seed,
    }  # fmt: skip
    model = xgboost.train(settings, xgboost.DMatrix(features, np.log(labels), nthread=threads), num_boost_round=rounds)
    return lambda wanted: np.asarray(np.exp(model.predict(xgboost.DMatrix(wanted, nthread=threads))), np.float64)
