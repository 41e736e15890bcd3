# SPDX-License-Identifier: Apache-2.0
"""Governors: the kernel's choice of a clock by utilisation, before rounding and limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct


class Utilization(Struct, frozen=True):
    """Utilisation since the governor's last tick: busy share (0 to 1), clock, and limits."""

    load: float
    current: int
    low: int
    high: int


def schedutil(usage: Utilization) -> float:
    """1.25 times the capacity in use (Linux, kernel/sched/cpufreq_schedutil.c)."""
    return 1.25 * usage.load * usage.current


def ondemand(usage: Utilization) -> float:
    """Top above 80 % load, else proportional to it (Linux, drivers/cpufreq/cpufreq_ondemand.c)."""
    return float(usage.high) if usage.load > 0.8 else usage.low + usage.load * (usage.high - usage.low)


def conservative(usage: Utilization) -> float:
    """Steps of 5 % of the top: up above 80 % load, down below 20 % (Linux, drivers/cpufreq/cpufreq_conservative.c)."""
    step = 0.05 * usage.high
    if usage.load > 0.8:
        return usage.current + step
    return max(usage.current - step, usage.low) if usage.load < 0.2 else float(usage.current)


def interactive(usage: Utilization) -> float:
    """Top without idle time, else the clock for 90 % load (Linux 4.9, cpufreq_interactive.c)."""
    return float(usage.high) if usage.load > 0.99 else usage.current * usage.load / 0.9


def podgov(usage: Utilization) -> float:
    """NVIDIA's pod scaling: the top above 90 % load, else the clock for 70 %."""
    return float(usage.high) if usage.load > 0.9 else usage.current * usage.load / 0.7


Governor = Callable[[Utilization], float]
CPU_GOVERNORS: Mapping[str, Governor] = {
    "schedutil": schedutil,
    "ondemand": ondemand,
    "conservative": conservative,
    "interactive": interactive,
}
GPU_GOVERNORS: Mapping[str, Governor] = {"nvhost_podgov": podgov, "wmark_active": podgov}
