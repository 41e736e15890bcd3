# SPDX-License-Identifier: Apache-2.0
"""Fits of what the host costs: the time to issue each call over the CPU and memory clocks, its power, and idle power."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ..kernels.cost import HostModel
from ..kernels.grid import FrequencyGrid
from .errors import MeasurementError
from .measurements import Measurements, Rows

Coefficients = tuple[float, float, float]


def fit_host_model(measurements: Measurements, grid: FrequencyGrid) -> HostModel:
    """Per call name, issue time in us as ``a + b / cpu_mhz + c / emc_mhz``; the default is the median call's.

    Raises:
        MeasurementError: no issue time was measured.
    """
    rows = measurements.tables["host_us"]
    calls = {}
    for what, name in enumerate(measurements.call_names):
        mine = rows.where(rows.what == what)
        if len(mine):
            calls[name] = fit_issue_time(mine, grid)
    if not calls:
        raise MeasurementError("host model: no issue times were measured")
    middle = np.median(list(calls.values()), axis=0)
    return HostModel(calls, (float(middle[0]), float(middle[1]), float(middle[2])))


def fit_issue_time(rows: Rows, grid: FrequencyGrid) -> Coefficients:
    """Least squares of relative errors with no negative coefficient: of all subsets of terms, the best that has none."""
    cpu_mhz, _, emc_mhz = clocks_mhz(rows.configuration, grid)
    terms = np.stack([np.ones(len(rows)), 1 / cpu_mhz, 1 / emc_mhz], axis=1) / rows.value[:, None]
    best, least = np.zeros(3), np.inf
    for size in (1, 2, 3):
        for chosen in combinations(range(3), size):
            solution, *_ = np.linalg.lstsq(terms[:, chosen], np.ones(len(rows)), rcond=None)
            loss = float(np.square(terms[:, chosen] @ solution - 1).sum())
            if (solution >= 0).all() and loss < least:
                least, best = loss, np.zeros(3)
                best[list(chosen)] = solution
    return (float(best[0]), float(best[1]), float(best[2]))


def fit_gap_us(rows: Rows, grid: FrequencyGrid) -> tuple[float, float]:
    """The GPU's pause between two kernels that follow back to back as ``a + b / gpu_mhz`` us; none where none was measured."""
    if not len(rows):
        return (0.0, 0.0)
    gpu_mhz = clocks_mhz(rows.configuration, grid)[1]
    # Short kernels leave single figures far off: fit the median at each clock.
    levels = np.unique(gpu_mhz)
    middle = np.array([np.median(rows.value[gpu_mhz == level]) for level in levels])
    slope, constant = np.polyfit(1 / levels, middle, 1) if len(levels) > 1 else (0.0, middle[0])
    return (max(float(constant), 0.0), max(float(slope), 0.0))


def fit_idle_mw(rows: Rows, grid: FrequencyGrid) -> NDArray[np.float32]:
    """Idle power over the grid, the mean over boards, in mW; linear between the levels that were measured.

    Raises:
        MeasurementError: the measured configurations do not span the grid.
    """
    total = np.bincount(rows.configuration, rows.value, grid.size)
    count = np.bincount(rows.configuration, minlength=grid.size)
    if not count.all():
        raise MeasurementError(f"idle power: measured at {np.count_nonzero(count)} of {grid.size} configurations; expected all")
    return np.asarray((total / count).reshape(grid.shape), np.float32)


def fit_host_active_mw(rows: Rows, grid: FrequencyGrid) -> NDArray[np.float32]:
    """CPU power above idle while the host issues work, one figure per CPU level, in mW; levels not measured by interpolation.

    Raises:
        MeasurementError: nothing was measured.
    """
    if not len(rows):
        raise MeasurementError("host power: no measurement in which launching took longer than running")
    level = np.unravel_index(rows.configuration, grid.shape)[0]
    measured = np.unique(level)
    mean = [max(float(rows.value[level == index].mean()), 0.0) for index in measured]
    clocks = np.asarray(grid.cpu_khz, np.float64)
    return np.asarray(np.interp(clocks, clocks[measured], mean), np.float32)


def clocks_mhz(
    configuration: NDArray[np.int64], grid: FrequencyGrid
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """CPU, GPU and memory clock in MHz of configurations given as flat grid indices."""
    cpu, gpu, emc = np.unravel_index(configuration, grid.shape)
    axes = [np.asarray(axis, np.float64) for axis in grid.levels_mhz()]
    return axes[0][cpu], axes[1][gpu], axes[2][emc]
