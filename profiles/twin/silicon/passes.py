# SPDX-License-Identifier: Apache-2.0
"""A kernel on the simulated GPU is one or more passes; this is what a pass asks of the machine, and how long that takes.

Compute, L2 and DRAM work overlap, imperfectly: t = (a^k + b^k + c^k)^(1/k), with k by the kind of code (measured whole networks
fit k between 2 and 4, streaming micro-benchmarks higher). Start-up, drain and serial dependencies do not overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .chip import Array, Chip, Clocks
from .memory import bandwidth, round_trip
from .voltage import Variation

_MEMORY_TRIPS = 2.0  # a kernel's first load and its last store wait for DRAM, whatever it does in between
_SHORTEST_S = 1e-12  # what a pass that does nothing is taken to last, so that nothing is divided by zero


@dataclass(frozen=True)
class Code:
    """How a kernel's code runs, whatever it is given.

    None of this is published. Each figure is what such a kernel plausibly does, and all of them together were set so that ten
    networks on the AGX Xavier take the times of MIRAGE's Table 1 (:mod:`jetdvfs.profiles.lab.paper.table1`). A chip whose
    framework is written otherwise says so in its file (``library``).

    Attributes:
        issue: share of the lanes' cycles in which an instruction is issued.
        serial_cycles: GPU cycles of dependent work that overlaps with nothing.
        round_trips: dependent DRAM round trips.
        pattern: the share of a plain stream's bandwidth that aligned accesses reach.
        unaligned: the same where accesses are not aligned to four elements.
        streamed: the share of what is moved that goes to DRAM although all of it would fit into the L2.
        overlap: the exponent k.
        toggling: energy of an operation, relative to a dense multiply-add on random data.
        resident: blocks that an SM runs at once.
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


@dataclass(frozen=True)
class Pass:
    """One launch of device code, for n kernel invocations at once (all arrays of shape ``(n,)``).

    Attributes:
        runs: whether the invocation has this pass.
        cycles: GPU cycles of the busiest SM when nothing else holds it up.
        serial_cycles: GPU cycles of dependent work that overlaps with nothing.
        round_trips: dependent DRAM round trips.
        l2_bytes: bytes between the SMs and the L2.
        dram_bytes: bytes to and from DRAM when the kernel is repeated on the same data.
        cold_bytes: further DRAM bytes when its parameters are not in the L2 yet.
        pattern: the share of a plain stream's bandwidth its accesses reach.
        overlap: the exponent k.
        operations: lane operations executed (useful or not), for energy.
        toggling: energy of an operation, relative to a dense multiply-add on random data.
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
    def of(
        cls,
        count: int,
        *,
        runs: ArrayLike = True,
        cycles: ArrayLike = 0.0,
        serial_cycles: ArrayLike = 0.0,
        round_trips: ArrayLike = 0.0,
        l2_bytes: ArrayLike = 0.0,
        dram_bytes: ArrayLike = 0.0,
        cold_bytes: ArrayLike = 0.0,
        pattern: ArrayLike = 1.0,
        overlap: ArrayLike = 3.0,
        operations: ArrayLike = 0.0,
        toggling: ArrayLike = 1.0,
    ) -> Pass:
        def column(value: ArrayLike) -> Array:
            return np.broadcast_to(np.asarray(value, np.float64), (count,))

        return cls(
            np.broadcast_to(np.asarray(runs, np.bool_), (count,)),
            *map(column, (cycles, serial_cycles, round_trips, l2_bytes, dram_bytes, cold_bytes, pattern, overlap)),
            *map(column, (operations, toggling)),
        )

    def moved(self, *, cold: bool) -> Array:
        """Bytes to and from DRAM."""
        return self.dram_bytes + self.cold_bytes if cold else self.dram_bytes

    def rows(self, index: NDArray[np.intp]) -> Pass:
        return Pass(*(getattr(self, name)[index] for name in Pass.__dataclass_fields__))

    def merged(self, where: NDArray[np.bool_], other: Pass) -> Pass:
        """This pass, replaced by ``other`` at the invocations ``where``."""
        return Pass(*(np.where(where, getattr(other, name), getattr(self, name)) for name in Pass.__dataclass_fields__))


def seconds(work: Pass, clocks: Clocks, chip: Chip, node: Variation, *, cold: bool, supply: Array | float = 1.0) -> Array:
    """How long a pass keeps the GPU; the pass's columns must broadcast against the clocks.

    ``supply`` is the share of the bandwidth that others leave to it.
    """
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
    """The GPU front end's pause between two launches that are both queued."""
    return np.asarray(node.launch * (chip.start.gap_s + chip.start.gap_cycles / clocks.gpu_hz))


def launches(passes: Sequence[Pass]) -> Array:
    """How many launches each invocation makes."""
    return np.asarray(sum(work.runs.astype(np.float64) for work in passes))
