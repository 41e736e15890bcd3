# SPDX-License-Identifier: Apache-2.0
"""CPU clocks through cpufreq (Linux, Documentation/admin-guide/pm/cpufreq.rst)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from ....profiles.board import BoardDescription
from ...errors import HardwareBusy, HardwareRefused
from ..files import Files, Reader
from .domain import ClockDomain, Write
from .driver import OthersValue, Reading
from .governed import governed_domain, listed_levels, offered_levels

POLICIES = "/sys/devices/system/cpu/cpufreq/policy*"


class CpuClock(Struct, frozen=True):
    """Several cpufreq policies as one clock; ``everybody`` are all of the board's at probe time."""

    files: Files
    policies: tuple[str, ...]
    everybody: tuple[str, ...]
    domains: tuple[ClockDomain, ...]
    described_khz: tuple[int, ...]
    transition_ms: float
    axis: str = "cpu_khz"
    notes: tuple[str, ...] = ()

    def stale(self) -> bool:
        return online(self.files) != self.everybody

    def table(self) -> tuple[int, ...]:
        names = (f"{policy}/scaling_available_frequencies" for policy in self.policies)
        return tuple(sorted(set.intersection(*(listed_levels(self.files, name, self.described_khz) for name in names))))

    def levels(self, table: tuple[int, ...], others: OthersValue) -> tuple[int, ...]:
        if not table:
            raise HardwareRefused(f"{', '.join(self.policies)}: have no frequency in common")
        return min((offered_levels(domain, table, others) for domain in self.domains), key=len)

    def read(self) -> tuple[Reading, ...]:
        return tuple(self._read(policy, domain) for policy, domain in zip(self.policies, self.domains, strict=True))

    def measured(self) -> tuple[int | None, ...]:
        return tuple(self.files.find_rate(f"{policy}/cpuinfo_cur_freq") for policy in self.policies)

    def _read(self, policy: str, domain: ClockDomain) -> Reading:
        mode, accepted = domain.request(self.files)
        # cpuinfo_cur_freq counts cycles (root only, sometimes "<unknown>"); scaling_cur_freq merely repeats the request.
        measured = self.files.find_rate(f"{policy}/cpuinfo_cur_freq")
        if measured is None and accepted is None:
            measured = self.files.find_rate(f"{policy}/scaling_cur_freq")
        return Reading(accepted, measured, mode or self.files.find_text(f"{policy}/scaling_governor") or "", domain.name)

    def plan(self, level: int, files: Reader) -> tuple[Write, ...]:
        return tuple(write for domain in self.domains for write in domain.plan(files, level))


def probe(files: Files, description: BoardDescription, *, lead: str | None = "") -> CpuClock:
    """Find the policies, or for ``lead`` one: by name or, for None or if it has no core online, the one with most cores."""
    policies = online(files)
    if not policies:
        raise HardwareBusy(f"{POLICIES}: no cpufreq policy with a core online")
    if lead == "":
        return _clock(files, description, policies, policies)
    named = [path for path in policies if path.rpartition("/")[2] == lead]
    largest = max(policies, key=lambda path: len((files.find_text(f"{path}/affected_cpus") or "").split()))
    return _clock(files, description, (named or [largest])[:1], policies)


def probe_cluster(files: Files, description: BoardDescription, policy: str) -> CpuClock:
    return _clock(files, description, (policy,), online(files), policy.rpartition("/")[2])


def _clock(
    files: Files, description: BoardDescription, policies: Sequence[str], everybody: tuple[str, ...], axis: str = "cpu_khz"
) -> CpuClock:
    domains = tuple(
        replace(
            governed_domain(
                files,
                path.rpartition("/")[2],
                governor=f"{path}/scaling_governor",
                governors=f"{path}/scaling_available_governors",
                low=f"{path}/scaling_min_freq",
                high=f"{path}/scaling_max_freq",
                setpoint=f"{path}/scaling_setspeed",
            ),
            positive=True,
        )
        for path in policies
    )
    transition_ms = float(description.section("cpu")["transition_ms"]) * len(policies)
    return CpuClock(files, tuple(policies), everybody, domains, description.grid.cpu_khz, transition_ms, axis)


def online(files: Files) -> tuple[str, ...]:
    return tuple(path for path in files.glob(POLICIES) if files.find_text(f"{path}/affected_cpus"))


def observe(files: Files, description: BoardDescription) -> int | None:
    seen = [files.find_rate(f"{path}/scaling_cur_freq") for path in files.glob(POLICIES)]
    return min((khz for khz in seen if khz), default=None)
