# SPDX-License-Identifier: Apache-2.0
"""Governors between two limits, as in cpufreq policies and devfreq devices."""

from __future__ import annotations

from ...errors import HardwareBusy
from ..files import Files, rate_in
from .domain import ClockDomain, Write
from .driver import OthersValue, whole_number


def governed_domain(
    files: Files, name: str, *, governor: str, governors: str, low: str, high: str, setpoint: str
) -> ClockDomain:
    """Domain of a governed clock: set by the userspace governor if the kernel has it, else by equal limits."""
    limited = limited_domain(files, name, low, high)
    if "userspace" in (files.find_text(governors) or "").split():
        ours = Write(governor, "userspace")
        return ClockDomain(name, ours, setpoint, low, high, floors=(low,), ceilings=(high,), choices=governors)
    return limited


def limited_domain(files: Files, name: str, low: str, high: str) -> ClockDomain:
    files.read_int(low), files.read_int(high)
    return ClockDomain(name, low=low, high=high)


def listed_levels(files: Files, table: str, otherwise: tuple[int, ...]) -> set[int]:
    return {rate for word in (files.find_text(table) or "").split() if (rate := rate_in(word))} or set(otherwise)


def offered_levels(domain: ClockDomain, table: tuple[int, ...], others: OthersValue) -> tuple[int, ...]:
    """A governed clock's frequencies up to the limit of other programs, which is a power mode's cap; 0 is none (Linux 4.9).

    Raises:
        HardwareBusy, HardwareRefused: the limit cannot be read, or leaves nothing.
    """
    assert domain.high is not None
    ceiling = whole_number(domain.high, others(domain.high))
    offered = tuple(level for level in table if level <= ceiling or (ceiling == 0 and not domain.positive))
    if not offered:
        raise HardwareBusy(f"{domain.high}: {ceiling} is below every frequency of {domain.name}: {table[0]} and up")
    return offered
