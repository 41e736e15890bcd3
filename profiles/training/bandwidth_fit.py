# SPDX-License-Identifier: Apache-2.0
"""How well each memory clock is used: what large kernels that only move data move at it."""

from __future__ import annotations

import numpy as np

from ...kernels.kinds import ELEMENTWISE, served_by
from ..device import MeasuredDevice
from ..measuring.measurements import Measurements
from .host_fit import clocks_mhz
from .kernel_models import in_stream

_LEAST_BYTES = 8 << 20  # more than second-level caches hold
_FAST = 0.5  # of the highest GPU clock
_LEAST_ROWS = 8
_USED = 0.75  # most of them move as much as can be moved


def fit_emc_use(measurements: Measurements, board: MeasuredDevice) -> tuple[float, ...]:
    """How much of what its clock could move each memory clock moves, beside the highest; nothing where that was not measured at
    each, or a higher clock seems to move no more than a lower one.

    It is a quantile over pointwise kernels whose data no cache holds, at high GPU clocks.
    """
    moving = served_by(ELEMENTWISE)
    moved = np.array([call.bytes if call.kind in moving else 0 for call in measurements.invocations], np.float64)
    rows = measurements.tables["kernel_ms"]
    rows = in_stream(measurements, board, rows.where(moved[rows.what] >= _LEAST_BYTES))
    _, gpu_mhz, emc_mhz = clocks_mhz(rows.configuration, board.grid)
    _, gpu_levels, emc_levels = board.grid.levels_mhz()
    per_clock = moved[rows.what] / rows.value / emc_mhz
    use = []
    for level in np.asarray(emc_levels, np.float64):
        found = per_clock[(emc_mhz == level) & (gpu_mhz >= _FAST * float(gpu_levels[-1]))]
        if len(found) < _LEAST_ROWS:
            return ()
        use.append(float(np.quantile(found, _USED)))
    shares = np.round(np.array(use) / use[-1], 4)
    return tuple(shares.tolist()) if (np.diff(shares * emc_levels, prepend=0.0) > 0).all() else ()
