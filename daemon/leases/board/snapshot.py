# SPDX-License-Identifier: Apache-2.0
"""Snapshots of the board and its leases."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from ....kernels.errors import KernelsError
from ....kernels.grid import FrequencyConfiguration
from ....kernels.units import AXES
from ....profiles.board import ModeSet, PowerMode
from ...errors import DaemonError
from ...hardware.applied_setting import AppliedSetting
from ...hardware.clocks.driver import Reading
from ...hardware.hardware import Hardware
from ...hardware.offered_levels import Cap
from ...hardware.power_modes import pending_units
from ...planning.limits import ClockLimits, Limits, PowerBudget
from ..budgets.budgets import BatterySupply
from ..demand_floors import Floors
from ..lease import Lease
from ..sharing import SharedLatency
from ..standby import StandbyState
from ..unmet_targets import UnmetTarget
from .slowdown import CounterEvent


class CpuPolicyState(Struct, frozen=True):
    """State of a cpufreq policy in kHz; ``leads`` if ``cpu_khz`` represents it."""

    policy: str
    accepted_khz: int | None
    effective_khz: int | None
    governor: str
    leads: bool


class BoardReading(Struct, frozen=True):
    """One sample of the board's clocks and power mode at the monotonic time ``seen_s``; ``outdated`` if clocks were set since.

    Attributes:
        notes: uncontrolled or unmeasured parts, with reasons.
        masks: of GPU units that are off; None if unknown.
        governors: governor, lock or mode in force by axis.
        engines: clocks of codec and vision units in Hz; 0 while off.
    """

    seen_s: float
    configuration: FrequencyConfiguration | None
    policies: tuple[CpuPolicyState, ...]
    mode: PowerMode | None
    notes: tuple[str, ...]
    outdated: bool = False
    modes: ModeSet | None = None
    masks: Mapping[str, int] | None = None
    caps: tuple[Cap, ...] = ()
    governors: Mapping[str, str] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    engines: Mapping[str, int] = field(default_factory=dict)


class ChangeCount(Struct, frozen=True):
    count: int = 0
    total_ms: float = 0.0


class Snapshot(Struct, frozen=True):
    """The board and its leases at one moment.

    Attributes:
        ended: actors that ended a lease they do not hold, by lease.
        set_s: last setting, on the monotonic clock.
        touched: True if the board may differ from its baseline.
    """

    reading: BoardReading
    limits: Limits | DaemonError | KernelsError
    leases: Mapping[str, Lease] = field(default_factory=dict)
    ended: Mapping[str, str] = field(default_factory=dict)
    unmet_targets: Mapping[str, UnmetTarget] = field(default_factory=dict)
    shared_latencies: Mapping[str, SharedLatency] = field(default_factory=dict)
    budget: PowerBudget | None = None
    ceiling_c: float | None = None
    supply: BatterySupply | None = None
    applied: AppliedSetting | None = None
    set_s: float = 0.0
    changes: ChangeCount = field(default_factory=ChangeCount)
    deviating: tuple[str, ...] = ()
    floors: Floors = field(default_factory=Floors)
    troubles: tuple[str, ...] = ()
    events: tuple[CounterEvent, ...] = ()
    touched: bool = False
    writes: tuple[tuple[str, str], ...] = ()
    operator: ClockLimits = field(default_factory=ClockLimits)
    standby: Mapping[str, StandbyState] = field(default_factory=dict)


def read_board(hardware: Hardware, now_s: float) -> BoardReading:
    notes: list[str] = []
    configuration: FrequencyConfiguration | None = None
    policies: tuple[CpuPolicyState, ...] = ()
    mode: PowerMode | None = None
    masks: Mapping[str, int] | None = None
    governors: dict[str, str] = {}
    unmeasured: dict[str, str] = {}
    engines: dict[str, int] = {}
    try:
        notes += hardware.notes
        mode = hardware.mode()
        masks = hardware.masks(mode)
        notes += filter(None, [pending_units(mode, masks)])
        readings = hardware.read()
        configuration, unmeasured = hardware.current(readings), hardware.unmeasured(readings)
        policies = tuple(_policies(readings))
        governors = {axis: found[0].mode for axis, found in readings.items() if axis in AXES and found}
        engines = hardware.engines()
    except (DaemonError, KernelsError) as error:
        notes.append(str(error))
    return BoardReading(
        now_s, configuration, policies, mode, tuple(notes), modes=hardware.modes, masks=masks,
        governors=governors, unmeasured=unmeasured, engines=engines,
    )  # fmt: skip


def _policies(readings: Mapping[str, tuple[Reading, ...]]) -> list[CpuPolicyState]:
    return [
        CpuPolicyState(one.domain, one.accepted, one.effective, one.mode, axis == "cpu_khz")
        for axis, found in readings.items()
        if axis not in ("gpu_hz", "emc_hz")
        for one in found
    ]
