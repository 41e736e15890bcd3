# SPDX-License-Identifier: Apache-2.0
"""The unprivileged child: reads one model, or sweeps one network over the grid, answers, and ends.

Everything it needs is imported first, then privileges are given up, then the request is read: the child has nothing to lose
by the time it sees a byte that was not ours.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import DaemonError
from . import framing, sandbox
from .sandbox import Allowance

_Job = Callable[[dict[str, Any], bytes, int | None, list[Path]], bytes]

# What the standard library loads only when it is used; by then there may be no right to read it.
_NEEDED_LATER = ("encodings.ascii", "encodings.cp437", "encodings.latin_1", "encodings.utf_8", "mmap")

# Somebody waits for the answer, but the board's own work comes first.
_NICE = 5

_ALLOWANCES = {
    "decompose": Allowance(memory_bytes=1 << 30, cpu_s=20),
    "sweep": Allowance(memory_bytes=4 << 30, cpu_s=60),
    "prepare": Allowance(memory_bytes=8 << 30, cpu_s=600, file_bytes=2 << 30),
}


def main(arguments: list[str]) -> int:
    """Do one job.

    ``arguments`` are its name, the socket's descriptor, the account to become, how many threads it may have besides this one,
    and folders it works on.
    """
    name, descriptor, user, threads, *folders = arguments
    os.nice(_NICE)
    with socket.socket(fileno=int(descriptor)) as sock:
        # Opened with the rights that are given up next: they may lie where only root gets to.
        handles = {os.open(folder, os.O_RDONLY | os.O_DIRECTORY): folder for folder in folders}
        paths = [Path(f"/proc/self/fd/{handle}") for handle in handles]
        try:
            crew = ThreadPoolExecutor(int(threads)) if int(threads) else None
            job = _JOBS[name](crew)
            for module in _NEEDED_LATER:
                importlib.import_module(module)
            sandbox.confine(
                user, _ALLOWANCES[name], keep={sock.fileno(), *handles}, start_threads=partial(_start, crew, int(threads))
            )
            request, payload, received = framing.receive(sock)
            answer = job(request, payload, received, paths)
        except Exception as error:
            kind = "input" if hasattr(error, "exit_code") else "crash"
            text = " ".join(str(error).split()) or type(error).__name__
            for path, folder in zip(paths, folders, strict=True):
                text = text.replace(str(path), folder)
            sock.sendall(framing.encoded({"error": kind, "message": text[:2000], "type": type(error).__name__}))
            return 1
        sock.sendall(framing.encoded({}, answer))
    return 0


def _start(crew: Executor | None, threads: int) -> None:
    """Have all of a crew's threads there: none starts a task before every one of them has one."""
    if crew is not None:
        meeting = threading.Barrier(threads)
        list(crew.map(lambda _: meeting.wait(), range(threads)))


def _decomposer(_: Executor | None) -> _Job:
    from ...kernels.decompose import decompose
    from ...kernels.network import TensorSpec
    from .model_file import ModelFile

    def job(request: dict[str, Any], _: bytes, descriptor: int | None, __: list[Path]) -> bytes:
        if descriptor is None:
            raise DaemonError("model: no descriptor arrived")
        file = ModelFile(descriptor)
        inputs = [TensorSpec.from_json(item) for item in request["inputs"]]
        try:
            network = decompose(io.BufferedReader(file), inputs, name=request["name"])
        except Exception:
            file.check()
            raise
        file.check()
        return json.dumps(network.to_json(host_calls=True)).encode()

    return job


def _sweeper(crew: Executor | None) -> _Job:
    from ...kernels.cost.model import surface
    from ...kernels.network import Network
    from ...profiles.bundle.bundle import load_bundle

    def job(request: dict[str, Any], payload: bytes, _: int | None, folders: list[Path]) -> bytes:
        bundle, cache, boards = folders
        network = Network.from_json(json.loads(payload))
        known = {digest: tuple(stamp) for digest, stamp in request["known"].items()}
        cost = load_bundle(bundle, cache_dir=cache, boards=boards, one_by_one=True, known=known).cost
        buffer = io.BytesIO()
        surface(network, cost, method=request["method"], each=crew.map if crew else map).save(buffer)
        return buffer.getvalue()

    return job


def _preparer(_: Executor | None) -> _Job:
    from ...profiles.bundle.bundle import load_bundle

    importlib.import_module("treelite")

    def job(_: dict[str, Any], __: bytes, ___: int | None, folders: list[Path]) -> bytes:
        bundle, cache, boards = folders
        # Later workers read what this one writes.
        os.umask(0o022)
        load_bundle(bundle, cache_dir=cache, boards=boards)
        return b""

    return job


_JOBS: dict[str, Callable[[Executor | None], _Job]] = {"decompose": _decomposer, "sweep": _sweeper, "prepare": _preparer}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
