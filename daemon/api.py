# SPDX-License-Identifier: Apache-2.0
"""Answers to applications: from checked parameters to JSON."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from ..kernels.errors import GridError
from ..kernels.grid import FrequencyConfiguration, governed, parse_configuration
from ..kernels.text import printable
from ..kernels.units import AXES
from ..profiles.board import BoardDescription
from .config import Config, ConfigFile
from .descriptors.disposal import DescriptorGrant
from .errors import TargetNotAttainable, UsageError
from .hardware.sensors.sampled import SampledSensors
from .leases.board.service import BoardService, SharedWait
from .leases.board.status import sharing_state, status
from .leases.default import DEFAULT_APP
from .leases.learning.learner import Learner
from .leases.learning.observation_store import ObservationStore
from .leases.learning.progress import LeaseProgress
from .leases.lease import Holder, Lease, find
from .leases.mode_proposals import ModeProposals
from .planning.lease_plan import LeasePlan
from .planning.limits import BoardConstraints
from .planning.targets import listing, parse_target
from .planning.thermal_state import warmth_of
from .surfaces import Surfaces
from .system.decision_log import DecisionLog
from .system.journal import TROUBLE, fields
from .wire.calls import ADMIN, PUBLIC
from .wire.hold_request import HoldRequest
from .wire.protocol import LONGEST_FRAME_MS, TEXT_CHARACTERS
from .wire.serving.session import Session, process_name

if TYPE_CHECKING:
    from .programs import Programs

log = logging.getLogger(__name__)

_Parameters = Mapping[str, Any]
_Handler = Callable[[Session, _Parameters], Awaitable[dict[str, Any]]]

_FRAMES_PER_REPORT = 1024
# Reading a front of hundreds takes a client longer than finding it; a picture needs no more.
_FRONT_SENT = 32
_SENSORS_OLD_S, _SENSORS_WAIT_S, _SENSORS_TOLD_S = 1.5, 0.5, 2.0
_BY_BATTERY = "{}: target {} depends on the charge of the battery as a lease begins; ask Hold"


class Context(Struct, frozen=True):
    """Parts behind the interfaces; none blocks the event loop on a file of the board."""

    version: str
    description: BoardDescription
    board: BoardService
    sensors: SampledSensors
    surfaces: Surfaces
    config: Config
    config_file: ConfigFile
    started_s: float
    record: DecisionLog
    memory: ObservationStore


class Api:
    """Calls of ``io.jetdvfs``."""

    def __init__(self, context: Context) -> None:
        self.interface = replace(PUBLIC, lists={"targets": listing()})
        self._context = context
        self._holding: set[Session] = set()
        self._asked: dict[str, HoldRequest] = {}
        self._warmth = partial(warmth_of, context.sensors, context.description)
        self._learner = Learner(context.board, context.sensors, context.memory, self._warmth)
        self._known: Programs | None = None
        self._proposals = ModeProposals(lambda: context.board.snapshot.reading, context.config.limits)
        self._sensing = SharedWait(_SENSORS_WAIT_S)
        self._handlers: dict[str, _Handler] = {
            "Status": self._status,
            "Plan": self._plan,
            "Hold": self._hold,
            "Release": self._release,
            "Report": self._report,
            "Log": self._log,
            "Change": self._change,
            "Learned": self._learned,
            "Forget": self._forget,
            "Preview": self._preview,
        }

    async def call(
        self, session: Session, method: str, parameters: dict[str, Any], attached: DescriptorGrant | None
    ) -> dict[str, Any] | AsyncIterator[dict[str, Any]]:
        if attached is not None and method != "LoadModel":
            raise UsageError(f"{method}: takes no descriptor, and one came with the call")
        for name in ("name", "network", "target", "reason", "app", "lease", "configuration_text"):
            text = parameters.get(name)
            if isinstance(text, str) and len(text) > TEXT_CHARACTERS:
                raise UsageError(f"{method}: {name} has {len(text)} characters; at most {TEXT_CHARACTERS}")
        if method == "Watch":
            return self._watch(parameters)
        if handler := self._handlers.get(method):
            return await handler(session, parameters)
        return await (await self._programs()).call(session, method, parameters, attached)

    async def _programs(self) -> Programs:
        if self._known is None:
            made = await asyncio.to_thread(self._new_programs)
            self._known = self._known or made
        return self._known

    def _new_programs(self) -> Programs:
        from .programs import Programs  # in the loop's thread, loading it would keep all clients waiting

        context = self._context
        return Programs(context.board, context.surfaces, context.memory, self._warmth, context.config.clients.networks)

    def closed(self, session: Session) -> None:
        if self._known is not None:
            self._known.closed(session)
        if session in self._holding:
            self._holding.discard(session)
            self._context.board.drop(Holder(session, session.peer.pid, session.peer.uid, ""))
            self._learner.ended()

    async def _status(self, session: Session, parameters: _Parameters) -> dict[str, Any]:
        context = self._context
        context.sensors.want()
        if context.sensors.round_age_s > _SENSORS_OLD_S and not context.sensors.is_slow:
            self._sensing.begin(context.sensors.next_round)
            await self._sensing.ended()
        snapshot = await context.board.fresh()
        self._proposals.follow(snapshot.leases.values(), self._learner.request)
        age_s = context.sensors.round_age_s
        old = (f"power and temperatures: read {age_s:.0f} s ago",) if _SENSORS_TOLD_S < age_s < math.inf else ()
        troubles = (*old, *context.surfaces.troubles, *context.config_file.notes)
        troubles += (context.config_file.default_note,) if context.config_file.default_note else ()
        profile, proposed = context.surfaces.profile, self._proposals.of_lease
        told = status(snapshot, context.sensors, context.description, profile, troubles, self._learner, proposed)
        return {"status": {"version": context.version, **told, "uptime_s": time.monotonic() - context.started_s}}

    async def _plan(self, session: Session, parameters: _Parameters) -> dict[str, Any]:
        progress = await (await self._programs()).progress(session, HoldRequest.read(parameters))
        plan_request = progress.request
        if plan_request.constraints.hours is not None:
            raise UsageError(_BY_BATTERY.format("Plan", plan_request.target))
        limits = await self._context.board.limits()
        try:
            plan = progress.proposed(limits)
        except TargetNotAttainable as error:
            raise await self._proposals.with_proposal(error, plan_request) from error
        proposal = await self._proposals.of(plan_request, plan.configuration)
        told = _told(plan)
        return {"plan": told if proposal is None else {**(told or {}), "proposal": proposal.to_json()}}

    async def _hold(self, session: Session, parameters: _Parameters) -> dict[str, Any]:
        request = HoldRequest.read(parameters)
        progress, plan = await self._planned(session, request)
        app = request.app or process_name(session.peer)
        own = app == DEFAULT_APP and session.peer.pid == os.getpid()
        holder = Holder(session, session.peer.pid, session.peer.uid, printable(app), yields=own, standby=request.standby)
        self._holding.add(session)
        lease, applied = await self._context.board.hold(holder, plan, printable(request.reason))
        self._learner.began(lease, progress)
        self._asked[lease.id] = request
        plan = lease.plan
        sharing = sharing_state(lease.id, self._context.board.snapshot)
        told = {"lease": lease.id, "plan": _told(plan), "applied": applied.to_json(), "limit_ms": plan.limit_ms}
        return {**told, **sharing, "corrected": self._learner.corrected(lease)}

    async def _preview(self, session: Session, parameters: _Parameters) -> dict[str, Any]:
        plan = (await self._planned(session, HoldRequest.read(parameters)))[1]
        if plan.constraints.hours is not None:
            raise UsageError(_BY_BATTERY.format("Preview", parameters["target"]))
        return {"configuration": (await self._context.board.preview(plan, session.peer.uid))._asdict()}

    async def _planned(self, session: Session, request: HoldRequest) -> tuple[LeaseProgress | None, LeasePlan]:
        configuration = await self._configuration(request)
        if configuration is not None:
            if request.target is not None or request.network is not None:
                raise UsageError("Hold: expected either a network and a target, or a configuration")
            left = governed(request.configuration) if isinstance(request.configuration, str) else frozenset()
            return None, LeasePlan(
                configuration, constraints=BoardConstraints(request.ceiling_c, None, request.battery_wh), governed=left
            )
        if request.target is None:
            raise UsageError("Hold: expected a target, with a network or without, or a configuration")
        self._learner.prepare()
        progress = await (await self._programs()).progress(session, request)
        # The power budget with this lease is known when it is granted.
        limits = replace(await self._context.board.limits(), power_mw=None, because="")
        try:
            return progress, progress.beginning.plan(limits)
        except TargetNotAttainable as error:
            raise await self._proposals.with_proposal(error, progress.request) from error

    async def _configuration(self, request: HoldRequest) -> FrequencyConfiguration | None:
        given = request.configuration
        if given is None or isinstance(given, Mapping):
            return None if given is None else FrequencyConfiguration(**given)
        grid, limits = await self._context.board.grid(), await self._context.board.limits()
        ranges = {axis: getattr(limits, axis) for axis in AXES}
        try:
            levels = {axis: [one for one in grid.levels(axis) if low <= one <= high] for axis, (low, high) in ranges.items()}
            return parse_configuration(str(given), levels)
        except GridError as error:
            raise UsageError(str(error)) from error

    async def _release(self, session: Session, parameters: _Parameters) -> dict[str, Any]:
        board = self._context.board
        lease = self._lease(session, parameters)
        used = self._learner.used(lease)
        await board.release(lease, session.peer.uid, "" if lease.holder.connection is session else _by(session))
        self._learner.ended()
        held = board.snapshot.leases
        self._asked = {name: asked for name, asked in self._asked.items() if name in held}
        await asyncio.to_thread(self._context.memory.save)
        return {"used": used}

    async def _change(self, session: Session, parameters: _Parameters) -> dict[str, Any]:
        board = self._context.board
        lease = self._lease(session, parameters)
        given = {name: value for name, value in parameters.items() if name != "lease" and value is not None}
        request = self._asked.get(lease.id, HoldRequest())._replace(**{**given, "configuration": None})
        if request.target is None:
            raise UsageError("Change: expected a lease for a target, or one")
        request = request._replace(target=str(parse_target(request.target)))
        progress = await (await self._programs()).progress(session, request)
        renewed = await board.replan(lease, progress.beginning, f"asked for {request.target} from now on", asked=True)
        if renewed is None:
            raise UsageError(f"lease {lease.id} has ended")
        if "network" in given:
            lease.frames.forget()
        self._learner.follow(renewed, progress)
        self._asked[lease.id] = request
        applied = board.snapshot.applied
        plan, set_to = renewed.plan, None if applied is None else applied.to_json()
        return {"plan": _told(plan), "applied": set_to, "limit_ms": plan.limit_ms, **sharing_state(lease.id, board.snapshot)}

    async def _report(self, session: Session, parameters: _Parameters) -> dict[str, Any]:
        latencies = parameters["latency_ms"]
        if len(latencies) > _FRAMES_PER_REPORT or any(not 0 <= latency <= LONGEST_FRAME_MS for latency in latencies):
            raise UsageError(f"Report: expected at most {_FRAMES_PER_REPORT} latencies from 0 to {LONGEST_FRAME_MS:g} ms")
        lease = self._lease(session, parameters)
        self._learner.report(lease, [float(latency) for latency in latencies])
        missed = self._learner.missed(lease.id)
        return {
            "observed": lease.frames.observed(),
            "missed": None if missed is None else missed.to_json(),
            "doubted": self._learner.doubt(lease.id),
            "silent": self._learner.silent(lease),
        }

    async def _learned(self, session: Session, parameters: _Parameters) -> dict[str, Any]:
        found = self._context.memory.learned(session.peer.uid or None, parameters.get("name"))
        return {"programs": [asdict(one) for one in found]}

    async def _forget(self, session: Session, parameters: _Parameters) -> dict[str, Any]:
        count = self._context.memory.drop(session.peer.uid or None, parameters.get("name"))
        await asyncio.to_thread(self._context.memory.save)
        return {"programs": count}

    async def _log(self, session: Session, parameters: _Parameters) -> dict[str, Any]:
        entries = self._context.record.entries(lease=parameters.get("lease"))
        return {"entries": [asdict(entry) for entry in entries]}

    async def _watch(self, parameters: _Parameters) -> AsyncIterator[dict[str, Any]]:
        async for entry in self._context.record.follow(parameters.get("lease"), parameters.get("after")):
            yield {"entry": asdict(entry)}

    def _lease(self, session: Session, parameters: _Parameters) -> Lease:
        snapshot = self._context.board.snapshot
        return find(snapshot.leases, parameters["lease"], uid=session.peer.uid, ended=snapshot.ended)


def _told(plan: LeasePlan) -> dict[str, Any] | None:
    if plan.chosen is None or plan.request is None:
        return None
    return {**plan.chosen.to_json(_FRONT_SENT), "simulated": plan.request.simulated}


def _by(session: Session) -> str:
    return f"uid {session.peer.uid} ({printable(process_name(session.peer))}, pid {session.peer.pid})"


class AdminApi:
    """Calls of ``io.jetdvfs.admin``, for root only."""

    def __init__(self, context: Context) -> None:
        self.interface = ADMIN
        self._context = context

    async def call(
        self, session: Session, method: str, parameters: dict[str, Any], attached: DescriptorGrant | None
    ) -> dict[str, Any]:
        if attached is not None:
            raise UsageError(f"{method}: takes no descriptor, and one came with the call")
        if method == "Reload":
            return {"warnings": await self.reload()}
        held, report = await self._context.board.restore(by=f"uid {session.peer.uid} (restore, pid {session.peer.pid})")
        return {
            "leases": held,
            "restored": [f"{write.path} = {write.value}" for write in report.restored],
            "left": list(report.left),
            "failed": list(report.failed),
        }

    async def reload(self) -> list[str]:
        """Read the configuration again; return its remarks.

        Raises:
            UsageError: the file is wrong; the previous configuration stays in force.
        """
        try:
            config = self._context.config_file.reload()
        except UsageError as error:
            log.error("the configuration was not read again: %s", error, extra=fields(TROUBLE))
            raise
        missed = await self._context.board.reconfigure(config)
        log.info("the configuration was read again")
        for warning in config.warnings:
            log.warning("%s", warning)
        return [*config.warnings, *missed]

    def closed(self, session: Session) -> None:
        """No resources per connection."""
