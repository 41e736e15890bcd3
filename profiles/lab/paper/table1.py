# SPDX-License-Identifier: Apache-2.0
"""The simulated board beside MIRAGE (SEC '21), Table 1: inference time of ten networks at top clocks, and its parts."""

from __future__ import annotations

from dataclasses import dataclass

from ....kernels.network import Network
from ...board import load_board
from .characterization import NODES, measured

TOLERANCE = 0.15
BOARD = "agx-xavier"
KINDS = ("conv2d", "batch_norm", "matmul", "relu", "cat", "max_pool2d", "add", "adaptive_avg_pool2d")


@dataclass(frozen=True)
class PaperRow:
    """One row of the paper's table: T in ms, the selected kernels' share of T in per cent each, and all kernels' share of T."""

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


@dataclass(frozen=True)
class TwinRow:
    """The same figures of the simulated board: medians over its nodes, without measurement noise."""

    time_ms: float
    shares: tuple[float, ...]
    all_kernels: float
    host_ms: float
    power_w: float

    def error(self, paper: PaperRow) -> float:
        return self.time_ms / paper.time_ms - 1.0


def measure(network: Network, nodes: int = NODES) -> TwinRow:
    """Run a network at top clocks on every node."""
    run = measured(network, load_board(BOARD), nodes=nodes)
    shares = tuple(100 * run.share(kind) for kind in KINDS)
    return TwinRow(run.time_ms, shares, 100 * run.busy_ms / run.time_ms, run.host_ms, run.power_mw / 1e3)
