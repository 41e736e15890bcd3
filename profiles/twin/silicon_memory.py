# SPDX-License-Identifier: Apache-2.0
"""The simulated chip's memory system: LPDDR4x behind a fabric that the GPU clock paces.

Checked against a Jetson TX2 measured at 1,144 configurations: bandwidth is limited by the memory clock with an efficiency that
falls as that clock rises, by the GPU clock below a knee near 700 MHz, and the corner between the two is sharp for streams.
"""

from __future__ import annotations

import numpy as np

from .silicon_chip import L2_BYTES, Array

_DRAM_BYTES_PER_CYCLE = 64.0
_FABRIC_BYTES_PER_CYCLE = 160.0
# Command timings are whole numbers of memory clocks, so efficiency is not a smooth function of the clock.
_EMC_HZ = np.array([204e6, 408e6, 665.6e6, 800e6, 1065.6e6, 1331.2e6, 1600e6, 1866e6, 2133e6])
_EMC_EFFICIENCY = np.array([0.902, 0.908, 0.899, 0.881, 0.886, 0.867, 0.848, 0.846, 0.829])


def bandwidth(gpu_hz: Array, emc_hz: Array, pattern: Array) -> Array:
    """Sustained bytes per second; ``pattern`` is the share of a plain stream's rate that the access pattern reaches."""
    dram = _DRAM_BYTES_PER_CYCLE * emc_hz * np.interp(emc_hz, _EMC_HZ, _EMC_EFFICIENCY) * pattern
    fabric = _FABRIC_BYTES_PER_CYCLE * gpu_hz * np.minimum(1.0, 0.35 + 0.65 * pattern)
    ratio = dram / fabric
    return np.asarray(dram / (1.0 + ratio**6) ** (1 / 6))


def round_trip(gpu_hz: Array, emc_hz: Array) -> Array:
    """Seconds from an SM's load to its data, missing everywhere: analogue parts, GPU fabric and memory clocks."""
    return np.asarray(95e-9 + 210.0 / gpu_hz + 130.0 / emc_hz)


def missing(footprint: Array, capacity: float = L2_BYTES) -> Array:
    """The share of repeated accesses to ``footprint`` bytes that leave the L2."""
    ratio = footprint / capacity
    return np.asarray(np.clip((ratio - 0.55) / 1.1, 0.0, 1.0))
