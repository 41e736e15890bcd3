# SPDX-License-Identifier: Apache-2.0
"""Voltages of a simulated chip, and how one individual of it differs from the nominal one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .chip import Array, Chip, Curve

_TRIM_HZ = 60e6
_TRIMS = 25
# Standard deviations of the factors' logarithms, in the order of Variation's fields, and how many of them a factor is away at
# most: set so that thirteen boards spread as those of MIRAGE, Figure 2, do.
_SPREAD = np.array([0.030, 0.040, 0.009, 0.007, 0.021, 0.014, 0.014, 0.22, 0.085, 0.055, 0.09])
_FARTHEST = 2.2
_GAIN_SPREAD = 0.010  # assumed: shunts of 1 %
_TRIM_SPREAD = 0.014  # assumed: about two of the regulator's steps
_ROUNDING = 1e-9  # of a regulator's step, so that a voltage that is one is not raised to the next


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
    def of(cls, node: int, chip: Chip) -> Variation:
        """The variation of a node; the same number is always the same individual."""
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
        """The nominal chip."""
        return cls(*(1.0,) * 11, gain=(1.0,) * len(chip.rails), trim=(1.0,) * _TRIMS)


def _steps(volts: Array, millivolts: float) -> Array:
    """A regulator gives voltages in steps, never less than asked for."""
    step = millivolts / 1e3
    return np.asarray(np.ceil(volts / step - _ROUNDING) * step)


def _curve(curve: Curve, hz: Array) -> Array:
    above = np.maximum(hz - curve.knee_hz, 0.0) / curve.span_hz
    return np.asarray(curve.volts + curve.linear * above + curve.square * above**2)


def gpu_volts(chip: Chip, gpu_hz: Array, node: Variation) -> Array:
    """The GPU's rail: calibrated for each chip and, clock by clock, not quite evenly."""
    factor = node.gpu_volts * np.interp(gpu_hz, _TRIM_HZ * np.arange(len(node.trim)), node.trim)
    return _steps(factor * _curve(chip.voltages.gpu, gpu_hz), chip.voltages.gpu.step_mv)


def cpu_volts(chip: Chip, cpu_hz: Array, node: Variation) -> Array:
    return _steps(node.cpu_volts * _curve(chip.voltages.cpu, cpu_hz), chip.voltages.cpu.step_mv)


def soc_volts(chip: Chip, emc_hz: Array, node: Variation) -> Array:
    """The memory controller's rail: a few coarse levels, tied to the memory clock."""
    levels = chip.voltages.soc
    return _steps(node.soc_volts * np.interp(emc_hz, levels.emc_hz, levels.volts), levels.step_mv)
