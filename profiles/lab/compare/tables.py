# SPDX-License-Identifier: Apache-2.0
"""Tables of measurements that version 2 of the simulated chips was calibrated on, beside those of :mod:`.boards`.

Each is one quantity of a real board and what a chip makes of it. A chip is compared as it is: nominal, without noise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from ....kernels.network import KernelInvocation, Network
from ...board import load_board
from ...reference import reference_network
from ...twin.silicon.chip import Array, Chip, Clocks
from ...twin.silicon.execution import execute
from ...twin.silicon.host import clock_factor
from ...twin.silicon.passes import Pass
from ...twin.silicon.silicon import Silicon
from ...twin.silicon.voltage import Variation
from ..paper.table1 import PAPER
from .fit import numbers, product, read_rows
from .networks import inception_v3, resnet50
from .orin_nano import LATENCIES, WORKLOADS, runtime

SWEEPS = "profiling.csv"
MLPERF = "nvidia_jetson_mlperf_with_freq_config.csv"
LAUNCHES = "ncu_kernels.csv"
FRAMES = "yolov8_1800_frames.csv"
GEMMS = "thor_gemm.csv"
TOKENS = "hydra_ae_quick_reference.csv"
_BATCHES = (1, 2, 4, 8)
_TOKEN_BYTES = 7.6e9  # the weights of Qwen2.5-7B in eight bits, read once for each token
_TOKEN_OPERATIONS = 3.0  # for each byte: unpacking, scaling, multiplying
_LONG_NS = 100e3


@dataclass(frozen=True)
class Table:
    """One quantity of a real board.

    Attributes:
        name: what was measured, with its unit, and where.
        measured: shape ``(points,)``.
        simulate: the same as a chip has it.
    """

    name: str
    measured: Array
    simulate: Callable[[Chip], Array]

    def errors(self, chip: Chip) -> Array:
        """Relative errors, shape ``(points,)``."""
        return np.asarray(self.simulate(chip) / self.measured - 1.0)


def tables(board: str, folder: Path) -> list[Table]:
    """The tables of one board.

    Raises:
        ComparisonDataError: they are not in the folder, or are no such tables.
    """
    return [table for make in TABLES.get(board, ()) for table in make(folder)]


def _total_w(silicon: Silicon, rails: Mapping[str, Array]) -> Array:
    board = load_board(silicon.board)
    return np.asarray(np.sum([rails[rail] for rail in board.total_rails], axis=0))


def _inception(board: str, name: str, folder: Path) -> Iterator[Table]:
    rows = [row for row in read_rows(folder, SWEEPS) if row["Directory"] == name and int(row["Batch Size"]) in _BATCHES]
    gpu, seconds, joules, batch = (numbers(rows, column, SWEEPS) for column in ("Frequency", "Latency", "Energy", "Batch Size"))
    top = load_board(board).grid.top

    def run(watts: bool, chip: Chip) -> Array:
        silicon = Silicon(None, board, chip=chip)
        result = np.zeros(len(rows))
        for size in _BATCHES:
            mine = batch == size
            clocks = Clocks(np.full(mine.sum(), 1e3 * top.cpu_khz), gpu[mine], np.full(mine.sum(), float(top.emc_hz)))
            done = execute(inception_v3(size), silicon, clocks)
            result[mine] = _total_w(silicon, done.rail_energy_j) / done.latency_s if watts else done.latency_s
        return result

    yield Table("Inception V3 over GPU clocks, batch 1 to 8: s", seconds, partial(run, False))
    yield Table("Inception V3 over GPU clocks, batch 1 to 8: W", joules / seconds, partial(run, True))


def _mlperf(board: str, systems: Sequence[str], folder: Path) -> Iterator[Table]:
    rows = [
        row
        for row in read_rows(folder, MLPERF)
        if row["system"] in systems and row["model"] == "resnet50" and row["scenario"] == "SingleStream"
    ]
    rows = [row for row in rows if row["gpu_hz"] or "MaxQ" not in row["system"]]  # of the others, clocks are not known
    gpu, emc, ms = (numbers(rows, column, MLPERF) for column in ("gpu_hz", "emc_hz", "mean_latency_ms"))
    top = load_board(board).grid.top
    clocks = Clocks(
        np.full(len(rows), 1e3 * top.cpu_khz),
        np.where(np.isfinite(gpu), gpu, top.gpu_hz),
        np.where(np.isfinite(emc), emc, top.emc_hz),
    )

    def run(chip: Chip) -> Array:
        if chip.detail is None:  # version 1 has no engine, and launches operator by operator
            return 1e3 * execute(_typed(resnet50(), "int8"), Silicon(None, board, chip=chip), clocks).latency_s
        return 1e3 * execute(resnet50(), Silicon(None, board, chip=chip, engine="tensorrt", dtype="int8"), clocks).latency_s

    yield Table("ResNet-50 under TensorRT in eight bits: ms", ms, run)


def _typed(network: Network, dtype: str) -> Network:
    return replace(network, calls=tuple(replace(call, dtype=dtype) for call in network.launches))


def _paper(_: Path) -> Iterator[Table]:
    measured = np.array([row.time_ms for row in PAPER.values()])

    networks = [reference_network(name) for name in PAPER]

    def run(chip: Chip) -> Array:
        silicon, clocks = Silicon(None, "agx-xavier", chip=chip), Clocks.of([load_board("agx-xavier").grid.top])
        return np.array([1e3 * float(execute(network, silicon, clocks).latency_s[0]) for network in networks])

    yield Table("ten networks at top clocks (MIRAGE, Table 1): ms", measured, run)


def _tokens(board: str, platform: str, folder: Path) -> Iterator[Table]:
    rows = [row for row in read_rows(folder, TOKENS) if (row["platform"], row["dtype"]) == (platform, "Q8_0")]
    watts, ms = (numbers(rows, column, TOKENS) for column in ("decode_power_w_mean", "itl_ms_mean"))

    def run(chip: Chip) -> Array:
        silicon, clocks = Silicon(None, board, chip=chip), Clocks.of([load_board(board).grid.top])
        operations = _TOKEN_OPERATIONS * _TOKEN_BYTES
        moved = _TOKEN_BYTES
        work = Pass.of(1, l2_bytes=moved, dram_bytes=moved, operations=operations, cycles=operations / chip.lanes)
        done = silicon.launch(work, clocks)
        rails = silicon.idle_rails_w(clocks)
        seconds = ms / 1e3
        for rail, joules in done.energy_j.items():
            rails[rail] = rails[rail] + joules[0] / seconds
        for rail, power in silicon.issue_rails_w(clocks).items():
            rails[rail] = rails[rail] + power
        return _total_w(silicon, rails)

    yield Table("Qwen2.5-7B decoding in eight bits: W", watts, run)


def _pointwise(folder: Path) -> Iterator[Table]:
    """Elementwise kernels whose grid says how many elements they worked on; the shorter ones are their launch."""
    kinds = {"GeluCUDA": ("gelu", 1), "CUDAFunctor_add": ("add", 2), "AUnaryFunctor": ("mul", 1)}
    rows, calls = [], []
    for row in read_rows(folder, LAUNCHES):
        kind = next((kind for text, kind in kinds.items() if text in row["kernel"]), None)
        if kind is None or "vectorized" not in row["kernel"] or float(row["duration_ns"]) < _LONG_NS:
            continue
        elements = 512 * prod(map(int, re.findall(r"\d+", row["grid"])))
        dtype = "float16" if "fp16" in row["network"] else "float32"
        calls.append(KernelInvocation(kind[0], "", ((elements,),) * kind[1], (elements,), dtype, {}))
        rows.append(row)
    ns, mhz = numbers(rows, "duration_ns", LAUNCHES), numbers(rows, "gpc_mhz", LAUNCHES)
    clocks = Clocks(np.full(len(rows), 1.728e9), 1e6 * mhz, np.full(len(rows), 3.199e9))

    def run(chip: Chip) -> Array:
        own = replace(chip, detail=replace(chip.detail, limiter=None)) if chip.detail is not None else chip
        return 1e9 * Silicon(None, "orin-nano-8gb", chip=own).pairs(calls, clocks).seconds

    yield Table("elementwise kernels (Nsight Compute): ns", ns, run)
    sgemm = [row for row in read_rows(folder, LAUNCHES) if "ampere_sgemm_128x64" in row["kernel"]]
    seen = np.array([np.median(numbers(sgemm, "gpc_mhz", LAUNCHES))])

    def share(chip: Chip) -> Array:
        return 1020.0 * _clock_share(chip, "orin-nano-8gb", product(1024, 1024, 8192))

    yield Table("clock of SGEMMs under a lock of 1020 MHz: MHz", seen, share)


def _workloads(folder: Path) -> Iterator[Table]:
    """Four workloads over its clocks, as :mod:`.orin_nano` compares them."""
    rows = list(read_rows(folder, LATENCIES))
    emc, gpu, us = (numbers(rows, name, LATENCIES) for name in ("emc_mhz", "gpu_mhz", "p50_us"))
    names = np.array([row["workload"] for row in rows])
    clocks = Clocks(np.full(len(rows), 1.728e9), 1e6 * gpu, np.where(emc == 665, 665.6e6, 1e6 * emc))

    def run(name: str, chip: Chip) -> Array:
        silicon = Silicon(None, "orin-nano-8gb", chip=runtime(chip))
        return 1e6 * execute(WORKLOADS[name], silicon, clocks.take(np.flatnonzero(names == name))).latency_s

    for name in np.unique(names).tolist():
        yield Table(f"{name} over its clocks: us", us[names == name], partial(run, name))


def _clock_share(chip: Chip, board: str, call: KernelInvocation, *, zeros: bool = False) -> Array:
    """How much of its clock a kernel keeps, by how much longer it takes than without a limiter."""
    if chip.detail is None:
        return np.ones(1)
    clocks = Clocks.of([load_board(board).grid.top])
    free = replace(chip, detail=replace(chip.detail, limiter=None))
    times = [Silicon(None, board, chip=one).kernels([call], clocks, zeros=zeros).seconds[0] for one in (free, chip)]
    return np.asarray(times[0] / times[1])


def _gemms(folder: Path) -> Iterator[Table]:
    rows = [row for row in read_rows(folder, GEMMS) if "warm 4096^3" in row["case"] and row["dtype"] == "int8"]
    mhz, us, watts = (numbers(rows, column, GEMMS) for column in ("gpu_cap_mhz", "median_us", "vdd_gpu_w"))
    zeros = np.array(["zeros" in row["case"] for row in rows])
    call = product(4096, 4096, 4096, dtype="int8")
    clocks = Clocks(np.full(len(rows), 2.601e9), 1e6 * mhz, np.full(len(rows), 4.266e9))

    def run(power: bool, chip: Chip) -> Array:
        silicon = Silicon(None, "agx-thor", chip=chip)
        result = np.zeros(len(rows))
        for given in (False, True):
            mine = np.flatnonzero(zeros == given)
            done = silicon.kernels([call], clocks.take(mine), zeros=given)
            idle = silicon.idle_rails_w(clocks.take(mine))["VDD_GPU"]
            result[mine] = idle + done.energy_j["VDD_GPU"][0] / done.seconds[0] if power else 1e6 * done.seconds[0]
        return result

    yield Table("products of 4096 in eight bits, random and zeros: us", us, partial(run, False))
    yield Table("products of 4096 in eight bits, random and zeros: W", watts, partial(run, True))


def _frames(folder: Path) -> Iterator[Table]:
    """Video frames with decoding and Python in them: at the GPU's top clock it is the CPU that takes the time."""
    rows = [row for row in read_rows(folder, FRAMES) if float(row["gpu_hz"]) > 1.3e9]
    khz, ms, size = (numbers(rows, column, FRAMES) for column in ("cpu_khz", "ms_per_frame", "resolution"))
    top = np.array([ms[(size == one) & (khz == khz.max())][0] for one in size])
    clocks = Clocks(1e3 * khz, np.full(len(rows), 1.3005e9), np.full(len(rows), 3.199e9))

    def run(chip: Chip) -> Array:
        none = Variation.none(chip)
        return np.asarray(
            clock_factor(clocks, chip, none) / clock_factor(clocks.take(np.array([int(khz.argmax())])), chip, none)
        )

    yield Table("a frame over CPU clocks, beside one at the top clock", ms / top, run)


TABLES: Mapping[str, tuple[Callable[[Path], Iterator[Table]], ...]] = {
    "agx-xavier": (
        _paper,
        partial(_mlperf, "agx-xavier", ("AGX_Xavier_TRT", "AGX_Xavier_TRT_MaxQ")),
        partial(_tokens, "agx-xavier", "xavier"),
    ),
    "xavier-nx": (
        partial(_inception, "xavier-nx", "NX"),
        partial(_mlperf, "xavier-nx", ("Xavier_NX_TRT", "Xavier_NX_TRT_MaxQ")),
    ),
    "nano": (partial(_inception, "nano", "Nano"),),
    "agx-orin-64gb": (
        partial(_mlperf, "agx-orin-64gb", ("Orin_TRT", "Orin_TRT_MaxQ")),
        partial(_tokens, "agx-orin-64gb", "orin"),
        _frames,
    ),
    "orin-nx-16gb": (partial(_mlperf, "orin-nx-16gb", ("Orin_NX_TRT",)),),
    "orin-nano-8gb": (_pointwise, _workloads),
    "agx-thor": (_gemms,),
}
