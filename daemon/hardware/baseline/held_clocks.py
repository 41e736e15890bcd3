# SPDX-License-Identifier: Apache-2.0
"""Default state of a board, for clocks held when their baseline got lost.

The kernel's initial governors, the power mode's limits, no memory lock. Only clocks that look held are set: under our governor
or lock, or limited to one frequency.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct, field

from ....profiles.board import BoardDescription, PowerMode
from ...errors import DaemonError, HardwareBusy
from ..clocks.domain import ClockDomain
from ..clocks.driver import Driver
from ..clocks.emc import EmcClock
from ..files import Files
from ..offered_levels import mode_limits

# Governors that hold a frequency; no kernel starts with them.
_HOLDING = ("userspace", "performance", "powersave")


class HeldClocksReport(Struct):
    values: dict[str, str] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    domains: list[ClockDomain] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def stock(
    files: Files, drivers: Iterable[Driver], mode: PowerMode | None, description: BoardDescription, held: Collection[str] = ()
) -> HeldClocksReport:
    """Check every clock for signs of being held; limits of a domain in ``held`` that pin it are ours."""
    found = HeldClocksReport()
    for driver in drivers:
        for domain in driver.domains:
            try:
                values = dict(_values(files, driver, domain, mode, description, pinned=domain.name in held))
                held_values = {path: files.read_text(path) for path in values}
            except DaemonError as error:
                found.unread.append(str(error))
                continue
            if values:
                found.domains.append(domain)
                found.values.update(values)
                found.held.update(held_values)
    return found


def _values(
    files: Files, driver: Driver, domain: ClockDomain, mode: PowerMode | None, description: BoardDescription, *, pinned: bool
) -> Iterator[tuple[str, str]]:
    low, high = mode_limits(driver.axis, driver.table(), mode)
    section = description.section("gpu" if driver.axis == "gpu_hz" else "cpu")
    if domain.mode is not None:
        if _sensible(files, domain, domain.mode.path) != domain.mode.value:
            if pinned and domain.low is not None and domain.high is not None:
                yield from _unpinned(files, domain, low, high)
            return
        if isinstance(driver, EmcClock):
            writes = driver.unlock()
            if not writes:
                raise HardwareBusy(f"{domain.mode.path}: changed just now")
            yield from writes
        else:
            yield domain.mode.path, _governor(files, domain, str(section["governor"]))
    elif domain.setpoint is not None:  # a cap
        if int(_sensible(files, domain, domain.setpoint)) < high:
            yield domain.setpoint, str(high)
        return
    if domain.low is None or domain.high is None:
        return
    low_now, high_now = int(_sensible(files, domain, domain.low)), int(_sensible(files, domain, domain.high))
    if domain.mode is None:
        yield from _unpinned(files, domain, low, high)
    elif low_now < min(low, high_now):
        yield domain.low, str(min(low, high_now))  # lowered for a lower level; the upper limit is never ours


def _unpinned(files: Files, domain: ClockDomain, low: int, high: int) -> Iterator[tuple[str, str]]:
    assert domain.low is not None and domain.high is not None
    if _sensible(files, domain, domain.low) == _sensible(files, domain, domain.high) and low < high:
        yield from ((domain.low, str(low)), (domain.high, str(high)))


def _governor(files: Files, domain: ClockDomain, described: str) -> str:
    """The kernel's initial governor, else the first available one that holds no frequency."""
    names = files.read_text(domain.choices).split() if domain.choices else [described]
    return next((name for name in (described, *names) if name in names and name not in _HOLDING), described)


def _sensible(files: Files, domain: ClockDomain, path: str) -> str:
    text, again = files.read_text(path), files.read_text(path)
    if text != again or not domain.could_hold(files, path, text):
        raise HardwareBusy(f"{path}: holds {text[:40]!r}, an impossible value")
    return text
