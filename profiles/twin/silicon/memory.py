# SPDX-License-Identifier: Apache-2.0
"""A simulated chip's memory system: DRAM behind a fabric that the GPU clock paces.

Checked against a Jetson TX2 measured at 1,144 configurations: bandwidth is limited by the memory clock with an efficiency that
falls as that clock rises (command timings are whole numbers of memory clocks, so not smoothly), by the GPU clock below a knee,
and the corner between the two is sharp for streams.
"""

from __future__ import annotations

import numpy as np

from .chip import Array, Memory

_FABRIC_LEAST = 0.35  # assumed: what the worst access pattern reaches of the fabric's rate


def bandwidth(memory: Memory, gpu_hz: Array, emc_hz: Array, pattern: Array) -> Array:
    """Sustained bytes per second; ``pattern`` is the share of a plain stream's rate that the access pattern reaches."""
    if memory.sensitivity != 1.0:
        pattern = pattern**memory.sensitivity
    dram = memory.dram_bytes_per_cycle * emc_hz * np.interp(emc_hz, memory.emc_hz, memory.efficiency) * pattern
    fabric = memory.fabric_bytes_per_cycle * gpu_hz * np.minimum(1.0, _FABRIC_LEAST + (1.0 - _FABRIC_LEAST) * pattern)
    ratio = dram / fabric
    return np.asarray(dram / (1.0 + ratio**memory.corner) ** (1 / memory.corner))


def round_trip(memory: Memory, gpu_hz: Array, emc_hz: Array) -> Array:
    """Seconds from an SM's load to its data, missing everywhere: analogue parts, GPU fabric and memory clocks."""
    return np.asarray(memory.latency_s + memory.latency_gpu_cycles / gpu_hz + memory.latency_emc_cycles / emc_hz)
