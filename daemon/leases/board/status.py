# SPDX-License-Identifier: Apache-2.0
"""The ``Status`` of the interface, from the last readings."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, Protocol

from msgspec.structs import asdict

from ....kernels.text import printable
from ....profiles.board import BoardDescription
from ...hardware.sensors.sensors import SensorReader
from ...profile import Profile
from ..lease import Lease, raised_by
from ..missed_targets import MissedTarget
from .slow_reasons import slow_reasons
from .snapshot import Snapshot

_GUESSES, _LONGEST = 4, 200  # per lease: any user may hold one, with any names


class LeaseStates(Protocol):
    def missed(self, lease_id: str) -> MissedTarget | None: ...

    def energy_mj(self, lease: Lease) -> float | None: ...

    def doubt(self, lease_id: str) -> dict[str, Any] | None: ...

    def corrected(self, lease: Lease) -> dict[str, Any] | None: ...

    def silent(self, lease: Lease) -> str | None: ...


def status(
    snapshot: Snapshot,
    sensors: SensorReader,
    description: BoardDescription,
    profile: Profile | None,
    troubles: tuple[str, ...],
    frames: LeaseStates,
    proposed: Callable[[str], Mapping[str, Any] | None],
) -> dict[str, Any]:
    """All members except ``version`` and ``uptime_s``; non-finite values are omitted."""
    seen = snapshot.reading
    outdated = ("clocks: set since they were read last, and not read again yet",) if seen.outdated else ()
    return {
        "board": description.name,
        "title": description.title,
        "profile": None
        if profile is None
        else {"name": profile.identity.name, "board": profile.identity.board, "simulated": profile.identity.simulated},
        "configuration": None if seen.configuration is None or seen.outdated else seen.configuration._asdict(),
        "unmeasured": {} if seen.outdated else dict(seen.unmeasured),
        "engines_hz": dict(seen.engines),
        "cpu_policies": [] if seen.outdated else [asdict(policy) for policy in seen.policies],
        "applied": None if snapshot.applied is None else snapshot.applied.to_json(),
        "changes": asdict(snapshot.changes),
        "floors": [asdict(floor) for floor in snapshot.floors.floors],
        "leases": [{**_lease(lease, snapshot, frames), "proposal": proposed(lease.id)} for lease in snapshot.leases.values()],
        "rails_mw": _finite(sensors.rails_mw()),
        "energy_rails": list(sensors.energy_rails),
        "energy_mj": sensors.energy_mj(),
        "temperatures_mc": _finite(sensors.temperatures_mc()),
        "mode": None if seen.mode is None else {"id": seen.mode.id, "name": seen.mode.name},
        "budget": snapshot.budget and {"limit_mw": snapshot.budget.power_mw, "reason": snapshot.budget.reason},
        "ceiling_c": snapshot.ceiling_c,
        "battery": snapshot.supply and asdict(snapshot.supply),
        "throttled": list(sensors.throttled()),
        "over_current": [asdict(event) for event in snapshot.events],
        "baseline": "held" if snapshot.touched else "none",
        "degraded": list(dict.fromkeys((*outdated, *seen.notes, *snapshot.troubles, *troubles))),
        "writes": [{"path": path, "value": value} for path, value in snapshot.writes],
        "slow": [asdict(one) for one in slow_reasons(snapshot, sensors, description)],
        "age_s": min(time.monotonic() - seen.seen_s, 1e6),
    }


def _lease(lease: Lease, snapshot: Snapshot, frames: LeaseStates) -> dict[str, Any]:
    plan, caveats = lease.plan, lease.plan.caveats
    guessed = () if caveats is None else caveats.guessed
    observed, missed = lease.frames.observed(), frames.missed(lease.id)
    standby = snapshot.standby.get(lease.id)
    return {
        "lease": lease.id,
        "app": lease.holder.app,
        "pid": lease.holder.pid,
        "uid": lease.holder.uid,
        "reason": lease.reason,
        "target": plan.target or None,
        "network": printable(plan.network) or None,
        "fps": plan.fps,
        "limit_ms": plan.limit_ms,
        "configuration": plan.configuration._asdict(),
        "governed": sorted(plan.governed),
        "standby": standby and standby.to_json(time.monotonic()),
        "raised_by": raised_by(lease, snapshot.leases.values()),
        **sharing_state(lease.id, snapshot),
        "held_s": time.monotonic() - lease.since_s,
        "why": None if plan.chosen is None else plan.chosen.why,
        "predicted": plan.predicted and plan.predicted.to_json(),
        "method": None if caveats is None else caveats.method or None,
        "observed": observed,
        "missed": None if missed is None else missed.to_json(),
        "doubted": frames.doubt(lease.id),
        "corrected": frames.corrected(lease),
        "silent": frames.silent(lease),
        "frames": lease.frames.reported,
        "late": lease.frames.late,
        "first_frames": lease.frames.first_frames,
        "first_ms": median(lease.frames.first_ms) if lease.frames.first_ms else None,
        "energy_mj": frames.energy_mj(lease),
        "boundary": caveats and caveats.boundary and caveats.boundary.to_json(),
        "guessed": [
            {**asdict(each), "kind": printable(each.kind)[:_LONGEST], "why": printable(each.why)[:_LONGEST]}
            for each in guessed[:_GUESSES]
        ],
        "guessed_more": max(len(guessed) - _GUESSES, 0),
    }


def sharing_state(lease_id: str, snapshot: Snapshot) -> dict[str, Any]:
    unmet, shared = snapshot.unmet_targets.get(lease_id), snapshot.shared_latencies.get(lease_id)
    return {
        "shared": shared and {"leases": shared.leases, "latency_ms": shared.latency_ms, "limit_ms": shared.limit_ms},
        "unkept": unmet and asdict(unmet),
    }


def _finite(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if math.isfinite(value)}
