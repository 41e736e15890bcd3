# SPDX-License-Identifier: Apache-2.0
"""Having strangers' models read, and tree models swept, by children without privileges.

Each job is one child: what a hostile model does to its reader ends with that reader, and no other client's answer comes
from it. A child is given a socket and nothing else; what it answers is bounded and checked again by whoever uses it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...kernels.network import TensorSpec
from ...profiles.board import BOARDS_DIR
from ..errors import InputError, TransientError
from .framing import PREFIX, encoded

_HEADER_BYTES = 64 << 10
_PAYLOAD_BYTES = 8 << 20


class WorkerFailed(TransientError):
    """The child could not do its job for a reason that is not in what it was given."""

    exit_code = 3


@dataclass(frozen=True)
class WorkerSettings:
    """How children are run.

    A sweep takes every processor that this process may run on, up to ``threads``: it is short, and somebody waits for it. All
    children are nice, so that an application which wants the processors gets them first.

    Attributes:
        user: the account they become.
        parallel: how many at once.
        model_timeout_s: how long reading a model may take.
        threads: the most threads of one child.
    """

    user: str = "nobody"
    parallel: int = 2
    model_timeout_s: float = 20.0
    threads: int = 4

    def limit_s(self, job: str) -> float:
        """How long a job may take, from its start to its answer, in seconds."""
        return {"decompose": self.model_timeout_s, "sweep": 60.0, "prepare": 600.0}[job]


class Workers:
    """Runs jobs in children, a few at a time, first come, first served."""

    def __init__(self, settings: WorkerSettings | None = None) -> None:
        self._settings = settings or WorkerSettings()
        self._slots = asyncio.Semaphore(self._settings.parallel)

    async def decompose(self, descriptor: int, inputs: Sequence[TensorSpec], name: str) -> bytes:
        """The decomposed network as JSON, of the model that ``descriptor`` is open on.

        Raises:
            InputError: the model was refused, or its reader crashed or ran out of time or memory over it.
        """
        return await self._run(
            "decompose", {"inputs": [spec.to_json() for spec in inputs], "name": name}, descriptor=descriptor
        )

    async def sweep(
        self, network: bytes, bundle: Path, cache_dir: Path, method: str, known: Mapping[str, Sequence[int]] | None = None
    ) -> bytes:
        """The surface (npz) of a network given as JSON.

        ``known`` are the stamps of node tables that were checked before.

        Raises:
            InputError: the network or the bundle was refused.
            WorkerFailed: the child crashed or ran out of time or memory.
        """
        return await self._run(
            "sweep", {"method": method, "known": known or {}}, bundle, cache_dir, BOARDS_DIR, payload=network
        )

    async def prepare(self, bundle: Path, cache_dir: Path) -> None:
        """Check a bundle and convert its models, so that later sweeps find their node tables in ``cache_dir``."""
        await self._run("prepare", {}, bundle, cache_dir, BOARDS_DIR)

    async def _run(
        self, job: str, request: Mapping[str, Any], *folders: Path, payload: bytes = b"", descriptor: int | None = None
    ) -> bytes:
        async with self._slots:
            ours, theirs = socket.socketpair()
            with ours:
                ours.setblocking(False)
                with theirs:
                    child = self._spawn(job, theirs, folders)
                try:
                    answer = await asyncio.wait_for(
                        _converse(ours, encoded(request, payload), descriptor), self._settings.limit_s(job)
                    )
                except asyncio.TimeoutError:
                    raise _failure(job, f"took more than {self._settings.limit_s(job):g} s") from None
                except (OSError, asyncio.IncompleteReadError):
                    await _ended(child)
                    raise _failure(job, _how_it_ended(child.returncode)) from None
                finally:
                    # Also when our client went away meanwhile; a child that has answered has nothing left to do.
                    child.kill()
                    await asyncio.shield(_ended(child))
        header, data = answer
        if header.get("error") == "input":
            raise InputError(str(header.get("message")))
        if header.get("error"):
            raise _failure(job, f"failed: {header.get('type')}: {header.get('message')}")
        return data

    def _spawn(self, job: str, sock: socket.socket, folders: Sequence[Path]) -> subprocess.Popen[bytes]:
        own_threads = min(self._settings.threads, len(os.sched_getaffinity(0))) if job == "sweep" else 0
        arguments = [job, str(sock.fileno()), self._settings.user, str(own_threads), *map(str, folders)]
        threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
        return subprocess.Popen(
            [sys.executable, "-I", "-B", "-m", f"{__package__}.main", *arguments],
            pass_fds=[sock.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **threads},
            start_new_session=True,
        )


async def _converse(sock: socket.socket, request: bytes, descriptor: int | None) -> tuple[dict[str, Any], bytes]:
    loop = asyncio.get_running_loop()
    if descriptor is None:
        await loop.sock_sendall(sock, request)
    else:
        # The prefix goes alone, so that the descriptor comes with the read that asks for the prefix.
        socket.send_fds(sock, [request[: PREFIX.size]], [descriptor])
        await loop.sock_sendall(sock, request[PREFIX.size :])
    header_bytes, payload_bytes = PREFIX.unpack(await _read(sock, PREFIX.size))
    if header_bytes > _HEADER_BYTES or payload_bytes > _PAYLOAD_BYTES:
        raise asyncio.IncompleteReadError(b"", header_bytes + payload_bytes)
    try:
        header = json.loads(await _read(sock, header_bytes))
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise asyncio.IncompleteReadError(b"", header_bytes)
    return header, bytes(await _read(sock, payload_bytes))


async def _read(sock: socket.socket, size: int) -> bytearray:
    loop = asyncio.get_running_loop()
    data = bytearray()
    while len(data) < size:
        chunk = await loop.sock_recv(sock, min(size - len(data), 1 << 18))
        if not chunk:
            raise asyncio.IncompleteReadError(bytes(data), size)
        data += chunk
    return data


async def _ended(child: subprocess.Popen[bytes]) -> None:
    """Wait until the child is gone, without holding up the loop."""
    if child.poll() is not None:
        return
    loop = asyncio.get_running_loop()
    handle = os.pidfd_open(child.pid)
    gone = asyncio.Event()
    loop.add_reader(handle, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
    child.wait()


def _how_it_ended(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        if -returncode == signal.SIGXCPU:
            return "took more processor time than it may"
        return f"was ended by {signal.Signals(-returncode).name}"
    return f"ended without an answer (exit status {returncode})"


def _failure(job: str, what: str) -> InputError | WorkerFailed:
    if job == "decompose":
        return InputError(f"model: reading it {what}")
    return WorkerFailed(f"profile: the process that {'converts' if job == 'prepare' else 'sweeps'} its models {what}")
