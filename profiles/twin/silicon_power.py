# SPDX-License-Identifier: Apache-2.0
"""Where the simulated board's power goes: idle power of each rail, and the energy of work above it.

Switching energy goes with the square of the rail's voltage, leakage with its cube and exponentially with temperature. Absolute
levels: an idle AGX Xavier at top clocks (GPU 1.16, CPU 0.39, SOC 2.5, VDDRQ 0.19 plus the memory clock's part, SYS5V 2.7 W).
"""

from __future__ import annotations

import numpy as np

from .silicon_chip import Array, Clocks, Variation, cpu_volts, gpu_volts, soc_volts
from .silicon_passes import Pass

_OPERATION_J = 23e-12  # at 1 V
_L2_BYTE_J = 15e-12
_FABRIC_BYTE_J = 14e-12
_SOC_BYTE_J = 17e-12
_DRAM_BYTE_J = 21e-12
_ACTIVE_GPU_J = 2.3e-9  # per GPU cycle while a kernel runs, at 1 V
_IDLE_GPU_J = 0.46e-9
_ACTIVE_CORE_J = 0.76e-9  # per CPU cycle of the thread that issues work, at 1 V


def _leakage(watts: float, volts: Array, temperature_c: float, factor: float) -> Array:
    return np.asarray(factor * watts * volts**3 * np.exp((temperature_c - 45.0) / 38.0))


def idle_rails_w(clocks: Clocks, chip: Variation, temperature_c: float) -> dict[str, Array]:
    """Power of each rail while nothing runs, at these clocks."""
    gpu, cpu = gpu_volts(clocks.gpu_hz, chip), cpu_volts(clocks.cpu_hz, chip)
    soc = soc_volts(clocks.emc_hz, chip)
    return {
        "GPU": _leakage(0.90, gpu, temperature_c, chip.leakage) + chip.switching * _IDLE_GPU_J * gpu**2 * clocks.gpu_hz,
        "CPU": _leakage(0.20, cpu, temperature_c, chip.leakage) + 0.02 + 0.060e-9 * cpu**2 * clocks.cpu_hz,
        "SOC": chip.soc_static
        * (_leakage(1.1, soc, temperature_c, chip.leakage**0.5) + 0.62 + 0.98e-9 * soc**2 * clocks.emc_hz),
        "VDDRQ": chip.dram_energy * (0.06 + 0.16e-9 * clocks.emc_hz),
        "CV": np.full(clocks.gpu_hz.shape, 0.15 * chip.leakage),
        "SYS5V": np.full(clocks.gpu_hz.shape, 2.70),
    }


def pass_energy_j(work: Pass, busy_s: Array, clocks: Clocks, chip: Variation, *, cold: bool) -> dict[str, Array]:
    """Energy above idle of a pass that keeps the GPU for ``busy_s``, on the rails that it loads."""
    gpu = gpu_volts(clocks.gpu_hz, chip) ** 2
    soc = soc_volts(clocks.emc_hz, chip) ** 2
    moved = work.dram_bytes + work.cold_bytes if cold else work.dram_bytes
    operations = _OPERATION_J * work.operations * work.toggling
    active = _ACTIVE_GPU_J * clocks.gpu_hz * busy_s
    return {
        "GPU": chip.switching * gpu * (operations + _L2_BYTE_J * work.l2_bytes + _FABRIC_BYTE_J * moved + active),
        "SOC": soc * (_SOC_BYTE_J * moved / 0.5 + 0.10 * busy_s),
        "VDDRQ": chip.dram_energy * _DRAM_BYTE_J * moved,
    }


def issue_power_w(clocks: Clocks, chip: Variation) -> Array:
    """Power above idle of the CPU rail while one thread issues work."""
    return np.asarray(_ACTIVE_CORE_J * cpu_volts(clocks.cpu_hz, chip) ** 2 * clocks.cpu_hz)
