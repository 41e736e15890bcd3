# SPDX-License-Identifier: Apache-2.0
"""Fits of host costs: issue time over CPU and memory clocks, power, and idle power."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....kernels.cost.host import NO_TIME, Coefficients, HostModel, issue_key
from ....kernels.cost.roofline import LaunchFloor
from ....kernels.grid import FrequencyGrid
from ....kernels.heat import Heat
from ...adapt.measurements import MeasurementRows, Measurements
from ...errors import MeasurementError

_FOLDS_C = (10.0, 200.0)


def fit_leakage(
    rows: MeasurementRows,
    temperatures_c: Sequence[float],
    idle_mw: NDArray[np.float32],
    reference_c: float,
    grid: FrequencyGrid,
) -> tuple[NDArray[np.float32], Heat] | None:
    """Leakage over the grid at the reference temperature, in mW, and its growth; None if not measured.

    Least squares of relative errors over boards: non-negative powers of the three clocks, exponential in temperature.
    """
    if not len(rows):
        return None
    from scipy.optimize import minimize_scalar, nnls

    degrees = np.asarray(temperatures_c, np.float64)[rows.what]
    terms, everywhere = powers_of_clocks(rows.configuration, grid), powers_of_clocks(np.arange(grid.size), grid)
    expected = idle_mw.ravel()[rows.configuration].astype(np.float64)
    more = rows.value / expected - 1

    def fitted(fold_c: float) -> tuple[NDArray[np.float64], float]:
        growth = Heat(reference_c, fold_c).growth(degrees)
        weights, residual = nnls(terms * (growth / expected)[:, None], more)
        return weights, float(residual)

    fold_c = float(minimize_scalar(lambda fold: fitted(fold)[1], bounds=_FOLDS_C, method="bounded").x)
    leakage_mw = np.minimum(everywhere @ fitted(fold_c)[0], idle_mw.ravel())
    return np.asarray(leakage_mw.reshape(grid.shape), np.float32), Heat(reference_c, round(fold_c, 3))


_POWERS = (1, 2, 3)
_LEAST_IDLE = 30
_TIMINGS, _TIMING_ROUNDS = 10_000, 20


def mean_events(measurements: Measurements, without: Collection[Any] = ()) -> dict[str, float]:
    """Mean number of GPU events of a kernel by :func:`~jetdvfs.kernels.cost.host.issue_key`."""
    rows, found = measurements.tables["kernel_events"], dict[str, list[float]]()
    for what, value in zip(rows.what.tolist(), rows.value.tolist(), strict=True):
        if (kernel := measurements.invocations[what]).signature not in without:
            found.setdefault(issue_key(kernel)[0], []).append(value)
    return {name: float(np.mean(counts)) for name, counts in sorted(found.items())}


def fit_host_model(measurements: Measurements, grid: FrequencyGrid) -> HostModel:
    """Issue times by call name and per gathered tensor. Raises MeasurementError."""
    rows = measurements.tables["host_us"]
    if not len(rows):
        raise MeasurementError("host model: no issue times were measured")
    keys = [issue_key(call) for call in measurements.calls]
    name_of_row = np.array([keys[what][0] for what in rows.what])
    tensors_of_row = np.array([keys[what][1] for what in rows.what])
    calls: dict[str, Coefficients] = {}
    per_tensor: Coefficients = NO_TIME
    for name in sorted({name for name, _ in keys}):
        mine = name_of_row == name
        if not mine.any():
            continue
        tensors = tensors_of_row[mine]
        calls[name], of_tensors = fit_issue_time(rows.where(mine), tensors, grid)
        if len(set(tensors)) > 1:
            per_tensor = of_tensors
    a, b, c, d = map(float, np.median(list(calls.values()), axis=0))
    return HostModel(calls, (a, b, c, d), per_tensor)


def fit_issue_time(rows: MeasurementRows, tensors: NDArray[np.int64], grid: FrequencyGrid) -> tuple[Coefficients, Coefficients]:
    """Non-negative least squares of relative errors: (a, b, c, d) of a call and of each gathered tensor, never slower at a
    higher CPU clock.
    """
    from scipy.optimize import nnls

    cpu_mhz, _, emc_mhz = clocks_mhz(rows.configuration, grid)
    cpu_levels, _, emc_levels = grid.levels_mhz()
    steepest = float(cpu_levels[-1]) ** 2 / float(emc_levels[0])  # the b that each d needs for that
    clocks = np.stack([np.ones(len(rows)), 1 / cpu_mhz, 1 / emc_mhz, cpu_mhz / emc_mhz + steepest / cpu_mhz], axis=1)
    clocks /= rows.value[:, None]
    terms = np.concatenate([clocks, clocks * tensors[:, None]], axis=1) if len(set(tensors)) > 1 else clocks
    found = nnls(terms, np.ones(len(terms)))[0].reshape(-1, 4)
    call, *of_tensor = [(float(a), float(b + steepest * d), float(c), float(d)) for a, b, c, d in found]
    return call, of_tensor[0] if of_tensor else NO_TIME


def fit_gap_us(rows: MeasurementRows, grid: FrequencyGrid) -> tuple[float, float]:
    """GPU pause between consecutive kernels, ``a + b / gpu_mhz`` us; zero if not measured."""
    if not len(rows):
        return (0.0, 0.0)
    gpu_mhz = clocks_mhz(rows.configuration, grid)[1]
    # Short kernels leave single figures far off: fit the median at each clock.
    levels = np.unique(gpu_mhz)
    middle = np.array([np.median(rows.value[gpu_mhz == level]) for level in levels])
    slope, constant = np.polyfit(1 / levels, middle, 1) if len(levels) > 1 else (0.0, middle[0])
    return (max(float(constant), 0.0), max(float(slope), 0.0))


def fit_timing_us(rows: MeasurementRows, grid: FrequencyGrid) -> tuple[float, float, float]:
    """Time added by timing a kernel alone, ``a + b / cpu_mhz + c / gpu_mhz`` us, or zero."""
    if not len(rows):
        return (0.0, 0.0, 0.0)
    rows = rows.where(np.arange(len(rows)) % max(len(rows) // _TIMINGS, 1) == 0)
    cpu_mhz, gpu_mhz, _ = clocks_mhz(rows.configuration, grid)
    terms = np.stack([np.ones(len(rows)), 1 / cpu_mhz, 1 / gpu_mhz], axis=1)
    found: NDArray[np.float64] = np.zeros(3)
    positive: NDArray[np.bool_] = np.ones(len(rows), np.bool_)
    for _ in range(_TIMING_ROUNDS):
        weight = positive / (1.0 + np.abs(rows.value - terms @ found))  # single figures may be far off
        found = np.asarray(np.linalg.lstsq(terms * weight[:, None], rows.value * weight, rcond=None)[0], np.float64)
        positive = terms @ found > 0
    return (float(found[0]), float(found[1]), float(found[2]))


def fit_floor(gpu_mhz: NDArray[np.float64], us: NDArray[np.float64], tile: int = 1) -> LaunchFloor:
    """Time of near-empty launches, by relative errors; zero if not measured."""
    from scipy.optimize import nnls

    if not len(us):
        return LaunchFloor(tile=tile)
    terms = np.stack([1 / us, 1 / gpu_mhz / us], axis=1)
    constant_us, cycles = map(float, nnls(terms, np.ones(len(us)))[0])
    return LaunchFloor(constant_us, cycles, tile)


def fit_idle_mw(rows: MeasurementRows, grid: FrequencyGrid) -> NDArray[np.float32]:
    """Mean idle power over boards in mW, by powers of clocks if unmeasured. Raises MeasurementError."""
    from scipy.optimize import nnls

    total = np.bincount(rows.configuration, rows.value, grid.size)
    count = np.bincount(rows.configuration, minlength=grid.size)
    measured = np.flatnonzero(count)
    if len(measured) == grid.size:
        return np.asarray((total / count).reshape(grid.shape), np.float32)
    if len(measured) < _LEAST_IDLE:
        least = min(_LEAST_IDLE, grid.size)
        raise MeasurementError(
            f"idle power: measured at {len(measured)} of {grid.size} configurations; expected {least} or more"
        )
    mean = total[measured] / count[measured]
    weights, _ = nnls(powers_of_clocks(measured, grid) / mean[:, None], np.ones(len(measured)))
    return np.asarray((powers_of_clocks(np.arange(grid.size), grid) @ weights).reshape(grid.shape), np.float32)


def powers_of_clocks(configuration: NDArray[np.int64], grid: FrequencyGrid) -> NDArray[np.float64]:
    """One, and powers of relative clocks: supply voltages rise ever more steeply."""
    columns = [np.ones(len(configuration))]
    for clock, levels in zip(clocks_mhz(configuration, grid), grid.levels_mhz(), strict=True):
        columns += [(clock / float(levels[-1])) ** power for power in _POWERS]
    return np.stack(columns, axis=1)


def fit_host_active_mw(rows: MeasurementRows, grid: FrequencyGrid) -> NDArray[np.float32]:
    """CPU power above idle while issuing, per CPU level, in mW. Raises MeasurementError."""
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
    """CPU, GPU and memory clock in MHz at flat grid indices."""
    cpu, gpu, emc = np.unravel_index(configuration, grid.shape)
    axes = [np.asarray(axis, np.float64) for axis in grid.levels_mhz()]
    return axes[0][cpu], axes[1][gpu], axes[2][emc]
