# SPDX-License-Identifier: Apache-2.0
"""Published values of MIRAGE (SEC '21), all measured on AGX Xavier boards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from ....kernels.network import Network
from ...board import load_board
from .accuracy import PredictionErrors
from .characterization import NODES, measured
from .difficulty import ALL_KINDS, LIMITS, PAPER_WITHIN

NAMES: Mapping[str, str] = {
    "conv2d": "Conv2d",
    "batch_norm": "Batchnorm2d",
    "matmul": "Matmul",
    "relu": "Relu",
    "max_pool2d": "Maxpool2d",
    "adaptive_avg_pool2d": "Adaptivepool2d",
    "add": "Add",
    "cat": "Cat",
}
"""The eight kinds, as named in its Tables 4 and 5."""

WITHIN_6: Mapping[str, tuple[float, ...]] = {
    "alexnet": (59.11, 92.76, 94.86, 96.90),
    "densenet161": (75.33, 90.38, 93.92, 96.48),
    "googlenet": (8.43, 40.41, 52.17, 60.19),
    "inception_v3": (24.33, 85.49, 88.79, 91.62),
    "mnasnet1_0": (5.73, 10.97, 16.46, 37.08),
    "mobilenet_v2": (8.98, 49.19, 63.22, 67.16),
    "resnet18": (24.60, 60.38, 79.60, 87.08),
    "shufflenet_v2_x1_0": (3.03, 6.56, 15.81, 21.78),
    "squeezenet1_0": (62.73, 77.63, 80.76, 83.87),
    "vgg16": (90.95, 93.05, 94.90, 96.10),
}
"""MIRAGE (SEC '21), Table 6: percent of configurations at which the sum of kernels is within :data:`LIMITS` of the network."""

_ERRORS_4 = {
    "conv2d": (12.615, 2.785), "batch_norm": (0.309, 0.121), "matmul": (0.091, 0.048), "relu": (0.322, 0.135),
    "max_pool2d": (0.339, 0.109), "adaptive_avg_pool2d": (0.037, 0.015), "add": (0.036, 0.007), "cat": (0.336, 0.121),
}  # fmt: skip
_ERRORS_5 = {
    "conv2d": (1.229, 0.676), "batch_norm": (1.114, 0.637), "matmul": (0.566, 0.387), "relu": (0.606, 0.371),
    "max_pool2d": (1.209, 0.698), "adaptive_avg_pool2d": (0.345, 0.276), "add": (0.671, 0.389), "cat": (1.324, 0.747),
}  # fmt: skip
_ERRORS_6 = {
    "alexnet": (1.03, 0.82), "densenet161": (12.82, 8.72), "googlenet": (8.87, 6.39), "inception_v3": (9.50, 7.12),
    "mnasnet1_0": (5.56, 4.37), "mobilenet_v2": (5.01, 3.24), "resnet18": (3.28, 2.45), "shufflenet_v2_x1_0": (11.48, 8.71),
    "squeezenet1_0": (1.89, 1.07), "vgg16": (4.33, 2.82),
}  # fmt: skip
_TABLE_7 = {
    "alexnet": (52.43, 87.35, 97.51, 99.54, 0.01, 0.01),
    "densenet161": (46.79, 78.59, 91.19, 97.52, 0.13, 0.09),
    "googlenet": (19.75, 38.41, 55.59, 68.76, 0.04, 0.03),
    "inception_v3": (31.40, 61.00, 83.33, 94.06, 0.08, 0.05),
    "mnasnet1_0": (6.67, 13.35, 23.65, 35.84, 0.03, 0.02),
    "mobilenet_v2": (20.56, 41.56, 59.41, 70.30, 0.02, 0.02),
    "resnet18": (22.59, 45.89, 68.52, 83.19, 0.03, 0.02),
    "shufflenet_v2_x1_0": (5.57, 12.41, 19.00, 25.94, 0.04, 0.03),
    "squeezenet1_0": (45.57, 73.73, 85.48, 90.43, 0.01, 0.01),
    "vgg16": (49.86, 82.94, 93.87, 95.83, 0.09, 0.06),
}
NAN = float("nan")


def _row(within: tuple[float, ...], rmse: float, mae: float) -> PredictionErrors:
    return PredictionErrors(within, rmse, mae, NAN, 0)


TABLE_4 = {kind: _row(PAPER_WITHIN[kind]["runtime"], *_ERRORS_4[kind]) for kind in NAMES}
TABLE_5 = {kind: _row(PAPER_WITHIN[kind]["power"], *_ERRORS_5[kind]) for kind in NAMES}
TABLE_6 = {network: _row(WITHIN_6[network], *_ERRORS_6[network]) for network in WITHIN_6}
TABLE_7 = {network: _row(row[: len(LIMITS)], *row[len(LIMITS) :]) for network, row in _TABLE_7.items()}
MEANS = {
    "table-4": _row((73.92, 89.90, 95.09, 97.24), 1.761, 0.418),
    "table-5": _row((55.59, 84.30, 92.67, 96.21), 0.883, 0.523),
    "table-6": PredictionErrors((36.32, 60.68, 68.05, 73.83), 6.38, 4.57, 15.4, 0),
    "table-7": PredictionErrors((30.12, 53.52, 67.76, 76.14), 0.05, 0.03, 14.9, 0),
}
"""Last rows of these tables; the mean errors of networks are from its abstract."""
assert set(NAMES) == set(ALL_KINDS)


class Generality(NamedTuple):
    """Mean relative errors in percent (section 6.3): sum of kernels, and specialised models."""

    generic: float
    specialised: float


FIGURE_5 = {"runtime": Generality(15.4, 3.64), "energy": Generality(14.71, 4.94)}


class ImprovementRange(NamedTuple):
    """Least and largest improvement, in percent."""

    low: float
    high: float


class Improvement(NamedTuple):
    """Row of Table 8: share within 5 and 10%, root mean square and mean absolute error."""

    within_5: ImprovementRange
    within_10: ImprovementRange
    rmse: ImprovementRange
    mae: ImprovementRange


def _improvement(*numbers: float) -> Improvement:
    return Improvement(*(ImprovementRange(low, high) for low, high in zip(numbers[::2], numbers[1::2], strict=True)))


TABLE_8: Mapping[str, Mapping[str, Improvement]] = {
    "runtime": {
        "alexnet": _improvement(0.6, 8.9, -0.0, 1.9, 2.2, 61.0, -1.1, 35.6),
        "densenet161": _improvement(-4.6, 8.3, -0.8, 3.4, -0.8, 9.5, -4.6, 10.4),
        "googlenet": _improvement(-4.9, 49.8, -0.6, 18.0, -4.2, 86.4, -6.7, 65.5),
        "inception_v3": _improvement(-1.7, 12.9, -0.1, 3.5, 7.6, 14.7, 0.4, 11.6),
        "mnasnet1_0": _improvement(-5.6, 31.3, -1.0, 7.9, -2.2, 84.5, -10.8, 62.1),
        "mobilenet_v2": _improvement(-11.5, 39.8, -1.7, 9.5, -2.9, 82.9, -10.1, 58.9),
        "resnet18": _improvement(-4.8, 69.7, -1.1, 71.2, -0.3, 82.3, -4.3, 68.0),
        "shufflenet_v2_x1_0": _improvement(-12.6, 186.3, -1.7, 13.1, -3.8, 91.4, -19.0, 75.7),
        "squeezenet1_0": _improvement(-0.5, 16.3, 0.7, 10.6, -0.1, 78.3, -0.3, 51.1),
        "mean": _improvement(-5.1, 47.0, -0.7, 15.5, -0.5, 65.7, -6.3, 48.8),
    },
    "power": {
        "alexnet": _improvement(-27.3, 1268.0, -3.2, 80.9, -82.7, 52.6, -98.3, 55.2),
        "densenet161": _improvement(-19.6, 442.4, -4.4, 78.4, -51.1, 47.2, -51.9, 50.9),
        "googlenet": _improvement(-24.2, 1006.1, -2.9, 162.2, -104.4, 57.2, -101.8, 62.2),
        "inception_v3": _improvement(-25.5, 465.6, -5.6, 99.4, -56.7, 45.2, -50.7, 52.9),
        "mnasnet1_0": _improvement(-22.6, 1894.3, -6.0, 145.2, -67.5, 55.6, -69.6, 60.9),
        "mobilenet_v2": _improvement(-14.8, 1207.4, -3.5, 140.4, -53.8, 59.1, -41.2, 65.0),
        "resnet18": _improvement(-28.9, 468.0, -8.1, 107.0, -72.5, 43.8, -74.6, 50.2),
        "shufflenet_v2_x1_0": _improvement(-39.6, 113950.0, -9.0, 755.6, -70.3, 66.2, -77.7, 71.0),
        "squeezenet1_0": _improvement(-27.1, 582.4, -5.0, 95.0, -48.6, 46.1, -42.9, 56.0),
        "mean": _improvement(-25.5, 13476.0, -5.3, 184.9, -67.5, 52.5, -67.6, 58.3),
    },
}
"""Without VGG, whose row is unknown."""

TABLE_2: Mapping[str, tuple[float, float]] = {
    "n_estimators": (100, 3000),
    "max_depth": (5, 11),
    "min_child_weight": (5, 8),
    "subsample": (0.8, 1.0),
    "colsample_bytree": (0.8, 1.0),
    "learning_rate": (0.005, 0.1),
    "reg_alpha": (0.0001, 0.01),
    "reg_lambda": (0.0001, 0.01),
}
"""Ranges of tuned hyperparameters."""

SAMPLES = {"conv2d": 1_400_000, "matmul": 150_000}
"""Section 4.3: runtime records of these kinds; unknown for the rest."""


TOLERANCE = 0.17
"""Of inference times at top clocks: SqueezeNet is 16% slower than the paper's, AlexNet and MobileNetV2 10 to 14%."""
BOARD = "agx-xavier"
KINDS = ("conv2d", "batch_norm", "matmul", "relu", "cat", "max_pool2d", "add", "adaptive_avg_pool2d")


class PaperRow(Struct, frozen=True):
    """Row of the paper's table: T in ms, and shares of T in percent."""

    time_ms: float
    shares: tuple[float, ...]
    all_kernels: float


# Shares in the order of KINDS; 0 where the paper has a dash. Kernels timed one by one add up to a little more than T.
PAPER = {
    "alexnet": PaperRow(4.54, (45.26, 0.0, 55.88, 1.68, 0.0, 1.18, 0.36, 0.49), 104.89),
    "densenet161": PaperRow(52.09, (84.64, 9.38, 0.17, 5.28, 5.32, 0.16, 0.01, 0.04), 105.25),
    "googlenet": PaperRow(9.46, (78.06, 6.75, 0.48, 5.29, 2.22, 4.57, 0.05, 0.12), 97.64),
    "inception_v3": PaperRow(25.50, (89.93, 6.55, 0.33, 4.18, 1.61, 0.87, 0.19, 0.07), 107.17),
    "mnasnet1_0": PaperRow(4.47, (66.77, 22.44, 1.24, 11.00, 0.0, 0.0, 1.91, 0.0), 103.86),
    "mobilenet_v2": PaperRow(4.27, (66.67, 27.29, 1.28, 0.0, 0.0, 0.0, 1.85, 0.31), 111.17),
    "resnet18": PaperRow(7.00, (95.99, 4.83, 0.38, 3.37, 0.0, 0.83, 1.72, 0.12), 107.34),
    "shufflenet_v2_x1_0": PaperRow(6.32, (24.61, 8.11, 0.72, 4.57, 4.06, 0.40, 0.07, 0.0), 43.58),
    "squeezenet1_0": PaperRow(4.06, (78.00, 0.0, 0.0, 10.36, 6.52, 4.31, 0.0, 0.42), 99.61),
    "vgg16": PaperRow(36.62, (83.61, 0.0, 15.09, 2.58, 0.0, 1.09, 0.04, 0.10), 102.61),
}


class TwinRow(Struct, frozen=True):
    """The same for the simulated board: medians over its nodes, without noise."""

    time_ms: float
    shares: tuple[float, ...]
    all_kernels: float
    host_ms: float
    power_w: float

    def error(self, paper: PaperRow) -> float:
        return self.time_ms / paper.time_ms - 1.0


def measure(network: Network, nodes: int = NODES) -> TwinRow:
    run = measured(network, load_board(BOARD), nodes=nodes)
    shares = tuple(100 * run.share(kind) for kind in KINDS)
    return TwinRow(run.time_ms, shares, 100 * run.busy_ms / run.time_ms, run.host_ms, run.power_mw / 1e3)
