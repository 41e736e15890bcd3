# SPDX-License-Identifier: Apache-2.0
"""A table as somebody might have measured it on a board, made by a formula."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jetdvfs.profiles.board import load_board

MAPPING = """
source: a formula
file: {file}
device: {board}
network: {{name: camera, workload: [size]}}
clocks:
  cpu_khz: {{column: cpu, unit: MHz}}
  gpu_hz: {{column: gpu, unit: MHz}}
time: {{column: [grab, infer], unit: {unit}}}
power: {{column: watts, unit: W}}
"""


def latency_ms(cpu_mhz: float, gpu_mhz: float) -> float:
    return float(10_000 / cpu_mhz + ((20_000 / gpu_mhz) ** 3 + 10.0**3) ** (1 / 3))


def power_w(cpu_mhz: float, gpu_mhz: float) -> float:
    return float(1.5 + 1.2 * (cpu_mhz / 1479) ** 2.2 + 3.5 * (gpu_mhz / 921.6) ** 2.4)


def write_table(folder: Path, *, file: str = "camera.csv", board: str = "nano", noise: float = 0.004) -> Path:
    """Write the table and its mapping into a folder; returns the mapping."""
    random = np.random.default_rng(3)
    grid = load_board(board).grid
    rows = ["size,cpu,gpu,grab,infer,watts"]
    for khz in grid.cpu_khz[2:]:
        for hz in grid.gpu_hz[1:]:
            cpu, gpu = khz / 1e3, hz / 1e6
            whole = latency_ms(cpu, gpu) * np.exp(noise * random.standard_normal())
            drawn = power_w(cpu, gpu) * np.exp(noise * random.standard_normal())
            rows.append(f"small,{cpu},{gpu},{0.2 * whole},{0.8 * whole},{drawn}")
    (folder / file).write_text("\n".join(rows) + "\n")
    mapping = folder / "camera.yaml"
    mapping.write_text(MAPPING.format(file=file, unit="ms", board=board))
    return mapping
