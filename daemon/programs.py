# SPDX-License-Identifier: Apache-2.0
"""Clients' programs: networks loaded on connections, their predictions, and the start of leases for targets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from ..kernels.execution import FrameOverhead
from ..kernels.grid import FrequencyConfiguration, FrequencyGrid
from ..kernels.inputs import parse_input, read_input
from ..kernels.surface import Surface
from ..kernels.text import printable
from .descriptors.disposal import DescriptorGrant
from .errors import LimitReached, UsageError
from .leases.board.service import BoardService
from .leases.learning.observation_store import ObservationStore, ProgramKey
from .leases.learning.progress import LeaseProgress
from .leases.learning.surface_corrector import SurfaceCorrector
from .leases.learning.unpredicted_program import UnpredictedProgram
from .planning.lease_plan import PlanRequest
from .planning.limits import BoardConstraints
from .planning.modes import share_on
from .planning.plan import Caveats, Planning
from .planning.targets import BatteryLifeTarget, TargetFigures, check_phase, parse_target
from .planning.thermal_state import ThermalState
from .surfaces import LoadedNetwork, SurfaceRequest, Surfaces
from .wire.hold_request import HoldRequest
from .wire.protocol import TEXT_CHARACTERS
from .wire.serving.session import Session, process_name

if TYPE_CHECKING:
    import numpy as np

    from ..kernels.network import TensorSpec
else:
    from ..kernels.lazy import numpy as np

_INPUTS = 64
_ACCEPTED = 64
_NETWORK_BYTES_PER_USER = 16 << 20

_Parameters = Mapping[str, Any]


class NetworksOfConnections:
    """Networks by connection and handle; at most ``most`` on each."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._networks: dict[Session, dict[str, LoadedNetwork]] = {}
        self._count = 0

    def closed(self, session: Session) -> None:
        self._networks.pop(session, None)

    def check_room(self, session: Session) -> None:
        """Raises LimitReached."""
        if len(self._networks.get(session, ())) >= self._most:
            raise LimitReached(f"{self._most} networks are loaded on this connection, as many as may be; unload one")

    def keep(self, session: Session, loaded: LoadedNetwork) -> str:
        """Keep a network and return its handle. Raises LimitReached."""
        own = (kept for other, kept in self._networks.items() if other.peer.uid == session.peer.uid)
        held = sum(len(network.payload) for networks in own for network in networks.values())
        if held + len(loaded.payload) > _NETWORK_BYTES_PER_USER:
            raise LimitReached(f"uid {session.peer.uid} has networks of {held} bytes loaded, as much as may be; unload one")
        self._count += 1
        handle = f"n{self._count}"
        self._networks.setdefault(session, {})[handle] = loaded
        return handle

    def find(self, session: Session, handle: str) -> LoadedNetwork:
        """Raises UsageError."""
        known = self._networks.get(session, {})
        loaded = known.get(handle)
        if loaded is None:
            names = ", ".join(known) or "none"
            raise UsageError(f"network {handle!r:.40} is not loaded on this connection; loaded: {names}")
        return loaded

    def unload(self, session: Session, handle: str) -> None:
        """Raises UsageError."""
        self.find(session, handle)
        del self._networks[session][handle]


class Programs:
    """Programs of all connections.

    Args:
        warmth: the board's present thermal state.
        networks: how many a connection may have loaded.
    """

    def __init__(
        self,
        board: BoardService,
        surfaces: Surfaces,
        memory: ObservationStore,
        warmth: Callable[[], ThermalState | None],
        networks: int,
    ) -> None:
        self._board, self._surfaces, self._memory = board, surfaces, memory
        self._networks = NetworksOfConnections(networks)
        self._plans = Planning()
        self._corrections = SurfaceCorrector(memory, warmth)

    async def call(
        self, session: Session, method: str, parameters: _Parameters, attached: DescriptorGrant | None
    ) -> dict[str, Any]:
        if method == "LoadModel":
            return await self._load_model(session, parameters, attached)
        handlers = {"LoadNetwork": self._load_network, "Unload": self._unload, "Predict": self._predict}
        return await handlers[method](session, parameters)

    def closed(self, session: Session) -> None:
        self._networks.closed(session)

    async def _load_model(self, session: Session, parameters: _Parameters, attached: DescriptorGrant | None) -> dict[str, Any]:
        if attached is None:
            raise UsageError("LoadModel: exactly one descriptor must come with the call, none did")
        self._networks.check_room(session)
        inputs = [_input(item) for item in parameters["inputs"]]
        inputs += map(parse_input, parameters.get("input_texts") or ())
        if len(inputs) > _INPUTS:
            raise UsageError(f"LoadModel: {len(inputs)} inputs; expected at most {_INPUTS}")
        loaded = await self._surfaces.decompose(
            attached, inputs, printable(parameters.get("name") or "model"), _accepted(parameters)
        )
        return self._told(session, loaded)

    async def _load_network(self, session: Session, parameters: _Parameters) -> dict[str, Any]:
        self._networks.check_room(session)
        loaded = await self._surfaces.check(parameters["network"], session.peer.uid, _accepted(parameters))
        return self._told(session, loaded)

    def _told(self, session: Session, loaded: LoadedNetwork) -> dict[str, Any]:
        return {"network": {"network": self._networks.keep(session, loaded), **loaded.info}}

    async def _unload(self, session: Session, parameters: _Parameters) -> dict[str, Any]:
        self._networks.unload(session, parameters["network"])
        return {}

    async def _predict(self, session: Session, parameters: _Parameters) -> dict[str, Any]:
        progress = await self.progress(session, HoldRequest.read({"target": "min-energy", **parameters}))
        surface = progress.request.surface
        fps = parameters.get("fps")
        figures = self._plans.outlook(surface, fps, None)
        if parameters.get("configuration") is not None:
            wanted = {"at": FrequencyConfiguration(**parameters["configuration"])}
        else:
            allowed = (await self._board.limits()).permits(surface.grid)
            wanted = {
                "top": surface.grid.top,
                "fastest": surface.grid.at(np.where(allowed, figures.latency_ms, np.inf).argmin()),
                "frugal": surface.grid.at(np.where(allowed, figures.energy_mj, np.inf).argmin()),
            }
        predictions = {name: _prediction(surface, figures, configuration, fps) for name, configuration in wanted.items()}
        return {
            "predictions": predictions,
            "simulated": self._surfaces.simulated,
            "boundary": None,
            **Caveats.of(surface).to_json(),
        }

    async def progress(self, session: Session, request: HoldRequest) -> LeaseProgress:
        """First progress of a lease for a target: its surface corrected from memory, and a function to remake it."""
        if request.network is None:
            return await self._unpredicted(session, request)
        network = self._networks.find(session, request.network)
        if request.target:
            check_phase(parse_target(request.target), network.info["phase"])
        fps = request.fps
        stated: dict[str, Any] = {name: value for name, value in (request.beside or {}).items() if value is not None}
        seen = self._board.snapshot.reading
        share = 1.0 if seen.modes is None else share_on(seen.masks, seen.modes)
        wanted = SurfaceRequest(request.method or "timeline", request.execution, FrameOverhead(**stated), share)
        original = await self._surfaces.surface(network, wanted, uid=session.peer.uid)
        key = ProgramKey(session.peer.uid, self._surfaces.name(network, wanted))
        remembered = self._memory.summary(key)
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

    async def _unpredicted(self, session: Session, request: HoldRequest) -> LeaseProgress:
        if useless := [name for name in ("method", "execution", "beside") if getattr(request, name) is not None]:
            raise UsageError(f"Hold: {', '.join(useless)}: only with a network")
        profile = self._surfaces.profile
        surface = await asyncio.to_thread(_flat, profile.identity.grid if profile else await self._board.grid())
        plan_request = self._plan_request(surface, request, "")
        app = request.app or process_name(session.peer)
        key = ProgramKey(session.peer.uid, printable(app))
        unknown = UnpredictedProgram(plan_request, self._memory.observations(key), self._board.snapshot.reading.modes)
        return LeaseProgress(
            key, plan_request, partial(self._corrections.make, surface, None, plan_request.fps), unknown=unknown, exploring=True
        )

    def _plan_request(self, surface: Surface, request: HoldRequest, network: str) -> PlanRequest:
        target = parse_target(request.target or "")
        hours = target.limit if isinstance(target, BatteryLifeTarget) else None
        constraints = BoardConstraints(request.ceiling_c, hours, request.battery_wh)
        simulated = self._surfaces.simulated
        return PlanRequest(self._plans, surface, str(target), request.fps, request.confidence, network, simulated, constraints)


@lru_cache(maxsize=1)
def _flat(grid: FrequencyGrid) -> Surface:
    from ..kernels.correction.flat import flat_surface  # loads NumPy: in a thread, or all clients would wait

    return flat_surface(grid)


def _input(item: Mapping[str, Any]) -> TensorSpec:
    try:
        values = {} if item.get("value") is None else {"value": [json.loads(text) for text in item["value"]]}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"LoadModel: an input's value is a list of JSON texts ({error})") from error
    return read_input({**item, **values})


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
