# SPDX-License-Identifier: Apache-2.0
"""Power of a simulated chip: idle power by domain, and energy of work above it.

Switching energy goes with the voltage's square, leakage with its cube and exponentially with temperature.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .chip import AMBIENT_DIE_C, Array, Chip, Clocks
from .passes import CodePass, Variation, cpu_volts, gpu_volts, soc_volts

BUSY_DOMAINS = ("gpu", "soc", "dram")
"""Domains loaded by a kernel."""
_LEAKAGE_FOLD_C = 38.0  # assumed: degrees in which leakage grows by the factor e; it doubles with every 26
_SOC_REFERENCE_V2 = 0.5  # the squared voltage for which a chip's file gives the memory controller's energy of a byte


def _leakage(watts: float, volts: Array, temperature_c: float, factor: float) -> Array:
    return np.asarray(factor * watts * volts**3 * np.exp((temperature_c - AMBIENT_DIE_C) / _LEAKAGE_FOLD_C))


def idle_w(chip: Chip, clocks: Clocks, node: Variation, temperature_c: float) -> dict[str, Array]:
    """Idle power of each domain, with all CPU clusters at one clock."""
    idle = chip.idle
    gpu, soc = gpu_volts(chip, clocks.gpu_hz, node), soc_volts(chip, clocks.emc_hz, node)
    shape = clocks.gpu_hz.shape
    return {
        "gpu": _leakage(idle.gpu_leakage_w, gpu, temperature_c, node.leakage)
        + node.switching * idle.gpu_cycle_j * gpu**2 * clocks.gpu_hz,
        "cpu": cpu_idle_w(chip, [clocks.cpu_hz], node, temperature_c),
        "soc": node.soc_static
        * (
            _leakage(idle.soc_leakage_w, soc, temperature_c, node.leakage**0.5)
            + idle.soc_w
            + idle.soc_cycle_j * soc**2 * clocks.emc_hz
        ),
        "dram": node.dram_energy
        * (
            idle.dram_w
            + idle.dram_cycle_j * clocks.emc_hz
            + np.interp(clocks.emc_hz, idle.dram_levels.emc_hz, idle.dram_levels.watts)
        ),
        "cv": np.full(shape, idle.cv_w * node.leakage),
        "other": np.full(shape, idle.other_w),
    }


def cpu_idle_w(chip: Chip, cluster_hz: Sequence[Array], node: Variation, temperature_c: float) -> Array:
    """Idle power of the CPU domain; the fastest cluster sets the shared voltage."""
    shares = np.array(chip.clusters, np.float64) / sum(chip.clusters) if len(cluster_hz) > 1 else np.ones(1)
    volts = cpu_volts(chip, np.maximum.reduce(list(cluster_hz)), node)
    toggling = np.sum([share * hz for share, hz in zip(shares, cluster_hz, strict=True)], axis=0)
    leakage = _leakage(chip.idle.cpu_leakage_w, volts, temperature_c, node.leakage)
    return np.asarray(leakage + chip.idle.cpu_w + chip.idle.cpu_cycle_j * volts**2 * toggling)


def pass_energy_j(
    work: CodePass, busy_s: Array, clocks: Clocks, chip: Chip, node: Variation, *, cold: bool
) -> dict[str, Array]:
    """Energy above idle of a pass of ``busy_s``, by domain."""
    costs = chip.energies
    gpu = gpu_volts(chip, clocks.gpu_hz, node) ** 2
    soc = soc_volts(chip, clocks.emc_hz, node) ** 2
    moved = work.moved(cold=cold)
    operations = costs.operation_j * work.operations * work.toggling
    active = costs.active_gpu_j * clocks.gpu_hz * busy_s
    return {
        "gpu": node.switching * gpu * (operations + costs.l2_byte_j * work.l2_bytes + costs.fabric_byte_j * moved + active),
        "soc": soc * (costs.soc_byte_j * moved / _SOC_REFERENCE_V2 + costs.soc_active_w * busy_s),
        "dram": node.dram_energy * costs.dram_byte_j * moved + node.dram_energy * costs.dram_active_w * busy_s,
    }


def issue_power_w(chip: Chip, clocks: Clocks, node: Variation) -> Array:
    return np.asarray(chip.energies.active_core_j * cpu_volts(chip, clocks.cpu_hz, node) ** 2 * clocks.cpu_hz)


def traffic_w(chip: Chip, clocks: Clocks, node: Variation, bytes_s: float) -> dict[str, Array]:
    soc = soc_volts(chip, clocks.emc_hz, node) ** 2
    costs = chip.energies
    dram = np.full(clocks.emc_hz.shape, node.dram_energy * costs.dram_byte_j * bytes_s)
    return {"soc": soc * costs.soc_byte_j * bytes_s / _SOC_REFERENCE_V2, "dram": dram}
