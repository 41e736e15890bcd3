# SPDX-License-Identifier: Apache-2.0
"""Clients' networks and their surfaces: made by workers, checked, kept in memory and on disk.

A network stays as packed by a child, and is never read here.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from ..kernels.execution import NO_OVERHEAD, FrameOverhead
from ..kernels.stored_files import Stamp
from ..kernels.surface import Surface
from ..kernels.units import METHODS
from ..profiles.bundle.identity import read_identity
from ..profiles.bundle.surface_cache import SurfaceCache, surface_key
from ..profiles.bundle.table_folder import TableFolder
from ..profiles.errors import BundleError
from .descriptors.disposal import DescriptorGrant
from .errors import DaemonError, InputError, UsageError, WorkerFailed
from .profile import Profile

if TYPE_CHECKING:
    from ..kernels.network import TensorSpec
    from .worker.answers import NetworkInfo
    from .worker.workers import Workers

log = logging.getLogger(__name__)

_SURFACES_KEPT = 32
_PREPARED_AGAIN_S = 60.0


class LoadedNetwork(Struct, frozen=True):
    name: str
    key: str
    payload: bytes
    info: Mapping[str, Any]


class SurfaceRequest(NamedTuple):
    method: str = METHODS[0]
    execution: str | None = None
    frame_overhead: FrameOverhead = NO_OVERHEAD
    gpu_share: float | None = 1.0


_SurfaceKey: TypeAlias = tuple[str, SurfaceRequest]
_USUAL = SurfaceRequest()


class Surfaces:
    """Makes and keeps surfaces for one profile.

    Args:
        workers: makes them, at their first use.
        profile: bundle in use; without one, nothing is predicted.
        tables: converted node tables, which workers read.
        stored: surfaces that outlast this process, closed to workers.
    """

    def __init__(
        self,
        workers: Callable[[], Workers],
        profile: Profile | None,
        tables: TableFolder,
        stored: SurfaceCache,
        troubles: tuple[str, ...] = (),
    ) -> None:
        self.profile = profile
        self.troubles = troubles
        self._make_workers = workers
        self._made_workers: Workers | None = None
        self._tables = tables
        self._stored = stored
        self._kept: OrderedDict[_SurfaceKey, Surface] = OrderedDict()
        self._preparing: asyncio.Task[None] | None = None
        self._not_before_s = 0.0
        self._named: str | None = None
        self._known: Mapping[str, Stamp] | None = None
        self._making: dict[tuple[_SurfaceKey, int], asyncio.Task[Surface]] = {}
        self._swept = True  # the last surface was, not stored: the next one probably is too

    async def _workers(self) -> Workers:
        if self._made_workers is None:  # in a thread, as their modules load with them
            made = await asyncio.to_thread(self._make_workers)
            self._made_workers = self._made_workers or made
        return self._made_workers

    async def prepare(self) -> None:
        """Convert the profile's models for sweeps; failures are kept in ``troubles``.

        Repeated if a node table was touched or removed, or a while after a failure.
        """
        if self.profile is None:
            return
        if self._preparing is None and not self._is_prepared(self.profile) and time.monotonic() >= self._not_before_s:
            self._preparing = asyncio.create_task(self._prepare(self.profile))
            self._preparing.add_done_callback(self._was_prepared)
        if self._preparing is not None:
            await asyncio.wait([self._preparing])

    def _is_prepared(self, profile: Profile) -> bool:
        return self._known is not None and self._tables.stamps(profile.identity.models) == self._known

    def _was_prepared(self, task: asyncio.Task[None]) -> None:
        self._preparing = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self.troubles = ()
            return
        if not isinstance(error, DaemonError):
            log.error("profile: its models cannot be converted", exc_info=error)
            error = WorkerFailed(f"profile: its models cannot be converted ({type(error).__name__})")
        if self.troubles != (str(error),):
            log.error("%s", error)
        self.troubles = (str(error),)
        self._not_before_s = time.monotonic() + _PREPARED_AGAIN_S

    async def _prepare(self, profile: Profile) -> None:
        digests = profile.identity.models
        try:
            for _ in range(2):
                with self._tables.fresh(self._tables.missing(digests)) as outputs:
                    unusable = await (await self._workers()).prepare(profile.path, self._tables.path, outputs)
                    # The child that wrote them has ended by now.
                    for digest in outputs:
                        await asyncio.to_thread(self._tables.take_in, digest)
                if not (damaged := set(unusable) & set(digests)):
                    break
                for digest in damaged:
                    self._tables.discard(digest)
            # A worker checks a table again only if it was touched since.
            self._known = self._tables.stamps(digests)
        except OSError as error:
            raise WorkerFailed(
                f"profile: its models' node tables cannot be kept in {self._tables.path}: {error.strerror}"
            ) from error
        except BundleError as error:
            raise WorkerFailed(f"profile: {error}") from error
        except WorkerFailed as error:
            if os.strerror(errno.ENOSPC) not in str(error):
                raise
            raise WorkerFailed(
                f"profile: no space left in {self._tables.path}, where its models' node tables are kept"
            ) from error

    async def decompose(
        self, attached: DescriptorGrant, inputs: Sequence[TensorSpec], name: str, accepted: Sequence[str] = ()
    ) -> LoadedNetwork:
        """Read a client's model by its descriptor, in a worker.

        Raises:
            InputError: the model was refused, or its launch list ends early and not at one of ``accepted``.
            LimitReached: too many of the user's requests wait.
        """
        return await self._loaded(lambda workers: workers.decompose(attached, inputs, name, accepted), attached.uid)

    async def check(self, network: bytes, uid: int, accepted: Sequence[str] = ()) -> LoadedNetwork:
        """Check a client's network in JSON, in a worker; errors as for :meth:`decompose`."""
        return await self._loaded(lambda workers: workers.check(network, uid, accepted), uid)

    async def _loaded(self, read: Callable[[Workers], Awaitable[tuple[NetworkInfo, bytes]]], uid: int) -> LoadedNetwork:
        workers = await self._workers()
        # Meanwhile the child of the sweep starts, and NumPy loads, which the daemon has done without so far.
        expected: AbstractContextManager[None] = nullcontext()
        if self._swept and self.profile is not None and self._known is not None and self._is_prepared(self.profile):
            expected = workers.expected_sweep(self.profile.path, self._tables.path, uid, self._known)
        with expected:
            (info, payload), _ = await asyncio.gather(read(workers), asyncio.to_thread(import_module, "numpy"))
        return LoadedNetwork(info.name, hashlib.sha256(payload).hexdigest(), payload, to_builtins(info))

    @property
    def simulated(self) -> bool:
        return self.profile is not None and self.profile.identity.simulated

    async def close(self) -> None:
        if self._made_workers is not None:
            await self._made_workers.close()

    async def surface(self, network: LoadedNetwork, request: SurfaceRequest = _USUAL, *, uid: int = 0) -> Surface:
        """The network's surface; simultaneous requests of a user for the same one share a worker.

        Raises:
            InputError, WorkerFailed: no profile, or an unsuitable one, or the worker failed.
            LimitReached: too many of the user's requests wait.
        """
        if self.profile is None:
            none = "no profile of this board: nothing can be predicted; hold a configuration instead"
            raise InputError("; ".join(self.troubles) or none)
        kept = (network.key, request)
        if kept in self._kept:
            self._swept = False
            self._kept.move_to_end(kept)
            return self._kept[kept]
        key = (kept, uid)  # no user's turn is delayed by another's earlier request
        task = self._making.get(key)
        if task is None:
            task = self._making[key] = asyncio.create_task(self._make(network, request, self.profile, uid))
            task.add_done_callback(lambda done: self._made(key, done))
        # The first client may leave while another still waits.
        return await asyncio.shield(task)

    def name(self, network: LoadedNetwork, request: SurfaceRequest) -> str:
        if self._named is None and self.profile is not None:
            self._named = surface_key(self.profile.identity, "", "")
        method, execution, frame_overhead, share = request
        part = "" if share == 1 else f"{share}"
        asked = f"{self._named}{network.key}{method}{execution}{sorted(asdict(frame_overhead).items())}{part}"
        return hashlib.sha256(asked.encode()).hexdigest()

    async def _make(self, network: LoadedNetwork, request: SurfaceRequest, profile: Profile, uid: int) -> Surface:
        key = surface_key(profile.identity, network.key, *request)
        surface = await asyncio.to_thread(self._stored.get, key, profile.identity.grid)
        self._swept = surface is None
        if surface is None:
            await self.prepare()
            if not self._is_prepared(profile):
                raise InputError("; ".join(self.troubles) or f"profile {profile.identity.name}: its models are not converted")
            surface = await (await self._workers()).sweep(
                network.payload,
                profile.path,
                self._tables.path,
                profile.identity.grid,
                uid=uid,
                known=self._known,
                **request._asdict(),
            )
            await asyncio.to_thread(self._store, key, surface, profile)
        return surface

    def _store(self, key: str, surface: Surface, profile: Profile) -> None:
        try:
            same = read_identity(profile.path) == profile.identity
        except BundleError:
            same = False
        if same:  # not if another bundle has replaced it
            buffer = io.BytesIO()
            surface.save(buffer)
            self._stored.put(key, buffer.getvalue())

    def _made(self, key: tuple[_SurfaceKey, int], task: asyncio.Task[Surface]) -> None:
        self._making.pop(key, None)
        if task.cancelled() or task.exception() is not None:
            return
        self._kept[key[0]] = task.result()
        while len(self._kept) > _SURFACES_KEPT:
            self._kept.popitem(last=False)


def table_folder(folder: Path) -> TableFolder:
    try:
        return TableFolder(folder)
    except OSError as error:
        raise UsageError(f"cache directory {folder}: {error.strerror}") from error
