# SPDX-License-Identifier: Apache-2.0
"""Answers to applications: from checked parameters to JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from ..kernels.errors import GridError
from ..kernels.execution import FrameOverhead
from ..kernels.grid import FrequencyConfiguration, FrequencyGrid, governed, parse_configuration
from ..kernels.surface import Surface
from ..kernels.text import printable
from ..kernels.units import AXES
from ..profiles.board import BoardDescription
from .config import Config, ConfigFile
from .descriptors.disposal import DescriptorGrant
from .errors import LimitReached, TargetNotAttainable, UsageError
from .hardware.sensors.sampled import SampledSensors
from .leases.board.service import BoardService, SharedWait
from .leases.board.status import sharing_state, status
from .leases.default import DEFAULT_APP
from .leases.learning.learner import Learner
from .leases.learning.observation_store import ObservationStore, ProgramKey
from .leases.learning.progress import LeaseProgress
from .leases.learning.surface_corrector import SurfaceCorrector
from .leases.lease import Holder, Lease, find
from .leases.mode_proposals import ModeProposals
from .planning.lease_plan import LeasePlan, PlanRequest
from .planning.limits import BoardConstraints, Limits
from .planning.plan import Caveats, Planning
from .planning.targets import BatteryLifeTarget, TargetFigures, check_phase, listing, parse_target
from .planning.thermal_state import warmth_of
from .surfaces import LoadedNetwork, Surfaces
from .system.decision_log import DecisionLog
from .system.journal import TROUBLE, fields
from .wire.calls import ADMIN, PUBLIC
from .wire.hold_request import HoldRequest
from .wire.protocol import LONGEST_FRAME_MS, TEXT_CHARACTERS
from .wire.serving.session import Session, process_name

if TYPE_CHECKING:
    import numpy as np

    from ..kernels.network import TensorSpec
else:
    from ..kernels.lazy import numpy as np

log = logging.getLogger(__name__)

_Parameters = Mapping[str, Any]
_Handler = Callable[[Session, _Parameters, DescriptorGrant | None], Awaitable[dict[str, Any]]]

_INPUTS = 64
_ACCEPTED = 64
_NETWORK_BYTES_PER_USER = 16 << 20
_FRAMES_PER_REPORT = 1024
# Reading a front of hundreds takes a client longer than finding it; a picture needs no more.
_FRONT_SENT = 32
_SENSORS_OLD_S = 1.5
_SENSORS_WAIT_S = 0.5
_SENSORS_TOLD_S = 2.0
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
        self._networks: dict[Session, dict[str, LoadedNetwork]] = {}
        self._holding: set[Session] = set()
        self._plans = Planning()
        self._flat = lru_cache(maxsize=1)(_flat)
        self._asked: dict[str, HoldRequest] = {}
        warmth = partial(warmth_of, context.sensors, context.description)
        self._corrections = SurfaceCorrector(context.memory, warmth)
        self._learner = Learner(context.board, context.sensors, context.memory, warmth)
        self._proposals = ModeProposals(lambda: context.board.snapshot.reading, context.config.limits)
        self._sensing = SharedWait(_SENSORS_WAIT_S)
        self._count = 0
        self._handlers: dict[str, _Handler] = {
            "Status": self._status,
            "LoadModel": self._load_model,
            "LoadNetwork": self._load_network,
            "Unload": self._unload,
            "Predict": self._predict,
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
        return await self._handlers[method](session, parameters, attached)

    def closed(self, session: Session) -> None:
        self._networks.pop(session, None)
        if session in self._holding:
            self._holding.discard(session)
            self._context.board.drop(Holder(session, session.peer.pid, session.peer.uid, ""))
            self._learner.ended()

    async def _status(self, session: Session, parameters: _Parameters, _: DescriptorGrant | None) -> dict[str, Any]:
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

    async def _load_model(self, session: Session, parameters: _Parameters, attached: DescriptorGrant | None) -> dict[str, Any]:
        if attached is None:
            raise UsageError("LoadModel: exactly one descriptor must come with the call, none did")
        from ..kernels.inputs import parse_input  # not needed before the first model

        self._room(session)
        inputs = [_input(item) for item in parameters["inputs"]]
        inputs += map(parse_input, parameters.get("input_texts") or ())
        if len(inputs) > _INPUTS:
            raise UsageError(f"LoadModel: {len(inputs)} inputs; expected at most {_INPUTS}")
        loaded = await self._context.surfaces.decompose(
            attached, inputs, printable(parameters.get("name") or "model"), _accepted(parameters)
        )
        return self._keep(session, loaded)

    async def _load_network(self, session: Session, parameters: _Parameters, _: DescriptorGrant | None) -> dict[str, Any]:
        self._room(session)
        loaded = await self._context.surfaces.check(parameters["network"], session.peer.uid, _accepted(parameters))
        return self._keep(session, loaded)

    async def _unload(self, session: Session, parameters: _Parameters, _: DescriptorGrant | None) -> dict[str, Any]:
        self._network(session, parameters["network"])
        del self._networks[session][parameters["network"]]
        return {}

    async def _predict(self, session: Session, parameters: _Parameters, _: DescriptorGrant | None) -> dict[str, Any]:
        surface = await self._surface(session, parameters)
        fps = parameters.get("fps")
        figures = self._plans.outlook(surface, fps, None)
        if parameters.get("configuration") is not None:
            wanted = {"at": FrequencyConfiguration(**parameters["configuration"])}
        else:
            allowed = (await self._limits()).permits(surface.grid)
            wanted = {
                "top": surface.grid.top,
                "fastest": _lowest(surface, np.where(allowed, figures.latency_ms, np.inf)),
                "frugal": _lowest(surface, np.where(allowed, figures.energy_mj, np.inf)),
            }
        predictions = {name: _prediction(surface, figures, configuration, fps) for name, configuration in wanted.items()}
        return {"predictions": predictions, "simulated": self._simulated(), "boundary": None, **Caveats.of(surface).to_json()}

    async def _plan(self, session: Session, parameters: _Parameters, _: DescriptorGrant | None) -> dict[str, Any]:
        progress = await self._progress(session, HoldRequest.read(parameters))
        plan_request = progress.request
        if plan_request.constraints.hours is not None:
            raise UsageError(_BY_BATTERY.format("Plan", plan_request.target))
        limits = await self._limits()
        try:
            plan = progress.proposed(limits)
        except TargetNotAttainable as error:
            raise await self._proposals.with_proposal(error, plan_request) from error
        proposal = await self._proposals.of(plan_request, plan.configuration)
        told = _told(plan)
        return {"plan": told if proposal is None else {**(told or {}), "proposal": proposal.to_json()}}

    async def _hold(self, session: Session, parameters: _Parameters, _: DescriptorGrant | None) -> dict[str, Any]:
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

    async def _preview(self, session: Session, parameters: _Parameters, _: DescriptorGrant | None) -> dict[str, Any]:
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
            return None, LeasePlan(configuration, constraints=_constraints(request), governed=left)
        if request.target is None:
            raise UsageError("Hold: expected a target, with a network or without, or a configuration")
        self._learner.prepare()
        progress = await self._progress(session, request)
        # The power budget with this lease is known when it is granted.
        limits = replace(await self._limits(), power_mw=None, because="")
        try:
            return progress, progress.beginning.plan(limits)
        except TargetNotAttainable as error:
            raise await self._proposals.with_proposal(error, progress.request) from error

    async def _configuration(self, request: HoldRequest) -> FrequencyConfiguration | None:
        given = request.configuration
        if given is None or isinstance(given, Mapping):
            return None if given is None else FrequencyConfiguration(**given)
        try:
            return parse_configuration(str(given), await self._levels(await self._limits()))
        except GridError as error:
            raise UsageError(str(error)) from error

    async def _release(self, session: Session, parameters: _Parameters, _: DescriptorGrant | None) -> dict[str, Any]:
        board = self._context.board
        lease = self._lease(session, parameters)
        used = self._learner.used(lease)
        await board.release(lease, session.peer.uid, "" if lease.holder.connection is session else _by(session))
        await self._ended()
        return {"used": used}

    async def _ended(self) -> None:
        self._learner.ended()
        held = self._context.board.snapshot.leases
        self._asked = {name: asked for name, asked in self._asked.items() if name in held}
        await asyncio.to_thread(self._context.memory.save)

    async def _change(self, session: Session, parameters: _Parameters, _: DescriptorGrant | None) -> dict[str, Any]:
        board = self._context.board
        lease = self._lease(session, parameters)
        given = {name: value for name, value in parameters.items() if name != "lease" and value is not None}
        request = self._asked.get(lease.id, HoldRequest())._replace(**{**given, "configuration": None})
        if request.target is None:
            raise UsageError("Change: expected a lease for a target, or one")
        request = request._replace(target=str(parse_target(request.target)))
        progress = await self._progress(session, request)
        plan = await board.replan(lease, progress.beginning, f"asked for {request.target} from now on")
        if plan is None:
            raise UsageError(f"lease {lease.id} has ended")
        if "network" in given:
            lease.frames.forget()
        self._learner.follow(lease, progress)
        self._asked[lease.id] = request
        applied = board.snapshot.applied
        told = {"plan": _told(plan), "applied": None if applied is None else applied.to_json(), "limit_ms": plan.limit_ms}
        return {**told, **sharing_state(lease.id, board.snapshot)}

    async def _report(self, session: Session, parameters: _Parameters, _: DescriptorGrant | None) -> dict[str, Any]:
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

    async def _learned(self, session: Session, parameters: _Parameters, _: DescriptorGrant | None) -> dict[str, Any]:
        found = self._context.memory.learned(session.peer.uid or None, parameters.get("name"))
        return {"programs": [asdict(one) for one in found]}

    async def _forget(self, session: Session, parameters: _Parameters, _: DescriptorGrant | None) -> dict[str, Any]:
        count = self._context.memory.drop(session.peer.uid or None, parameters.get("name"))
        await asyncio.to_thread(self._context.memory.save)
        return {"programs": count}

    async def _levels(self, limits: Limits) -> dict[str, list[int]]:
        grid = await self._context.board.grid()
        return {
            axis: [level for level in grid.levels(axis) if low <= level <= high]
            for axis, (low, high) in ((axis, getattr(limits, axis)) for axis in AXES)
        }

    async def _log(self, session: Session, parameters: _Parameters, _: DescriptorGrant | None) -> dict[str, Any]:
        entries = self._context.record.entries(lease=parameters.get("lease"))
        return {"entries": [entry.to_json() for entry in entries]}

    async def _watch(self, parameters: _Parameters) -> AsyncIterator[dict[str, Any]]:
        async for entry in self._context.record.follow(parameters.get("lease"), parameters.get("after")):
            yield {"entry": entry.to_json()}

    def _lease(self, session: Session, parameters: _Parameters) -> Lease:
        snapshot = self._context.board.snapshot
        return find(snapshot.leases, parameters["lease"], uid=session.peer.uid, ended=snapshot.ended)

    def _room(self, session: Session) -> None:
        limit = self._context.config.clients.networks
        if len(self._networks.get(session, ())) >= limit:
            raise LimitReached(f"{limit} networks are loaded on this connection, as many as may be; unload one")

    def _keep(self, session: Session, loaded: LoadedNetwork) -> dict[str, Any]:
        own = (kept for other, kept in self._networks.items() if other.peer.uid == session.peer.uid)
        held = sum(len(network.payload) for networks in own for network in networks.values())
        if held + len(loaded.payload) > _NETWORK_BYTES_PER_USER:
            raise LimitReached(f"uid {session.peer.uid} has networks of {held} bytes loaded, as much as may be; unload one")
        self._count += 1
        handle = f"n{self._count}"
        self._networks.setdefault(session, {})[handle] = loaded
        return {"network": {"network": handle, **loaded.info}}

    def _network(self, session: Session, handle: str) -> LoadedNetwork:
        known = self._networks.get(session, {})
        loaded = known.get(handle)
        if loaded is None:
            names = ", ".join(known) or "none"
            raise UsageError(f"network {handle!r:.40} is not loaded on this connection; loaded: {names}")
        return loaded

    async def _progress(self, session: Session, request: HoldRequest) -> LeaseProgress:
        """First progress of a lease for a target: its surface corrected from memory, and a function to remake it."""
        if request.network is None:
            return await self._unpredicted(session, request)
        network = self._network(session, request.network)
        if request.target:
            check_phase(parse_target(request.target), network.info["phase"])
        method, execution, fps = request.method or "timeline", request.execution, request.fps
        stated: dict[str, Any] = {name: value for name, value in (request.beside or {}).items() if value is not None}
        surfaces, frame_overhead = self._context.surfaces, FrameOverhead(**stated)
        share = self._gpu_share()
        original = await surfaces.surface(
            network, method, execution=execution, frame_overhead=frame_overhead, gpu_share=share, uid=session.peer.uid
        )
        key = ProgramKey(session.peer.uid, surfaces.name(network, method, execution, frame_overhead, share))
        remembered = self._context.memory.summary(key)
        make = partial(self._corrections.make, original, key, fps)
        if (surface := self._corrections.kept(original, key, fps)) is None:
            surface = await asyncio.to_thread(make, (), True)
        return LeaseProgress(
            key,
            self._plan_request(surface, request, network.name),
            make,
            original=original,
            predicted=None if remembered is None else self._corrections.predicted(original, fps),
            remembered=remembered,
            trusted=request.trust_frames,
        )

    def _gpu_share(self) -> float | None:
        seen = self._context.board.snapshot.reading
        if seen.modes is None or not any(mode.masks for mode in seen.modes.table):
            return 1.0
        from .planning.modes import share_on  # needed where modes power units down

        return None if seen.mode is None else share_on(seen.mode, seen.modes)

    async def _unpredicted(self, session: Session, request: HoldRequest) -> LeaseProgress:
        if useless := [name for name in ("method", "execution", "beside") if getattr(request, name) is not None]:
            raise UsageError(f"Hold: {', '.join(useless)}: only with a network")
        profile = self._context.surfaces.profile
        surface = self._flat(profile.identity.grid if profile is not None else await self._context.board.grid())
        from .leases.learning.unpredicted_program import UnpredictedProgram  # most leases are for networks

        plan_request = self._plan_request(surface, request, "")
        key = ProgramKey(session.peer.uid, printable(request.app or process_name(session.peer)))
        unknown = UnpredictedProgram(
            plan_request, self._context.memory.observations(key), self._context.board.snapshot.reading.modes
        )
        return LeaseProgress(
            key, plan_request, partial(self._corrections.make, surface, None, plan_request.fps), unknown=unknown, exploring=True
        )

    async def _surface(self, session: Session, parameters: _Parameters) -> Surface:
        return (await self._progress(session, HoldRequest.read({"target": "min-energy", **parameters}))).request.surface

    def _plan_request(self, surface: Surface, request: HoldRequest, network: str) -> PlanRequest:
        target, constraints = str(parse_target(request.target or "")), _constraints(request)
        return PlanRequest(
            self._plans, surface, target, request.fps, request.confidence, network, self._simulated(), constraints
        )

    async def _limits(self) -> Limits:
        limits = (await self._context.board.fresh()).limits
        if isinstance(limits, Limits):
            return limits
        raise limits

    def _simulated(self) -> bool:
        profile = self._context.surfaces.profile
        return profile is not None and profile.identity.simulated


def _told(plan: LeasePlan) -> dict[str, Any] | None:
    if plan.chosen is None or plan.request is None:
        return None
    return {**plan.chosen.to_json(_FRONT_SENT), "simulated": plan.request.simulated}


def _by(session: Session) -> str:
    return f"uid {session.peer.uid} ({printable(process_name(session.peer))}, pid {session.peer.pid})"


def _input(item: Mapping[str, Any]) -> TensorSpec:
    from ..kernels.inputs import read_input

    try:
        values = {} if item.get("value") is None else {"value": [json.loads(text) for text in item["value"]]}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"LoadModel: an input's value is a list of JSON texts ({error})") from error
    return read_input({**item, **values})


def _flat(grid: FrequencyGrid) -> Surface:
    from ..kernels.correction.flat import flat_surface  # most leases are for networks

    return flat_surface(grid)


def _constraints(request: HoldRequest) -> BoardConstraints:
    target = parse_target(request.target) if request.target else None
    hours = target.limit if isinstance(target, BatteryLifeTarget) else None
    return BoardConstraints(request.ceiling_c, hours, request.battery_wh)


def _accepted(parameters: _Parameters) -> Sequence[str]:
    accepted: list[str] = parameters.get("accept_boundary") or []
    if len(accepted) > _ACCEPTED or any(len(name) > TEXT_CHARACTERS for name in accepted):
        raise UsageError(f"accept_boundary: expected at most {_ACCEPTED} operators of at most {TEXT_CHARACTERS} characters")
    return accepted


def _prediction(
    surface: Surface, figures: TargetFigures, configuration: FrequencyConfiguration, fps: float | None
) -> dict[str, Any]:
    index = surface.grid.index(configuration)
    found: dict[str, Any] = {
        "configuration": configuration._asdict(),
        "latency_ms": float(surface.latency_ms[index]),
        "power_mw": float(surface.power_mw[index]),
        "energy_mj": float(surface.energy_mj[index]),
        "guessed_share": float(surface.guessed_share[index]),
    }
    if fps is not None:
        found["energy_per_frame_mj"] = float(figures.energy_mj[index])
    if surface.temperature_c is not None:
        found["temperature_c"] = float(surface.temperature_c[index])
    return found


def _lowest(surface: Surface, figure: Any) -> FrequencyConfiguration:
    cpu, gpu, emc = np.unravel_index(int(np.argmin(figure)), surface.grid.shape)
    return surface.grid.configuration((int(cpu), int(gpu), int(emc)))


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
