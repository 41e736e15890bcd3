# SPDX-License-Identifier: Apache-2.0
"""Measurements at the same few configurations on every board: how boards differ from each other, and each from itself.

MIRAGE (SEC '21) looks at the lowest, a middle and the highest configuration (sections 3.1 and 6.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kernels.grid import FrequencyGrid
from ...kernels.network import KernelInvocation, Network
from ..device import MeasuredDevice
from .figures import Tables, above, configurations_at, figure_rows, kernel_power
from .meters.meter import Meter


def fixed_configurations(grid: FrequencyGrid) -> tuple[int, ...]:
    """The lowest, middle and highest configuration of a grid, as flat indices (MIRAGE, SEC '21, sections 3.1 and 6.2).

    The CPU's lowest is a sixth up its clocks: below, the host alone is what takes the time (its footnote 3).
    """
    cpu, *others = grid.shape
    chosen = (
        ((cpu - 1) // 6, *(0 for _ in others)),
        tuple(size // 2 for size in grid.shape),
        tuple(size - 1 for size in grid.shape),
    )
    return tuple(dict.fromkeys(int(np.ravel_multi_index(each, grid.shape)) for each in chosen))


def fixed_network(board: MeasuredDevice, node: int, what: int, network: Network, observations: int, meter: Meter) -> Tables:
    """So many observations of a network at each configuration; each is a measurement of its own, and they take turns."""
    flat = np.tile(np.array(fixed_configurations(board.grid), np.int64), observations)
    configurations = configurations_at(board.grid, flat)
    tables = {"fixed_network_ms": figure_rows(what, node, flat, meter.network_latency_ms(network, configurations))}
    if rails := board.energy_rails:
        measured = meter.network_rails_mw(network, configurations)
        tables["fixed_network_mw"] = figure_rows(what, node, flat, above(measured, dict.fromkeys(measured, 0.0), rails))
    return tables


def fixed_kernels(
    board: MeasuredDevice, node: int, what: Sequence[int], invocations: Sequence[KernelInvocation], meter: Meter
) -> Tables:
    """Each of these kernels once at each configuration."""
    fixed = np.array(fixed_configurations(board.grid), np.int64)
    index, flat = np.repeat(np.array(what, np.int64), len(fixed)), np.tile(fixed, len(what))
    calls, configurations = [invocations[each] for each in index.tolist()], configurations_at(board.grid, flat)
    tables = {"fixed_kernel_ms": figure_rows(index, node, flat, meter.kernel_times_ms(calls, configurations))}
    if board.energy_rails:
        tables["fixed_kernel_mw"] = kernel_power(board, node, index, flat, calls, configurations, meter)["kernel_mw"]
    return tables
