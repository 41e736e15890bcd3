# SPDX-License-Identifier: Apache-2.0
"""Simulated and real Jetson TX2 at 1,144 configurations.

Sources: mixbench (a stream of 134 MB, varied multiply-adds per element, four types) and its rail power; rail power of a VGG
network over GPU clocks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from msgspec import Struct

from ....kernels.units import AXES
from ...reference import reference_network
from ...twin.silicon.chip import Array, Chip, Clocks
from ...twin.silicon.passes import CodePass
from ...twin.silicon.silicon import Silicon, execute
from .fit import FittedQuantity, Report, held_out, numbers, read_rows

BOARD = "tx2"
TIMES = "mixbench_tx2_roofline_long.csv.gz"
POWER = "tegrastats_summary_mixbench_tx2.csv"
VGG = "tx2_gpu_power_vgg.csv"
TIME_LIMIT, POWER_LIMIT = 0.10, 0.15
RAILS = ("VDD_SYS_GPU", "VDD_SYS_DDR", "VDD_SYS_SOC", "VDD_SYS_CPU", "VDD_IN")
_WARM_C = 42.0  # the GPU's temperature while mixbench ran; VGG kept it a little warmer
_VGG_C = 50.0
_VGG_CPU_HZ, _VGG_EMC_HZ = 2.0352e9, 1.866e9
_ELEMENTS = 32.0 * 2**20


class MixbenchType(Struct, frozen=True):
    """Element type of the benchmark's compiled loop.

    Attributes:
        bytes_each: read and written per element.
        loop: issue slots per multiply-add, with the loop's own.
        cycles_each: further lane cycles per element.
        pattern: bandwidth relative to 4-byte accesses.
        overlap: sharpness of the roofline's corner.
    """

    dtype: str
    bytes_each: float
    loop: float
    cycles_each: float
    pattern: float
    overlap: float


MIXBENCH_TYPES = {
    "fp32": MixbenchType("float32", 4.0, 1.07, 0.85, 1.0, 6.8),
    "fp64": MixbenchType("float64", 8.0, 1.014, 19.0, 1.1, 30.0),
    "fp16": MixbenchType("float16", 4.0, 1.10, 2.2, 1.0, 9.8),
    "int32": MixbenchType("int32", 4.0, 1.024, 0.0, 1.0, 21.0),
}


def mixbench(chip: Chip, element: MixbenchType, iterations: Array) -> CodePass:
    """The benchmark's kernels; ``iterations`` multiply-adds on each 4 bytes (8 for double precision)."""
    rate = chip.rate(element.dtype)
    packed = 2.0 if element.dtype == "float16" else 1.0  # two halves in each 4 bytes
    cycles = _ELEMENTS * (packed * element.loop * iterations / rate.vector + element.cycles_each)
    moved = _ELEMENTS * element.bytes_each
    return CodePass.of(
        len(iterations),
        cycles=cycles / chip.lanes,
        l2_bytes=moved,
        dram_bytes=moved,
        pattern=element.pattern,
        overlap=element.overlap,
        operations=cycles * rate.energy,
    )


def compare(folder: Path) -> Report:
    silicon = Silicon(None, BOARD)
    return Report(
        BOARD,
        silicon.chip,
        "mixbench and a VGG network on a Jetson TX2 (dipayan2/osldvfs, thynics/jetson_dvfs)",
        (*_times(folder, silicon), *_mixbench_power(folder, silicon), *_vgg_power(folder, silicon)),
        (
            "Times are medians over the CPU clocks: each kernel was timed once, and one in fifteen is a slow outlier.",
            "VGG: the simulated network is VGG-16, batch 1, single precision; the measured one's framework is not known.",
        ),
    )


def _times(folder: Path, silicon: Silicon) -> list[FittedQuantity]:
    rows = list(read_rows(folder, TIMES))
    gpu, emc, iterations, ms = (numbers(rows, name, TIMES) for name in ("gpu_hz", "emc_hz", "compute_iters", "time_ms"))
    kinds = np.array([row["precision"] for row in rows])
    fits = []
    for name, element in MIXBENCH_TYPES.items():
        mine = kinds == name
        axes = [np.unique(values[mine], return_inverse=True) for values in (iterations, gpu, emc)]
        cells: dict[tuple[int, ...], list[float]] = {}
        for *cell, value in zip(*(inverse.tolist() for _, inverse in axes), ms[mine].tolist(), strict=True):
            cells.setdefault(tuple(cell), []).append(value)
        at = np.array(list(cells))
        measured = np.array([np.median(values) for values in cells.values()])
        (work_of, _), (gpu_of, _), (emc_of, _) = axes
        gpus, emcs = np.meshgrid(gpu_of, emc_of, indexing="ij")
        clocks = Clocks(np.full(gpus.size, _VGG_CPU_HZ), gpus.ravel(), emcs.ravel())
        seconds = silicon.launch(mixbench(silicon.chip, element, work_of), clocks).seconds.reshape(-1, *gpus.shape)
        simulated = 1e3 * seconds[tuple(at.T)]
        kept = held_out(gpu_of[at[:, 1]], emc_of[at[:, 2]])
        fits.append(FittedQuantity(f"mixbench {name}, ms", measured, simulated, kept, TIME_LIMIT))
    return fits


def _mixbench_power(folder: Path, silicon: Silicon) -> list[FittedQuantity]:
    rows = list(read_rows(folder, POWER))
    cpu, gpu, emc = (numbers(rows, name, POWER) for name in AXES)
    clocks = Clocks(cpu * 1e3, gpu, emc)
    iterations = np.unique(numbers(list(read_rows(folder, TIMES)), "compute_iters", TIMES))
    seconds = np.zeros(len(clocks))
    energy = {rail: np.zeros(len(clocks)) for rail in silicon.busy_rails}
    for element in MIXBENCH_TYPES.values():
        activity = silicon.launch(mixbench(silicon.chip, element, iterations), clocks)
        seconds += activity.seconds.sum(axis=0)
        for rail, joules in activity.energy_j.items():
            energy[rail] += joules.sum(axis=0)
    watts = silicon.idle_rails_w(clocks, _WARM_C)
    for part in ({rail: joules / seconds for rail, joules in energy.items()}, silicon.issue_rails_w(clocks)):
        for rail, power in part.items():
            watts[rail] = watts[rail] + power
    fits = []
    for rail in RAILS:
        measured = numbers(rows, f"{rail}_mW_busy_mean", POWER) / 1e3
        there = np.isfinite(measured)
        kept = held_out(gpu, emc)[there]
        fits.append(FittedQuantity(f"mixbench {rail}, W", measured[there], watts[rail][there], kept, _limit(rail)))
    return fits


def _vgg_power(folder: Path, silicon: Silicon) -> list[FittedQuantity]:
    rows = list(read_rows(folder, VGG))
    gpu = numbers(rows, "gpu_hz", VGG)
    clocks = Clocks(np.full(len(gpu), _VGG_CPU_HZ), gpu, np.full(len(gpu), _VGG_EMC_HZ))
    run = execute(reference_network("vgg16"), silicon, clocks, _VGG_C)
    watts = {rail: joules / run.latency_s for rail, joules in run.rail_energy_j.items()}
    waiting = 1.0 - run.host_busy_s / run.latency_s
    for rail, power in silicon.issue_rails_w(clocks).items():
        watts[rail] = watts[rail] + power * waiting
    return [
        FittedQuantity(f"VGG {rail}, W", numbers(rows, _column(rail), VGG) / 1e3, watts[rail], None, _limit(rail))
        for rail in RAILS
    ]


def _column(rail: str) -> str:
    return f"{rail.lower()}_mw"


def _limit(rail: str) -> float | None:
    return POWER_LIMIT if rail in ("VDD_SYS_GPU", "VDD_SYS_DDR") else None
