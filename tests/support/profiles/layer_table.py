# SPDX-License-Identifier: Apache-2.0
"""A table of layers as that of a real AGX Orin is published, of networks that there are not."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from jetdvfs.profiles.lab.compare.agx_orin import LAYERS, MODES

COLUMNS = (
    "calib_dir", "model", "batch", "precision", "thermal_profile", "date", "fusion_pattern", "op_type", "flops", "total_bytes",
    "lat_mean_ms", "nodes",
)  # fmt: skip


def write_layers(folder: Path) -> Path:
    """Three networks whose layers take an interpreter's time, their operations and their bytes."""
    random, lines = np.random.default_rng(3), [",".join(COLUMNS)]
    for model in ("one", "two", "three"):
        sizes = np.exp(random.uniform(np.log(1e6), np.log(1e9), 40))
        for batch in (1, 16):
            for name, mode in MODES.items():
                for flops in sizes * batch:
                    took = 0.3 * 2.2e9 / mode.cpu_hz + 2e3 * flops / (mode.sm_count * 256 * mode.gpu_hz) + flops / 50 / 2e8
                    case = (f"run_{name}", model, batch, "FP32", name, "today", "Conv2d_BatchNorm2d", "conv2d")
                    row = (*case, int(flops), int(flops / 50))
                    lines.append(",".join(map(str, (*row, f"{took:.6f}", "conv|bn"))))
    (folder / LAYERS).write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))
    return folder / LAYERS
