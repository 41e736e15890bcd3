# SPDX-License-Identifier: Apache-2.0
"""What the two interfaces answer: from checked parameters to the controller and the surfaces, and back to JSON."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..kernels.grid import FrequencyConfiguration
from ..kernels.inputs import read_input
from ..kernels.surface import Surface
from .config import Config, load_config
from .controller import Controller
from .errors import DaemonError, LimitReached, TargetNotAttainable, UsageError
from .hardware.hardware import Hardware
from .leases import Holder, Lease, Need, observed, raised_by
from .planner import Limits, Plan, plan
from .surfaces import LoadedNetwork, Surfaces, register
from .targets import listing
from .watch.events import Events
from .wire.interface import Interface
from .wire.protocol import ADMIN_INTERFACE, DEFINITIONS, INTERFACE, TEXT_CHARACTERS
from .wire.server import Peer, Session

_Parameters = Mapping[str, Any]
_Handler = Callable[[Session, _Parameters, Sequence[int]], Awaitable[dict[str, Any]]]

_INPUTS = 64
_ACCEPTED = 64
_FRAMES_PER_REPORT = 1024
_LONGEST_FRAME_MS = 1e7


@dataclass(frozen=True)
class Context:
    """What the interfaces work on. ``writes`` are the last ones made, oldest first."""

    version: str
    hardware: Hardware
    controller: Controller
    surfaces: Surfaces
    config: Config
    events: Events
    writes: deque[tuple[str, str]]
    started_s: float


class Api:
    """``io.jetdvfs``: what applications may ask."""

    def __init__(self, context: Context) -> None:
        self.interface = Interface.load(DEFINITIONS[INTERFACE], targets=listing())
        self._context = context
        self._networks: dict[Session, dict[str, LoadedNetwork]] = {}
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
        }

    async def call(
        self, session: Session, method: str, parameters: dict[str, Any], descriptors: Sequence[int]
    ) -> dict[str, Any]:
        for name in ("name", "network", "target", "reason", "app", "lease"):
            text = parameters.get(name)
            if isinstance(text, str) and len(text) > TEXT_CHARACTERS:
                raise UsageError(f"{method}: {name} has {len(text)} characters; at most {TEXT_CHARACTERS}")
        return await self._handlers[method](session, parameters, descriptors)

    def closed(self, session: Session) -> None:
        self._networks.pop(session, None)
        self._context.controller.drop(session)

    async def _status(self, session: Session, parameters: _Parameters, _: Sequence[int]) -> dict[str, Any]:
        context, hardware, controller = self._context, self._context.hardware, self._context.controller
        mode = hardware.mode()
        degraded = [*hardware.notes, *context.events.notes, *controller.troubles, *controller.notes]
        degraded += context.surfaces.troubles
        current: dict[str, int] | None = None
        policies: list[dict[str, Any]] = []
        try:
            current = hardware.current()._asdict()
            policies = _policies(hardware)
        except DaemonError as error:
            degraded.append(str(error))
        profile = context.surfaces.profile
        status = {
            "version": context.version,
            "board": hardware.description.name,
            "title": hardware.description.title,
            "profile": None
            if profile is None
            else {"name": profile.manifest.name, "board": profile.manifest.board, "simulated": profile.manifest.simulated},
            "configuration": current,
            "cpu_policies": policies,
            "applied": None if controller.applied is None else controller.applied.to_json(),
            "floors": [asdict(floor) for floor in controller.floors.floors],
            "leases": [self._lease(lease) for lease in controller.leases],
            "rails_mw": hardware.sensors.rails_mw(),
            "energy_rails": list(hardware.description.energy_rails),
            "temperatures_mc": hardware.sensors.temperatures_mc(),
            "mode": None if mode is None else {"id": mode.id, "name": mode.name},
            "throttled": list(hardware.throttled()),
            "over_current": [asdict(event) for event in context.events.events],
            "baseline": "held" if hardware.touched else "none",
            "degraded": degraded,
            "writes": [{"path": path, "value": value} for path, value in context.writes],
            "uptime_s": time.monotonic() - context.started_s,
        }
        return {"status": status}

    def _lease(self, lease: Lease) -> dict[str, Any]:
        need = lease.need
        return {
            "lease": lease.id,
            "app": lease.holder.app,
            "pid": lease.holder.pid,
            "uid": lease.holder.uid,
            "reason": lease.reason,
            "target": need.target or None,
            "network": need.network or None,
            "fps": need.fps,
            "configuration": need.configuration._asdict(),
            "raised_by": raised_by(lease, self._context.controller.leases),
            "held_s": time.monotonic() - lease.since_s,
            "predicted": need.predicted,
            "observed": observed(lease.latencies_ms),
            "boundary": need.boundary and need.boundary.to_json(),
        }

    async def _load_model(self, session: Session, parameters: _Parameters, descriptors: Sequence[int]) -> dict[str, Any]:
        if len(descriptors) != 1:
            raise UsageError(f"LoadModel: exactly one descriptor must come with the call, {len(descriptors)} did")
        self._room(session)
        inputs = [read_input(item) for item in parameters["inputs"]]
        if not 1 <= len(inputs) <= _INPUTS:
            raise UsageError(f"LoadModel: {len(inputs)} inputs; expected 1 to {_INPUTS}")
        loaded = await self._context.surfaces.decompose(
            descriptors[0], inputs, parameters.get("name") or "model", _accepted(parameters)
        )
        return self._keep(session, loaded)

    async def _load_network(self, session: Session, parameters: _Parameters, _: Sequence[int]) -> dict[str, Any]:
        self._room(session)
        return self._keep(session, register(parameters["network"], _accepted(parameters)))

    async def _unload(self, session: Session, parameters: _Parameters, _: Sequence[int]) -> dict[str, Any]:
        self._network(session, parameters)
        del self._networks[session][parameters["network"]]
        return {}

    async def _predict(self, session: Session, parameters: _Parameters, _: Sequence[int]) -> dict[str, Any]:
        surface = await self._surface(session, parameters)
        fps = parameters.get("fps")
        if parameters.get("configuration") is not None:
            wanted = {"at": FrequencyConfiguration(**parameters["configuration"])}
        else:
            energy = surface.energy_mj if fps is None else surface.energy_per_frame_mj(fps)
            allowed = self._context.controller.limits().permits(surface.grid)
            wanted = {
                "top": surface.grid.top,
                "fastest": _lowest(surface, np.where(allowed, surface.latency_ms, np.inf)),
                "frugal": _lowest(surface, np.where(allowed, energy, np.inf)),
            }
        predictions = {name: _prediction(surface, configuration, fps) for name, configuration in wanted.items()}
        boundary = surface.boundary and surface.boundary.to_json()
        return {"predictions": predictions, "simulated": self._simulated(), "boundary": boundary}

    async def _plan(self, session: Session, parameters: _Parameters, _: Sequence[int]) -> dict[str, Any]:
        surface = await self._surface(session, parameters)
        return {"plan": self._plan_json(self._choose(surface, parameters, self._context.controller.limits()))}

    async def _hold(self, session: Session, parameters: _Parameters, _: Sequence[int]) -> dict[str, Any]:
        target, configuration = parameters.get("target"), parameters.get("configuration")
        planned: dict[str, Any] | None = None
        if configuration is not None:
            if target is not None or parameters.get("network") is not None:
                raise UsageError("Hold: expected either a network and a target, or a configuration")
            need = Need(FrequencyConfiguration(**configuration))
        elif target is None or parameters.get("network") is None:
            raise UsageError("Hold: expected a network and a target, or a configuration")
        else:
            surface = await self._surface(session, parameters)
            chosen = self._choose(surface, parameters, self._context.controller.limits())
            planned = self._plan_json(chosen)
            name = self._network(session, parameters).name
            need = _need(chosen, name, lambda limits: self._choose(surface, parameters, limits))
        app = parameters.get("app") or _process_name(session.peer)
        holder = Holder(session, session.peer.pid, session.peer.uid, _printable(app))
        lease, applied = self._context.controller.hold(holder, need, _printable(parameters.get("reason") or ""))
        return {"lease": lease.id, "plan": planned, "applied": applied.to_json()}

    async def _release(self, session: Session, parameters: _Parameters, _: Sequence[int]) -> dict[str, Any]:
        controller = self._context.controller
        controller.release(controller.leases.find(parameters["lease"], uid=session.peer.uid))
        return {}

    async def _report(self, session: Session, parameters: _Parameters, _: Sequence[int]) -> dict[str, Any]:
        latencies = parameters["latency_ms"]
        if len(latencies) > _FRAMES_PER_REPORT or any(not 0 <= latency <= _LONGEST_FRAME_MS for latency in latencies):
            raise UsageError(f"Report: expected at most {_FRAMES_PER_REPORT} latencies from 0 to {_LONGEST_FRAME_MS:g} ms")
        lease = self._context.controller.leases.find(parameters["lease"], uid=session.peer.uid)
        lease.latencies_ms.extend(map(float, latencies))
        return {}

    def _room(self, session: Session) -> None:
        limit = self._context.config.clients.networks
        if len(self._networks.get(session, ())) >= limit:
            raise LimitReached(f"{limit} networks are loaded on this connection, as many as may be; unload one")

    def _keep(self, session: Session, loaded: LoadedNetwork) -> dict[str, Any]:
        self._count += 1
        handle = f"n{self._count}"
        self._networks.setdefault(session, {})[handle] = loaded
        return {"network": {"network": handle, **loaded.info}}

    def _network(self, session: Session, parameters: _Parameters) -> LoadedNetwork:
        known = self._networks.get(session, {})
        loaded = known.get(parameters["network"])
        if loaded is None:
            names = ", ".join(known) or "none"
            raise UsageError(f"network {parameters['network']!r:.40} is not loaded on this connection; loaded: {names}")
        return loaded

    async def _surface(self, session: Session, parameters: _Parameters) -> Surface:
        network = self._network(session, parameters)
        return await self._context.surfaces.surface(network, parameters.get("method") or "timeline")

    def _choose(self, surface: Surface, parameters: _Parameters, limits: Limits) -> Plan:
        """The plan for what a call asked for, within these limits."""
        fps, confidence = parameters.get("fps"), parameters.get("confidence")
        try:
            return plan(surface, parameters["target"], fps=fps, confidence=confidence, limits=limits)
        except TargetNotAttainable as error:
            if reasons := self._context.controller.floors.reasons:
                raise TargetNotAttainable(f"{error}; {'; '.join(reasons)}") from error
            raise

    def _plan_json(self, chosen: Plan) -> dict[str, Any]:
        return {**chosen.to_json(), "simulated": self._simulated()}

    def _simulated(self) -> bool:
        profile = self._context.surfaces.profile
        return profile is not None and profile.manifest.simulated


class AdminApi:
    """``io.jetdvfs.admin``: what only root may ask."""

    def __init__(self, context: Context, config_path: Path | None) -> None:
        self.interface = Interface.load(DEFINITIONS[ADMIN_INTERFACE])
        self._context = context
        self._config_path = config_path

    async def call(
        self, session: Session, method: str, parameters: dict[str, Any], descriptors: Sequence[int]
    ) -> dict[str, Any]:
        controller = self._context.controller
        if method == "Reload":
            config = load_config(self._config_path)
            controller.reconfigure(config)
            return {"warnings": list(config.warnings)}
        held = len(controller.leases)
        report = controller.give_back()
        return {
            "leases": held,
            "restored": [f"{write.path} = {write.value}" for write in report.restored],
            "left": list(report.left),
            "failed": list(report.failed),
        }

    def closed(self, session: Session) -> None:
        """Nothing here belongs to a connection."""


def _accepted(parameters: _Parameters) -> Sequence[str]:
    """The operators at which a list of launches may end."""
    accepted: list[str] = parameters.get("accept_boundary") or []
    if len(accepted) > _ACCEPTED or any(len(name) > TEXT_CHARACTERS for name in accepted):
        raise UsageError(f"accept_boundary: expected at most {_ACCEPTED} operators of at most {TEXT_CHARACTERS} characters")
    return accepted


def _policies(hardware: Hardware) -> list[dict[str, Any]]:
    """What each cpufreq policy says of itself."""
    found = []
    for axis, readings in hardware.read().items():
        for reading in readings if axis not in ("gpu_hz", "emc_hz") else ():
            name, leads = reading.domain, axis == "cpu_khz"
            shown = {"accepted_khz": reading.accepted, "effective_khz": reading.effective, "governor": reading.mode}
            found.append({"policy": name, **shown, "leads": leads})
    return found


def _need(chosen: Plan, network: str, choose: Callable[[Limits], Plan]) -> Need:
    """What a lease needs by a plan, and by the next one should the limits change."""
    return Need(
        chosen.configuration,
        str(chosen.target),
        network,
        chosen.fps,
        chosen.choice.to_json(),
        lambda limits: _need(choose(limits), network, choose),
        chosen.boundary,
    )


def _prediction(surface: Surface, configuration: FrequencyConfiguration, fps: float | None) -> dict[str, Any]:
    index = surface.grid.index(configuration)
    found: dict[str, Any] = {
        "configuration": configuration._asdict(),
        "latency_ms": float(surface.latency_ms[index]),
        "power_mw": float(surface.power_mw[index]),
        "energy_mj": float(surface.energy_mj[index]),
    }
    if fps is not None:
        found["energy_per_frame_mj"] = float(surface.energy_per_frame_mj(fps)[index])
    return found


def _lowest(surface: Surface, figure: Any) -> FrequencyConfiguration:
    cpu, gpu, emc = np.unravel_index(int(np.argmin(figure)), surface.grid.shape)
    return surface.grid.configuration((int(cpu), int(gpu), int(emc)))


def _process_name(peer: Peer) -> str:
    """What a client calls itself that gave no name. It is a process of this machine, whatever root the board's files have."""
    import psutil  # takes memory, and most clients give a name

    try:
        return str(psutil.Process(peer.pid).name())
    except psutil.Error:
        return f"pid {peer.pid}"


def _printable(text: str) -> str:
    """The text without control characters: it will be shown on terminals and in logs."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
