# SPDX-License-Identifier: Apache-2.0
"""The GPU clock through devfreq (Linux, Documentation/ABI/testing/sysfs-class-devfreq)."""

from __future__ import annotations

from msgspec import Struct

from ....profiles.board import BoardDescription
from ...errors import HardwareBusy
from ..files import Files, Reader
from .domain import ClockDomain, Write, clamp
from .driver import OthersValue, Reading
from .governed import governed_domain, listed_levels, offered_levels


class GpuClock(Struct, frozen=True):
    files: Files
    path: str
    domain: ClockDomain
    described_hz: tuple[int, ...]
    transition_ms: float
    axis: str = "gpu_hz"
    notes: tuple[str, ...] = ()

    @property
    def domains(self) -> tuple[ClockDomain, ...]:
        return (self.domain,)

    def stale(self) -> bool:
        return False

    def table(self) -> tuple[int, ...]:
        return tuple(sorted(listed_levels(self.files, f"{self.path}/available_frequencies", self.described_hz)))

    def levels(self, table: tuple[int, ...], others: OthersValue) -> tuple[int, ...]:
        return offered_levels(self.domain, table, others)

    def read(self) -> tuple[Reading, ...]:
        """One reading; an idle, power-gated GPU measures 0 Hz."""
        mode, asked = self.domain.request(self.files)
        # The setpoint reads as written; the device runs it within the limits.
        accepted = None if asked is None else clamp(asked, self.domain.bounds(self.files))
        effective = self.files.find_rate(f"{self.path}/cur_freq")
        return (Reading(accepted, effective, mode or self.files.find_text(f"{self.path}/governor") or ""),)

    def measured(self) -> tuple[int | None, ...]:
        return (self.files.find_rate(f"{self.path}/cur_freq"),)

    def load(self) -> float | None:
        """Load from 0 to 1; None if unavailable (Thor)."""
        load = self.files.find_int(f"{self.path}/device/load")
        return None if load is None else min(max(load / 1000, 0.0), 1.0)

    def plan(self, level: int, files: Reader) -> tuple[Write, ...]:
        return self.domain.plan(files, level)


def probe(files: Files, description: BoardDescription) -> GpuClock:
    """Find the device at one of the places used by the board's JetPack releases.

    Raises HardwareBusy if it is missing: it may appear only once the GPU has been powered.
    """
    section = description.section("gpu")
    path = _find(files, description)
    if path is None:
        raise HardwareBusy(f"{', '.join(section['devfreq'])}: no such devfreq device (yet)")
    domain = governed_domain(
        files,
        "gpu",
        governor=f"{path}/governor",
        governors=f"{path}/available_governors",
        low=f"{path}/min_freq",
        high=f"{path}/max_freq",
        setpoint=f"{path}/userspace/set_freq",
    )
    return GpuClock(files, path, domain, description.grid.gpu_hz, float(section["transition_ms"]))


def observe(files: Files, description: BoardDescription) -> int | None:
    path = _find(files, description)
    return files.find_rate(f"{path}/cur_freq") if path else None


def waits(files: Files, description: BoardDescription) -> bool:
    """True if the GPU is present without its clock, which after a boot without a desktop appears with the first use."""
    section = description.section("gpu")
    places = (path.rpartition("/devfreq/")[0] for path in section["devfreq"])
    return _find(files, description) is None and any(place and files.exists(place) for place in places)


def _find(files: Files, description: BoardDescription) -> str | None:
    return next((path for path in description.section("gpu")["devfreq"] if files.exists(path)), None)
