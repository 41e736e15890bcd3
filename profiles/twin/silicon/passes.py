# SPDX-License-Identifier: Apache-2.0
"""Passes of a kernel: demands on the machine, and time.

Compute, L2 and DRAM overlap imperfectly: t = (a^k + b^k + c^k)^(1/k), with k by the kind of code (measured networks fit 2 to 4,
streams more). Start-up, drain and serial dependencies do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from ....kernels.network import DTYPE_BYTES, KernelInvocation
from .chip import Array, Chip, Clocks, MemorySystem, VoltageCurve

_TRIM_HZ = 60e6
_TRIMS = 25
# Standard deviations of the factors' logarithms, in the order of Variation's fields, and how many of them a factor is away at
# most: set so that thirteen boards spread as those of MIRAGE, Figure 2, do.
_SPREAD = np.array([0.030, 0.040, 0.009, 0.007, 0.021, 0.014, 0.014, 0.22, 0.085, 0.055, 0.09])
_FARTHEST = 2.2
_GAIN_SPREAD = 0.010  # assumed: shunts of 1 %
_TRIM_SPREAD = 0.014  # assumed: about two of the regulator's steps
_ROUNDING = 1e-9  # of a regulator's step, so that a voltage that is one is not raised to the next


class Variation(Struct, frozen=True):
    """Factors of one node relative to the nominal chip, after MIRAGE's thirteen boards (Figure 2)."""

    issue: float  # host work
    launch: float  # start-up of a GPU kernel
    dram: float  # sustained DRAM bandwidth
    pipeline: float  # GPU cycles lost to arbitration
    gpu_volts: float
    cpu_volts: float
    soc_volts: float
    leakage: float
    soc_static: float
    switching: float  # energy per operation
    dram_energy: float
    gain: tuple[float, ...]  # shunt and sensor tolerance, by rail
    trim: tuple[float, ...]  # GPU voltage calibration along the clock's range, _TRIM_HZ apart

    @classmethod
    def of(cls, node: int, chip: Chip) -> Variation:
        random = np.random.default_rng([chip.seed, node])
        spread = random.standard_normal(len(_SPREAD))
        gain = np.exp(_GAIN_SPREAD * random.standard_normal(len(chip.rails)))
        factor = np.exp(np.clip(spread, -_FARTHEST, _FARTHEST) * _SPREAD)
        trim = np.exp(_TRIM_SPREAD * random.standard_normal(_TRIMS))
        issue, launch, dram, pipeline, gpu, cpu, soc, leakage, static, switching, energy = factor.tolist()
        return cls(
            *(issue, launch, dram, pipeline, gpu, cpu, soc, leakage, static, switching, energy),
            gain=tuple(gain.tolist()),
            trim=tuple(trim.tolist()),
        )

    @classmethod
    def none(cls, chip: Chip) -> Variation:
        return cls(*(1.0,) * 11, gain=(1.0,) * len(chip.rails), trim=(1.0,) * _TRIMS)


def _steps(volts: Array, millivolts: float) -> Array:
    step = millivolts / 1e3
    return np.asarray(np.ceil(volts / step - _ROUNDING) * step)


def _curve(curve: VoltageCurve, hz: Array) -> Array:
    above = np.maximum(hz - curve.knee_hz, 0.0) / curve.span_hz
    return np.asarray(curve.volts + curve.linear * above + curve.square * above**2)


def gpu_volts(chip: Chip, gpu_hz: Array, node: Variation) -> Array:
    """Voltage of the GPU's rail, calibrated by chip, uneven by clock."""
    factor = node.gpu_volts * np.interp(gpu_hz, _TRIM_HZ * np.arange(len(node.trim)), node.trim)
    return _steps(factor * _curve(chip.voltages.gpu, gpu_hz), chip.voltages.gpu.step_mv)


def cpu_volts(chip: Chip, cpu_hz: Array, node: Variation) -> Array:
    return _steps(node.cpu_volts * _curve(chip.voltages.cpu, cpu_hz), chip.voltages.cpu.step_mv)


def soc_volts(chip: Chip, emc_hz: Array, node: Variation) -> Array:
    """Voltage of the memory controller's rail: coarse levels by memory clock."""
    levels = chip.voltages.soc
    return _steps(node.soc_volts * np.interp(emc_hz, levels.emc_hz, levels.volts), levels.step_mv)


_FABRIC_LEAST = 0.35  # assumed: share of the fabric's rate with the worst access pattern


def bandwidth(memory: MemorySystem, gpu_hz: Array, emc_hz: Array, pattern: Array) -> Array:
    """Sustained bytes/s; ``pattern`` is the share of a plain stream's rate."""
    if memory.sensitivity != 1.0:
        pattern = pattern**memory.sensitivity
    dram = memory.dram_bytes_per_cycle * emc_hz * np.interp(emc_hz, memory.emc_hz, memory.efficiency) * pattern
    fabric = memory.fabric_bytes_per_cycle * gpu_hz * np.minimum(1.0, _FABRIC_LEAST + (1.0 - _FABRIC_LEAST) * pattern)
    ratio = dram / fabric
    return np.asarray(dram / (1.0 + ratio**memory.corner) ** (1 / memory.corner))


def round_trip(memory: MemorySystem, gpu_hz: Array, emc_hz: Array) -> Array:
    """Seconds of an SM's load that misses everywhere."""
    return np.asarray(memory.latency_s + memory.latency_gpu_cycles / gpu_hz + memory.latency_emc_cycles / emc_hz)


WARP = 32.0  # threads that execute together, on every NVIDIA GPU
VECTOR = 4  # elements that a load takes at once where everything is aligned: 16 bytes of single precision
BLOCK, SMALL_BLOCK = 512.0, 256.0  # threads in a block of a plain kernel, and of one that needs more registers
# Rise of the bandwidth with requesting threads: from the least, to nearly all with some times a tenth of those that fit.
_LEAST_BANDWIDTH, _MOST_BANDWIDTH, _HALF_COVERED = 0.06, 1.06, 0.10
_MANY_ROUNDS, _WORST_TAIL = 12, 1.9  # rounds of blocks after which the last one is negligible; it never costs more


def column(invocations: Sequence[KernelInvocation], value: Callable[[KernelInvocation], float]) -> Array:
    return np.fromiter(map(value, invocations), np.float64, len(invocations))


def number(call: KernelInvocation, name: str, default: float) -> float:
    value = call.params.get(name, default)
    return float(value) if isinstance(value, (int, float)) else default


def element(call: KernelInvocation) -> int:
    return DTYPE_BYTES[call.dtype]


def rates(chip: Chip, calls: Sequence[KernelInvocation]) -> Array:
    """Multiply-adds per lane and cycle in products, and energy per cycle, shape ``(2, len(calls))``."""
    found = [chip.rate(call.dtype) for call in calls]
    return np.array([[rate.matrix for rate in found], [rate.energy for rate in found]], np.float64)


def read_elements(call: KernelInvocation) -> float:
    """Elements read, a broadcast operand once."""
    return float(sum(prod(shape) for shape in call.inputs))


def utilisation(chip: Chip, threads: Array) -> Array:
    """Share of the bandwidth that this number of threads can request."""
    return np.asarray(
        np.minimum(
            1.0, _LEAST_BANDWIDTH + _MOST_BANDWIDTH * threads / (threads + _HALF_COVERED * (chip.sm_count * chip.sm_threads))
        )
    )


def tail(chip: Chip, blocks: Array, resident: float) -> Array:
    """Factor of a last round of blocks that leaves SMs idle."""
    slots = chip.sm_count * resident
    rounds = np.ceil(blocks / slots)
    return np.asarray(np.where(rounds > _MANY_ROUNDS, 1.0, rounds * slots / np.maximum(blocks, 1.0)).clip(1.0, _WORST_TAIL))


_MEMORY_TRIPS = 2.0  # a kernel's first load and its last store wait for DRAM
_SHORTEST_S = 1e-12  # shortest pass, against division by zero


class KernelCode(Struct, frozen=True):
    """Constants of a kernel's code.

    Fitted together so that ten networks on the AGX Xavier take the times of MIRAGE's Table 1
    (:mod:`jetdvfs.profiles.lab.paper.published`). A chip's file may change them (``library``).

    Attributes:
        issue: share of the lanes' cycles with an instruction.
        serial_cycles: dependent GPU cycles without overlap.
        round_trips: dependent DRAM round trips.
        pattern: share of a plain stream's bandwidth with aligned accesses.
        unaligned: the same without alignment to four elements.
        streamed: share of traffic to DRAM even if all fits the L2.
        overlap: the exponent k.
        toggling: energy of an operation, relative to a dense multiply-add on random data.
        resident: blocks per SM at once.
    """

    issue: float = 1.0
    serial_cycles: float = 0.0
    round_trips: float = 0.0
    pattern: float = 1.0
    unaligned: float = 1.0
    streamed: float = 0.0
    overlap: float = 3.0
    toggling: float = 1.0
    resident: float = 8.0


_PLAIN = KernelCode()
_OF_CODE = ("serial_cycles", "round_trips", "pattern", "overlap", "toggling")


class CodePass(Struct, frozen=True):
    """One launch of device code, for n invocations at once; arrays of shape ``(n,)``.

    Attributes:
        runs: True if the invocation has this pass.
        cycles: GPU cycles of the busiest SM.
        l2_bytes: bytes between the SMs and the L2.
        dram_bytes: DRAM bytes of a repeated kernel.
        cold_bytes: further DRAM bytes without parameters in the L2.
        operations: executed lane operations, for energy.
        serial_cycles, round_trips, pattern, overlap, toggling: see :class:`KernelCode`.
    """

    runs: NDArray[np.bool_]
    cycles: Array
    serial_cycles: Array
    round_trips: Array
    l2_bytes: Array
    dram_bytes: Array
    cold_bytes: Array
    pattern: Array
    overlap: Array
    operations: Array
    toggling: Array

    @classmethod
    def of(cls, count: int, code: KernelCode = _PLAIN, *, runs: ArrayLike = True, **figures: ArrayLike) -> CodePass:
        """Pass of ``count`` invocations; missing figures are the code's or 0."""
        of_code = {name: getattr(code, name) for name in _OF_CODE}
        every = {**dict.fromkeys(cls.__struct_fields__[1:], 0.0), **of_code, **figures}
        columns = {name: np.broadcast_to(np.asarray(value, np.float64), (count,)) for name, value in every.items()}
        return cls(np.broadcast_to(np.asarray(runs, np.bool_), (count,)), **columns)

    @classmethod
    def moving(
        cls,
        chip: Chip,
        code: KernelCode,
        instructions: Array,
        moved: Array,
        *,
        blocks: Array | None = None,
        longer: Array | float = 1.0,
        cycles: Array | float = 0.0,
        **figures: ArrayLike,
    ) -> CodePass:
        """Pass by executed instructions and moved bytes."""
        busy = instructions / chip.lanes / code.issue
        if blocks is not None:  # a partly empty last round takes as long as a full one
            busy = busy * tail(chip, blocks, code.resident)
        dram = moved * chip.missing(moved) + code.streamed * moved
        usual = {"cycles": busy * longer + cycles, "l2_bytes": moved, "dram_bytes": dram, "operations": instructions}
        return cls.of(len(instructions), code, **{**usual, **figures})

    def moved(self, *, cold: bool) -> Array:
        return self.dram_bytes + self.cold_bytes if cold else self.dram_bytes

    def rows(self, index: NDArray[np.intp]) -> CodePass:
        return CodePass(*(getattr(self, name)[index] for name in CodePass.__struct_fields__))

    def merged(self, where: NDArray[np.bool_], other: CodePass) -> CodePass:
        return CodePass(*(np.where(where, getattr(other, name), getattr(self, name)) for name in CodePass.__struct_fields__))


def seconds(work: CodePass, clocks: Clocks, chip: Chip, node: Variation, *, cold: bool, supply: Array | float = 1.0) -> Array:
    """GPU time of a pass; ``supply`` is the remaining share of the bandwidth."""
    gpu, emc = clocks.gpu_hz, clocks.emc_hz
    moved = work.moved(cold=cold)
    execute = node.pipeline * work.cycles / gpu
    cache = work.l2_bytes / (chip.l2_bytes_per_cycle * gpu)
    dram = moved / (node.dram * supply * bandwidth(chip.memory, gpu, emc, work.pattern))
    longest = np.maximum(np.maximum(execute, cache), np.maximum(dram, _SHORTEST_S))
    k = work.overlap
    together = longest * ((execute / longest) ** k + (cache / longest) ** k + (dram / longest) ** k) ** (1.0 / k)
    start = node.launch * (chip.start.start_s + chip.start.start_cycles / gpu)
    trips = (_MEMORY_TRIPS + work.round_trips) * round_trip(chip.memory, gpu, emc)
    return np.asarray(together + start + work.serial_cycles / gpu + trips)


def gap_seconds(clocks: Clocks, chip: Chip, node: Variation) -> Array:
    return np.asarray(node.launch * (chip.start.gap_s + chip.start.gap_cycles / clocks.gpu_hz))


def launches(passes: Sequence[CodePass]) -> Array:
    return np.asarray(sum(work.runs.astype(np.float64) for work in passes))
