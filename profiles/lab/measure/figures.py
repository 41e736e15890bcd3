# SPDX-License-Identifier: Apache-2.0
"""Rows of a record from a meter's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ....kernels.grid import FrequencyConfiguration
from ....kernels.network import KernelInvocation
from ...adapt.measurements import MeasurementRows, Measurements
from ...device import MeasuredDevice
from ...errors import MeasurementError
from .meters.meter import Meter

Tables: TypeAlias = dict[str, MeasurementRows]

LEAST_BUSY = 0.3
"""Below this share of GPU time, power above idle drowns in the sensor's resolution."""
_SHORT_MS = 0.5  # of longer kernels, the pause between two launches is less than their own variation


def figure_rows(
    what: int | NDArray[np.int64], node: int, flat: NDArray[np.int64], value: NDArray[np.float64]
) -> MeasurementRows:
    """Values at flat configuration indices as rows, without NaN. Raises MeasurementError if not finite."""
    figures = np.asarray(value, np.float64)
    if figures.shape != flat.shape or np.isinf(figures).any():
        raise MeasurementError(f"board {node}: expected {len(flat)} finite figures, got {figures!r:.80}")
    rows = MeasurementRows(
        np.broadcast_to(what, flat.shape).astype(np.int64), np.full(len(flat), node), np.asarray(flat, np.int64), figures
    )
    return rows.where(~np.isnan(figures))


def kernel_times_ms(record: Measurements) -> Mapping[Any, Mapping[int, float]]:
    """Measured times of kernels in ms, by signature and flat configuration."""
    rows, found = record.tables["kernel_ms"], dict[Any, dict[int, float]]()
    for number, at, value in zip(rows.what.tolist(), rows.configuration.tolist(), rows.value.tolist(), strict=True):
        found.setdefault(record.invocations[number].signature, {})[at] = value
    return found


def above(rails_mw: Mapping[str, Any], idle_mw: Mapping[str, Any], rails: Sequence[str]) -> NDArray[np.float64]:
    return np.asarray(sum(np.asarray(rails_mw[rail]) - idle_mw[rail] for rail in rails), np.float64)


def kernel_power(
    board: MeasuredDevice,
    node: int,
    what: NDArray[np.int64],
    flat: NDArray[np.int64],
    calls: Sequence[KernelInvocation],
    configurations: Sequence[FrequencyConfiguration],
    meter: Meter,
    together: int = 1,
) -> Tables:
    """Power of kernels above idle; ``together`` consecutive ones share a configuration and idle measurement."""
    of_host, once = board.host_rails, configurations[::together]
    gpu_side = [rail for rail in board.energy_rails if rail not in of_host]
    idle = {rail: np.repeat(found, together) for rail, found in meter.idle_rails_mw(once).items()}
    power = meter.kernel_powers(calls, configurations)
    period_ms, gpu_ms = np.asarray(power.period_ms), np.asarray(power.gpu_ms)
    busy = np.clip(gpu_ms / period_ms, 0, 1)
    above_idle = above(power.rails_mw, idle, gpu_side)
    if not of_host:  # it includes the host's power
        host = {rail: np.repeat(found, together) for rail, found in meter.host_rails_mw(once).items()}
        host_mw = above(host, idle, gpu_side)
        above_idle = above_idle - host_mw * np.asarray(power.host_ms) / period_ms
    figures = {"kernel_mw": (above_idle / np.maximum(busy, LEAST_BUSY), busy >= LEAST_BUSY)}
    if not power.in_stream:
        alone = meter.kernel_times_ms(calls, configurations)
        figures["gap_us"] = ((period_ms - gpu_ms) * 1e3, (period_ms > 1.2 * np.asarray(power.host_ms)) & (gpu_ms < _SHORT_MS))
        figures["timing_us"] = ((alone - gpu_ms) * 1e3, gpu_ms < _SHORT_MS)
    return {name: figure_rows(what[known], node, flat[known], value[known]) for name, (value, known) in figures.items()}
