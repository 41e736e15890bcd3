# SPDX-License-Identifier: Apache-2.0
"""What one chip of the simulated board is: its units, its voltages, and how it differs from its nominal twins.

The chip is a GV11B (Volta) with 8 SMs and 512 CUDA cores behind a 512 KB L2 and 256 bits of LPDDR4x. Public figures are used
where there are any; voltages are not public for this chip, so their shape follows the GPU-rail measurements of its predecessor
(flat to about 700 MHz, then rising by about 27 %).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...kernels.grid import FrequencyConfiguration, FrequencyGrid

Array: TypeAlias = NDArray[np.float64]

SM_COUNT = 8
FP32_LANES = 64  # per SM
L2_BYTES = 512 * 1024
L2_BYTES_PER_CYCLE = 224.0
RAILS = ("GPU", "CPU", "SOC", "VDDRQ", "CV", "SYS5V")
AMBIENT_DIE_C = 45.0
_TRIM_HZ = 60e6


@dataclass(frozen=True)
class Clocks:
    """Frequency configurations as arrays of equal shape, in Hz."""

    cpu_hz: Array
    gpu_hz: Array
    emc_hz: Array

    @classmethod
    def of(cls, configurations: Iterable[FrequencyConfiguration]) -> Clocks:
        rows = np.array([tuple(configuration) for configuration in configurations], np.float64).reshape(-1, 3)
        return cls(rows[:, 0] * 1e3, rows[:, 1].copy(), rows[:, 2].copy())

    @classmethod
    def over(cls, grid: FrequencyGrid) -> Clocks:
        """Every configuration of a grid, in the order in which the grid iterates."""
        cpu, gpu, emc = np.meshgrid(
            np.array(grid.cpu_khz) * 1e3, np.array(grid.gpu_hz, float), np.array(grid.emc_hz, float), indexing="ij"
        )
        return cls(cpu.ravel(), gpu.ravel(), emc.ravel())

    def take(self, index: NDArray[np.intp]) -> Clocks:
        return Clocks(self.cpu_hz[index], self.gpu_hz[index], self.emc_hz[index])

    def __len__(self) -> int:
        return len(self.gpu_hz)


@dataclass(frozen=True)
class Variation:
    """How one node differs from the nominal chip: factors around 1, after the thirteen boards of MIRAGE, Figure 2."""

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
    def of(cls, node: int) -> Variation:
        """The variation of a node; the same number is always the same chip."""
        random = np.random.default_rng([0x17000000, node])
        spread = random.standard_normal(11)
        gain = np.exp(0.010 * random.standard_normal(len(RAILS)))
        factor = np.exp(
            np.clip(spread, -2.2, 2.2) * np.array([0.030, 0.040, 0.009, 0.007, 0.021, 0.014, 0.014, 0.22, 0.085, 0.055, 0.09])
        )
        trim = np.exp(0.014 * random.standard_normal(25))
        issue, launch, dram, pipeline, gpu, cpu, soc, leakage, static, switching, energy = factor.tolist()
        return cls(
            *(issue, launch, dram, pipeline, gpu, cpu, soc, leakage, static, switching, energy),
            gain=tuple(gain.tolist()),
            trim=tuple(trim.tolist()),
        )


def _steps(volts: Array, millivolts: float) -> Array:
    """A regulator gives voltages in steps, never less than asked for."""
    step = millivolts / 1e3
    return np.asarray(np.ceil(volts / step - 1e-9) * step)


def gpu_volts(gpu_hz: Array, chip: Variation) -> Array:
    """The GPU's rail: calibrated for each chip and, clock by clock, not quite evenly."""
    above = np.maximum(gpu_hz - 700e6, 0.0) / 677e6
    factor = chip.gpu_volts * np.interp(gpu_hz, _TRIM_HZ * np.arange(len(chip.trim)), chip.trim)
    return _steps(factor * (0.670 + 0.150 * above + 0.060 * above**2), 6.25)


def cpu_volts(cpu_hz: Array, chip: Variation) -> Array:
    above = np.maximum(cpu_hz - 1.05e9, 0.0) / 1.2156e9
    return _steps(chip.cpu_volts * (0.640 + 0.190 * above + 0.170 * above**2), 6.25)


def soc_volts(emc_hz: Array, chip: Variation) -> Array:
    """The memory controller's rail: a few coarse levels, tied to the memory clock."""
    level = np.interp(emc_hz, [204e6, 800e6, 1331.2e6, 1600e6, 2133e6], [0.640, 0.640, 0.675, 0.710, 0.790])
    return _steps(chip.soc_volts * level, 12.5)
