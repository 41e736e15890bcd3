# SPDX-License-Identifier: Apache-2.0
"""Simulated and real Jetson AGX Thor: GPU power of a detector at three GPU clocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...twin.silicon.chip import Chip, Clocks
from ...twin.silicon.passes import CodePass
from ...twin.silicon.silicon import Silicon
from .fit import FittedQuantity, Report, numbers, read_rows

BOARD = "agx-thor"
POWER = "thor_gpu_power.csv"
LIMIT = 0.15
_CPU_HZ, _EMC_HZ = 2.601e9, 4.266e9
_WARM_C = 55.0


def _frame(chip: Chip) -> CodePass:
    cycles = np.array([5.5e6])
    return CodePass.of(1, cycles=cycles, l2_bytes=1.5e9, dram_bytes=0.6e9, overlap=3.0, operations=2.2 * cycles * chip.lanes)


def compare(folder: Path) -> Report:
    silicon = Silicon(None, BOARD)
    rows = list(read_rows(folder, POWER))
    gpu, per_s, offered, watts = (
        numbers(rows, name, POWER) for name in ("gpu_mhz", "completed_fps", "offered_fps_per_stream", "vdd_gpu_w")
    )
    clocks = Clocks(np.full(len(gpu), _CPU_HZ), 1e6 * gpu, np.full(len(gpu), _EMC_HZ))
    frame = silicon.launch(_frame(silicon.chip), clocks)
    simulated = silicon.idle_rails_w(clocks, _WARM_C)["VDD_GPU"] + per_s * frame.energy_j["VDD_GPU"][0]
    full = per_s < 0.97 * offered * numbers(rows, "K", POWER)
    return Report(
        BOARD,
        silicon.chip,
        "a detector on a Jetson AGX Thor (HyeonWooJang726/thor-mec-inference)",
        (
            FittedQuantity("VDD_GPU at a fixed frame rate, W", watts, simulated, None, LIMIT, every=True),
            FittedQuantity("frames a second where the GPU is full", per_s[full], 1.0 / frame.seconds[0][full], None, LIMIT),
        ),
        ("Only the GPU's rail, and its speed in this one program, were measured; all else is derived from the AGX Orin.",),
    )
