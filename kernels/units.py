# SPDX-License-Identifier: Apache-2.0
"""The three clocks of a frequency configuration: names of fields and clocks, units, and prediction methods.

A frequency's name ends with the unit of its kernel file: ``gpu_hz``, ``cpu_khz``, and so does that of a CPU cluster, named by
its cpufreq policy. Messages use MHz.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

AXES = ("cpu_khz", "gpu_hz", "emc_hz")
"""Fields of a configuration, in the order of the axes of every array over a grid."""
CLOCKS: Mapping[str, str] = {"cpu_khz": "CPU", "gpu_hz": "GPU", "emc_hz": "EMC"}

Method: TypeAlias = Literal["timeline", "sum"]
METHODS: tuple[Method, ...] = get_args(Method)
"""Prediction methods: a timeline of host and GPU, or a sum of kernel times, as in MIRAGE (SEC '21)."""

KHZ_PER_MHZ = 1e3
HZ_PER_MHZ = 1e6
_LEAST_MHZ, _MOST_MHZ = 0.001, 1_000_000


def per_mhz(clock: str) -> float:
    return HZ_PER_MHZ if clock.endswith("_hz") else KHZ_PER_MHZ


def mhz(clock: str, level: float) -> float:
    return level / per_mhz(clock)


def mhz_text(clock: str, level: float) -> str:
    """A frequency in MHz as text, to its last digit (``905.25``), without the unit; implausible ones are not spelled out."""
    value = mhz(clock, level)
    if 0 < value < _LEAST_MHZ:
        return f"less than {_LEAST_MHZ:g}"
    return f"more than {_MOST_MHZ:.0f}" if value > _MOST_MHZ else f"{value:.10g}"
