# SPDX-License-Identifier: Apache-2.0
"""Models read, and tree models swept, by children without privileges.

Each model is read by a child of its own, so a hostile one harms only its reader and answer; networks of one user are swept by
the same child. A child gets a socket and nothing else; its answer is bounded, and checked before use.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from ...kernels.errors import KernelsError
from ...kernels.execution import NO_OVERHEAD, FrameOverhead
from ...kernels.grid import FrequencyGrid
from ...kernels.surface import Surface
from ...profiles.board import BOARDS_DIR
from ...profiles.documents import DocumentError, convert
from ..descriptors.children import ChildReaper, ended, start_child
from ..descriptors.disposal import DescriptorGrant
from ..errors import InputError, LimitReached, WorkerFailed
from .answers import COMPRESSED_BYTES, Answer, NetworkInfo, PreparedAnswer, read_header, surface_bytes, unpacked_surface
from .framing import HEADER_BYTES, PREFIX, Task, encoded
from .numerics import ONE_THREAD
from .slots import ChildSlots, KeptChildren, RunningChild
from .user_pool import UserPool

if TYPE_CHECKING:
    from ...kernels.network import TensorSpec

log = logging.getLogger(__name__)

_LAST_WORDS_S = 1.0
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **ONE_THREAD}


class WorkerSettings(Struct, frozen=True):
    """Number, times and threads of children.

    A sweep takes every processor of this process, up to ``threads``. Children are nice, to let applications go first.
    """

    parallel: int = 2
    model_timeout_s: float = 20.0
    threads: int = 4

    def limit_s(self, job: str) -> float:
        return {"sweep": 60.0, "predict": 60.0, "prepare": 600.0}.get(job, self.model_timeout_s)


class Workers:
    def __init__(self, settings: WorkerSettings | None = None, stragglers: ChildReaper | None = None) -> None:
        self._settings = settings or WorkerSettings()
        self._stragglers = stragglers or ChildReaper()
        self._slots = ChildSlots(self._settings.parallel, os.geteuid())
        self._accounts = UserPool()
        self._kept = KeptChildren(self._settings.parallel, self._end)
        self._confinement: tuple[str, ...] | None = None

    async def decompose(
        self, attached: DescriptorGrant, inputs: Sequence[TensorSpec], name: str, accepted: Sequence[str] = ()
    ) -> tuple[NetworkInfo, bytes]:
        """Decompose a client's model by its descriptor; return its description and the packed network.

        Afterwards, no child is still receiving ``attached``. The launch list may end at an operator of ``accepted``.

        Raises:
            InputError: the model was refused, or its reader crashed or ran out of time or memory.
            LimitReached: too many requests of the user wait, or readers of its models hang in the kernel.
        """
        request = {"inputs": [spec.to_json() for spec in inputs], "name": name, "accepted": accepted, "size": attached.size}
        child = self._once("decompose", attached.uid, connection=attached.sock.fileno())
        return _network(*await self._run("decompose", child, request, attached.uid))

    async def check(self, network: bytes, uid: int, accepted: Sequence[str] = ()) -> tuple[NetworkInfo, bytes]:
        return _network(*await self._run("check", self._once("check", uid), {"accepted": accepted}, uid, network))

    def expected_sweep(
        self, bundle: Path, cache_dir: Path, uid: int, known: Mapping[str, Sequence[int]]
    ) -> AbstractContextManager[None]:
        """Start the child of a sweep that will probably follow the context, in which the model is read."""
        start = partial(self._start, "sweep", uid, (bundle, cache_dir, BOARDS_DIR))
        return self._kept.expected(_sweep_key(uid, bundle, cache_dir, known), start)

    async def close(self) -> None:
        await self._kept.close()

    async def sweep(
        self,
        network: bytes,
        bundle: Path,
        cache_dir: Path,
        grid: FrequencyGrid,
        method: str,
        *,
        execution: str | None = None,
        frame_overhead: FrameOverhead = NO_OVERHEAD,
        gpu_share: float | None = 1.0,
        uid: int = 0,
        known: Mapping[str, Sequence[int]] | None = None,
    ) -> Surface:
        """Surface of a packed network, over the bundle's grid; ``known`` are stamps of node tables already checked.

        Raises:
            InputError: the network or the bundle was refused.
            WorkerFailed: the child crashed, exceeded its limits, or gave a wrong answer.
            LimitReached: too many of the user's requests wait.
        """
        request = {
            "method": method,
            "execution": execution,
            "frame_overhead": asdict(frame_overhead),
            "gpu_share": gpu_share,
            "known": known or {},
        }
        start = partial(self._start, "sweep", uid, (bundle, cache_dir, BOARDS_DIR))
        child = self._kept.lent(_sweep_key(uid, bundle, cache_dir, known or {}), start)
        answer, figures = await self._run("sweep", child, request, uid, network, surface_bytes(grid))
        try:
            return unpacked_surface(answer.about, figures, grid, method)
        except (DocumentError, KernelsError) as error:
            raise _failure("sweep", f"answered something else than a surface ({error})") from error

    async def prepare(self, bundle: Path, cache_dir: Path, outputs: Mapping[str, int]) -> tuple[str, ...]:
        """Check a bundle and convert its models; return checksums of models with neither usable table nor descriptor.

        Args:
            outputs: descriptors to write tables to, by the models' checksums.
        """
        owner = os.geteuid()
        child = self._once("prepare", owner, (bundle, cache_dir, BOARDS_DIR), outputs=tuple(outputs.values()))
        answer, _ = await self._run("prepare", child, {"outputs": outputs}, owner)
        try:
            return convert(answer.about, PreparedAnswer, exact=True).unusable
        except DocumentError as error:
            raise _failure("prepare", f"answered something else ({error})") from error

    async def _run(
        self,
        job: str,
        child: AbstractAsyncContextManager[RunningChild],
        request: Mapping[str, Any],
        uid: int,
        payload: bytes = b"",
        most_bytes: int = COMPRESSED_BYTES,
    ) -> tuple[Answer, bytes]:
        """Run a job for a user; at its end the child has ended, or hangs, or waits for another one."""
        async with self._slots.place(uid):
            if job == "decompose" and self._stragglers.too_many(uid):
                raise LimitReached(
                    f"model: {self._stragglers.of(uid)} readers of models of uid {uid} hang, as many as may; "
                    "the file systems of their files do not answer"
                )
            async with child as (process, ours, *_):
                try:
                    conversation = _converse(ours, encoded(request, payload), most_bytes)
                    answer, data = await asyncio.wait_for(conversation, self._settings.limit_s(job))
                except asyncio.TimeoutError:
                    raise _failure(job, f"took more than {self._settings.limit_s(job):g} s") from None
                except _InvalidAnswer as error:
                    raise _failure(job, str(error)) from None
                except (OSError, asyncio.IncompleteReadError):
                    await ended(process, _LAST_WORDS_S)
                    raise _failure(job, _how_it_ended(process.returncode)) from None
                self._tell_of(answer.confinement)
                if answer.error == "input":
                    raise InputError(answer.message)
                if answer.error:
                    raise _failure(job, f"failed: {answer.type}: {answer.message}")
        if job == "prepare" and process.returncode is None:
            raise _failure(job, "does not end")
        return answer, data

    @asynccontextmanager
    async def _once(
        self, job: str, uid: int, folders: Sequence[Path] = (), connection: int | None = None, outputs: tuple[int, ...] = ()
    ) -> AsyncIterator[RunningChild]:
        child = await self._start(job, uid, folders, connection, outputs)
        try:
            yield child
        finally:
            # Also if the client went away; a child that has answered is done.
            await asyncio.shield(self._end(child))

    async def _start(
        self, job: str, uid: int, folders: Sequence[Path], connection: int | None = None, outputs: tuple[int, ...] = ()
    ) -> RunningChild:
        threads = min(self._settings.threads, len(os.sched_getaffinity(0))) if job == "sweep" else 0
        async with AsyncExitStack() as stack:
            try:
                ours, theirs = map(stack.enter_context, socket.socketpair())
                accounts = stack.enter_context(self._accounts.dealt())
                ours.setblocking(False)
                task = Task(theirs.fileno(), accounts, threads, connection, outputs, tuple(map(str, folders)))
                process = await start_child(_command(job, task), task.keep, _ENVIRONMENT)
            except OSError as error:
                raise _failure(job, f"cannot be started ({error.strerror})") from error
            theirs.close()
            return RunningChild(process, ours, uid, stack.pop_all())

    async def _end(self, child: RunningChild) -> None:
        await self._stragglers.end(child.process, child.uid)
        await child.resources.aclose()

    def _tell_of(self, confinement: tuple[str, ...]) -> None:
        if self._confinement is None:
            self._confinement = confinement
            log.info("children that read models are confined by %s", ", ".join(confinement) or "their limits alone")


class _InvalidAnswer(Exception):
    """A child's invalid answer."""


def _sweep_key(uid: int, bundle: Path, cache_dir: Path, known: Mapping[str, Sequence[int]]) -> Hashable:
    """Equal for sweeps that one child may do after the other: of one user, with the same files."""
    try:
        manifest = (bundle / "manifest.json").stat()
    except OSError:
        return object()
    tables = frozenset((digest, *stamp) for digest, stamp in known.items())
    return (uid, bundle, cache_dir, manifest.st_ino, manifest.st_mtime_ns, tables)


def _command(job: str, task: Task) -> list[str]:
    return [sys.executable, "-I", "-B", "-m", f"{__package__}.main", job, task.to_argument()]


async def _converse(sock: socket.socket, request: bytes, most_bytes: int) -> tuple[Answer, bytes]:
    await asyncio.get_running_loop().sock_sendall(sock, request)
    header_bytes, payload_bytes = PREFIX.unpack(await _read(sock, PREFIX.size))
    if header_bytes > HEADER_BYTES or payload_bytes > most_bytes:
        raise _InvalidAnswer(f"answered {header_bytes} and {payload_bytes} bytes, which is more than an answer may have")
    try:
        answer = read_header(bytes(await _read(sock, header_bytes)))
    except DocumentError as error:
        raise _InvalidAnswer(f"answered something else ({error})") from error
    return answer, bytes(await _read(sock, payload_bytes))


async def _read(sock: socket.socket, size: int) -> bytearray:
    loop = asyncio.get_running_loop()
    data = bytearray()
    while len(data) < size:
        chunk = await loop.sock_recv(sock, min(size - len(data), 1 << 18))
        if not chunk:
            raise asyncio.IncompleteReadError(bytes(data), size)
        data += chunk
    return data


def _network(answer: Answer, packed: bytes) -> tuple[NetworkInfo, bytes]:
    try:
        return convert(answer.about, NetworkInfo, exact=True), packed
    except DocumentError as error:
        raise _failure("decompose", f"answered something else than a network ({error})") from error


def _how_it_ended(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        if -returncode == signal.SIGXCPU:
            return "took more processor time than it may"
        names = {each.value: each.name for each in signal.Signals}
        return f"was ended by {names.get(-returncode, f'signal {-returncode}')}"
    return f"ended without an answer (exit status {returncode})"


def _failure(job: str, what: str) -> InputError | WorkerFailed:
    if job in ("decompose", "check"):
        return InputError(f"{'model' if job == 'decompose' else 'network'}: reading it {what}")
    return WorkerFailed(f"profile: the process that {'converts' if job == 'prepare' else 'sweeps'} its models {what}")
