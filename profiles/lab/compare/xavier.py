# SPDX-License-Identifier: Apache-2.0
"""Simulated Jetson AGX Xavier and the paper it was fitted to."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...reference import reference_network
from ...twin.silicon.chip import load_chip
from ..paper.published import PAPER, TOLERANCE, measure
from .fit import FittedQuantity, Report

BOARD = "agx-xavier"


def compare(_: Path) -> Report:
    """Compare with the published table."""
    rows = {name: measure(reference_network(name)) for name in PAPER}
    measured = np.array([paper.time_ms for paper in PAPER.values()])
    simulated = np.array([rows[name].time_ms for name in PAPER])
    theirs = np.array([paper.shares[0] / paper.all_kernels for paper in PAPER.values()])
    ours = np.array([rows[name].shares[0] / rows[name].all_kernels for name in PAPER])
    return Report(
        BOARD,
        load_chip(BOARD),
        "MIRAGE (SEC '21), Table 1",
        (
            FittedQuantity("inference time at top clocks, ms", measured, simulated, None, TOLERANCE, every=True),
            FittedQuantity("convolutions' share of all kernels' time", theirs, ours),
        ),
        ("The simulated figures are medians over thirteen individuals, as the paper's thirteen boards.",),
    )
