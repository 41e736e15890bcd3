# SPDX-License-Identifier: Apache-2.0
"""Networks that clients loaded, and their surfaces: made by the workers, checked, kept in memory and on disk."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..kernels.cost.model import METHODS
from ..kernels.grid import FrequencyGrid
from ..kernels.network import Network, TensorSpec
from ..kernels.surface import Surface
from ..kernels.trees.node_table import Stamp
from ..profiles.bundle.bundle import read_manifest, table_stamps
from ..profiles.bundle.surface_cache import SurfaceCache, surface_key
from .descriptors.attached import Attached
from .errors import DaemonError, InputError, UsageError
from .profile import Profile
from .wire.protocol import TEXT_CHARACTERS
from .worker.workers import WorkerFailed, Workers

log = logging.getLogger(__name__)

_SURFACES_KEPT = 32
_SURFACE_BYTES = 64 << 20


@dataclass(frozen=True)
class LoadedNetwork:
    """A network somebody loaded, small enough to keep many: its JSON is compressed.

    Attributes:
        name, digest: as in :class:`jetdvfs.kernels.network.Network`.
        payload: its JSON, host calls included, compressed with zlib.
        info: what is told of it.
    """

    name: str
    digest: str
    payload: bytes
    info: Mapping[str, Any]


def register(data: Mapping[str, Any], accepted: Sequence[str] = ()) -> LoadedNetwork:
    """Check a network given as JSON and make it ready to keep.

    Args:
        data: the network.
        accepted: the operators at which its list of launches may end before it does.

    Raises:
        ModelError: it is not of the documented form.
        EndsEarly: its list of launches ends at another operator.
        InputError: it launches nothing, or its name is too long.
    """
    network = Network.from_json(data)
    network.check_whole(accepted)
    launches = network.launches
    if not launches:
        raise InputError(f"network {network.name!r:.60} launches no kernel; there is nothing to predict")
    if len(network.name) > TEXT_CHARACTERS:
        raise InputError(f"network: its name has {len(network.name)} characters; at most {TEXT_CHARACTERS}")
    payload = zlib.compress(json.dumps(network.to_json(host_calls=True)).encode(), 1)
    info = {
        "name": network.name,
        "digest": network.digest,
        "launches": len(launches),
        "host_calls": len(network.calls) - len(launches),
        "kinds": network.kinds,
        "flops": sum(launch.flops for launch in launches),
        "boundary": network.boundary and network.boundary.to_json(),
    }
    return LoadedNetwork(network.name, network.digest, payload, info)


class Surfaces:
    """Makes and keeps surfaces for one profile.

    Args:
        workers: what reads models and sweeps.
        profile: the bundle in use; without one networks can be loaded, but nothing predicted.
        cache_dir: where the workers find and keep converted node tables.
        stored: where surfaces outlast this process; no worker gets there.
        troubles: what keeps surfaces from being made from the start, such as why there is no profile.
    """

    def __init__(
        self, workers: Workers, profile: Profile | None, cache_dir: Path, stored: SurfaceCache, troubles: tuple[str, ...] = ()
    ) -> None:
        self.profile = profile
        self.troubles = troubles
        self._workers = workers
        self._cache_dir = cache_dir
        self._stored = stored
        self._kept: OrderedDict[tuple[str, str], Surface] = OrderedDict()
        self._prepared: asyncio.Task[None] | None = None
        self._known: Mapping[str, Stamp] = {}
        self._making: dict[tuple[str, str], asyncio.Task[Surface]] = {}

    async def prepare(self) -> None:
        """Convert the profile's models, once, so that sweeps find them; what goes wrong is kept in ``troubles``."""
        if self.profile is None:
            return
        if self._prepared is None:
            self._prepared = asyncio.create_task(self._prepare(self.profile))
        try:
            await asyncio.shield(self._prepared)
        except DaemonError as error:
            if not self.troubles:
                log.error("%s", error)
            self.troubles = (str(error),)

    async def _prepare(self, profile: Profile) -> None:
        await self._workers.prepare(profile.path, self._cache_dir)
        # Tables are checked once: a worker checks again only one that was touched since.
        self._known = table_stamps(profile.manifest, self._cache_dir)

    async def decompose(
        self, attached: Attached, inputs: Sequence[TensorSpec], name: str, accepted: Sequence[str] = ()
    ) -> LoadedNetwork:
        """Have the model that a client sent a descriptor of read by a worker.

        Raises:
            InputError, ModelError: the model was refused, or its list of launches ends early and not at one of ``accepted``.
        """
        answer = await self._workers.decompose(attached, inputs, name)
        try:
            data = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise InputError("model: its reader answered something else than a network") from error
        return register(data, accepted)

    async def surface(self, network: LoadedNetwork, method: str = METHODS[0]) -> Surface:
        """The network's surface; clients who ask for the same one at the same time wait for one worker.

        Raises:
            InputError, WorkerFailed: there is no profile, it does not fit, or the worker failed.
        """
        if self.profile is None:
            none = "no profile of this board: nothing can be predicted; hold a configuration instead"
            raise InputError("; ".join(self.troubles) or none)
        if method not in METHODS:
            raise UsageError(f"method {method!r:.40}; valid: {', '.join(METHODS)}")
        key = (network.digest, method)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        task = self._making.get(key)
        if task is None:
            task = self._making[key] = asyncio.create_task(self._make(network, method, self.profile))
            task.add_done_callback(lambda done: self._made(key, done))
        # Whoever asked first may go away; the others still wait for it.
        return await asyncio.shield(task)

    async def _make(self, network: LoadedNetwork, method: str, profile: Profile) -> Surface:
        key = surface_key(profile.manifest, network.digest, method)
        surface = self._stored.get(key, profile.manifest.grid)
        if surface is None:
            await self.prepare()
            payload = zlib.decompress(network.payload)
            answer = await self._workers.sweep(payload, profile.path, self._cache_dir, method, self._known)
            surface = _checked(answer, profile.manifest.grid)
            if read_manifest(profile.path) == profile.manifest:  # not if another bundle has taken its place meanwhile
                self._stored.put(key, answer)
        return surface

    def _made(self, key: tuple[str, str], task: asyncio.Task[Surface]) -> None:
        self._making.pop(key, None)
        if task.cancelled() or task.exception() is not None:
            return
        self._kept[key] = task.result()
        while len(self._kept) > _SURFACES_KEPT:
            self._kept.popitem(last=False)


def _checked(answer: bytes, grid: FrequencyGrid) -> Surface:
    """What a worker answered, as a surface over this grid; its sizes are looked at before anything is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(answer)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > _SURFACE_BYTES:
            raise WorkerFailed(f"profile: a surface of {size} bytes; at most {_SURFACE_BYTES}")
        surface = Surface.load(io.BytesIO(answer))
    except zipfile.BadZipFile as error:
        raise WorkerFailed("profile: the worker answered something else than a surface") from error
    if surface.grid != grid:
        raise WorkerFailed("profile: the worker answered a surface over another grid")
    return surface
