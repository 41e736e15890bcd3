# SPDX-License-Identifier: Apache-2.0
"""What cpufreq policies and devfreq devices have in common: a governor between two limits."""

from __future__ import annotations

from ...errors import HardwareBusy
from ..files import Files, rate_in
from .domain import ClockDomain, Write
from .driver import OthersValue, whole_number


def governed_domain(
    files: Files, name: str, *, governor: str, governors: str, low: str, high: str, setpoint: str
) -> ClockDomain:
    """The domain of a governed clock: by the userspace governor where the kernel has it, else by equal limits.

    Raises:
        HardwareBusy: its limits are not there (yet).
        HardwareRefused: they cannot be read.
    """
    limited = limited_domain(files, name, low, high)
    if "userspace" in (files.find_text(governors) or "").split():
        ours = Write(governor, "userspace")
        return ClockDomain(name, ours, setpoint, low, high, floors=(low,), ceilings=(high,), choices=governors)
    return limited


def limited_domain(files: Files, name: str, low: str, high: str) -> ClockDomain:
    """The domain of a clock that is set by equal limits.

    Raises:
        HardwareBusy: they are not there (yet).
        HardwareRefused: they cannot be read.
    """
    files.read_int(low), files.read_int(high)
    return ClockDomain(name, low=low, high=high)


def listed_levels(files: Files, table: str, otherwise: tuple[int, ...]) -> set[int]:
    """The frequencies in a file, or those of the board's description for kernels without that list."""
    return {rate for word in (files.find_text(table) or "").split() if (rate := rate_in(word))} or set(otherwise)


def offered_levels(domain: ClockDomain, table: tuple[int, ...], others: OthersValue) -> tuple[int, ...]:
    """A governed clock's own frequencies, up to the limit that others set, rising.

    The upper limit binds, for a power mode caps the board with it. The lower one does not: it is where a governor
    stops, not what the board needs, and it is lowered when a request is below. An upper one of 0 is none (devfreq, Linux 4.9).

    Args:
        table: all of its frequencies, rising.

    Raises:
        HardwareBusy, HardwareRefused: the limit cannot be read, or leaves nothing.
    """
    assert domain.high is not None
    ceiling = whole_number(domain.high, others(domain.high))
    offered = tuple(level for level in table if level <= ceiling or (ceiling == 0 and not domain.positive))
    if not offered:
        raise HardwareBusy(f"{domain.high}: {ceiling} is below every frequency of {domain.name}: {table[0]} and up")
    return offered
