# SPDX-License-Identifier: Apache-2.0
"""The unprivileged child: reads one model, answers and ends, or sweeps a user's networks over the grid until it is ended.

It imports everything, gives up privileges, and only then reads foreign bytes.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import InputError
from . import framing, sandbox
from .framing import Task
from .sandbox import ResourceLimits

if TYPE_CHECKING:
    from concurrent.futures import Executor

# Modules loaded on use, when the child may not read them any more.
_BOARDS_READER = "yaml"
_NEEDED_LATER = ("difflib", "encodings.ascii", "encodings.cp437", "encodings.latin_1", "encodings.utf_8", "mmap")

# Shows the reader its memory use.
_ALSO_READ = ("/proc/self/statm",)

# A client waits, but the board's own work comes first.
_NICE = 5

_ALLOWANCES = {
    "decompose": ResourceLimits(memory_bytes=1 << 30, cpu_s=20),
    "check": ResourceLimits(memory_bytes=1 << 30, cpu_s=20),
    "sweep": ResourceLimits(memory_bytes=4 << 30, cpu_s=60),
    "predict": ResourceLimits(memory_bytes=4 << 30, cpu_s=60),
    "prepare": ResourceLimits(memory_bytes=8 << 30, cpu_s=600, file_bytes=2 << 30),
}


class _Work(Struct, frozen=True):
    request: dict[str, Any]
    payload: bytes
    descriptor: int
    folders: list[Path]


_REPEATED = ("sweep",)
"""Jobs that a child does one after the other, all for the same user, until it is ended."""

_Job = Callable[[_Work], tuple[Any, bytes]]
"""Returns the description of the result, one of the classes of :mod:`.answers`, and its bytes."""


def main(arguments: list[str]) -> int:
    name, task = arguments[0], Task.from_argument(arguments[1])
    os.nice(_NICE)
    with socket.socket(fileno=task.socket) as sock:
        # Opened before the rights are given up: they may be readable by root only.
        handles = {os.open(folder, os.O_RDONLY | os.O_DIRECTORY): folder for folder in task.folders}
        paths = [Path(f"/proc/self/fd/{handle}") for handle in handles]
        files = [os.open(path, os.O_RDONLY) for path in _ALSO_READ if Path(path).exists()]
        confinement: tuple[str, ...] = ()
        try:
            pool = _pool(task.threads) if task.threads else None
            job = _JOBS[name](pool, paths)
            for module in _NEEDED_LATER:
                importlib.import_module(module)
            confinement = sandbox.confine(
                task.accounts,
                _ALLOWANCES[name],
                keep={sock.fileno(), *task.keep},
                readable=(*handles, *files),
                start_threads=partial(_start, pool, task.threads),
            )
            while True:
                request, payload = framing.receive(sock)
                descriptor = framing.take(task.connection, request["size"]) if task.connection is not None else -1
                sock.sendall(framing.answer(*job(_Work(request, payload, descriptor, paths)), confinement))
                if name not in _REPEATED:
                    return 0
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            for path, folder in zip(paths, task.folders, strict=True):
                text = text.replace(str(path), folder)
            sock.sendall(framing.refusal(error, text, confinement))
            return 1


def _pool(threads: int) -> Executor:
    from concurrent.futures import ThreadPoolExecutor  # a reader of models starts without

    return ThreadPoolExecutor(threads)


def _start(pool: Executor | None, threads: int) -> None:
    if pool is not None:
        meeting = threading.Barrier(threads)
        list(pool.map(lambda _: meeting.wait(), range(threads)))


def _decomposer(*_: object) -> _Job:
    from ...kernels.decompose import decompose
    from ...kernels.network import TensorSpec
    from .model_file import ModelFile
    from .packing import packed_network

    def job(work: _Work) -> tuple[Any, bytes]:
        file = ModelFile(work.descriptor)
        inputs = [TensorSpec.from_json(item) for item in work.request["inputs"]]
        try:
            network = decompose(io.BufferedReader(file), inputs, name=work.request["name"], optimized=True)
        except Exception:
            file.check()
            raise
        file.check()
        network.check_whole(work.request["accepted"])
        return packed_network(network)

    return job


def _checker(*_: object) -> _Job:
    from ...kernels import inputs as _inputs  # noqa: F401  # used by the answer, which is made without the right to read it
    from ...kernels.network import Network
    from .packing import packed_network

    def job(work: _Work) -> tuple[Any, bytes]:
        try:
            data = json.loads(work.payload, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise InputError(f"network: expected a JSON object ({error})") from error
        network = Network.from_json(data)
        network.check_whole(work.request["accepted"])
        return packed_network(network)

    return job


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _sweeper(pool: Executor | None, _: Sequence[Path]) -> _Job:
    from ...kernels.cost.board import BoardCost
    from ...kernels.cost.model import surface
    from ...kernels.execution import FrameOverhead
    from ...kernels.stored_files import Stamp
    from ...profiles.bundle.bundle import load_bundle
    from ...profiles.bundle.tables import TableCache
    from .packing import packed_surface, unpacked_network

    importlib.import_module(_BOARDS_READER)

    @cache
    def costs(bundle: Path, tables: Path, boards: Path, known: tuple[tuple[str, Stamp], ...]) -> BoardCost:
        return load_bundle(bundle, tables=TableCache(tables, dict(known)), boards=boards, one_by_one=True).cost

    def job(work: _Work) -> tuple[Any, bytes]:
        network = unpacked_network(work.payload)
        known = ((digest, tuple(stamp)) for digest, stamp in work.request["known"].items())
        cost = costs(*work.folders, tuple(known))
        asked, frame_overhead = work.request, FrameOverhead(**work.request["frame_overhead"])
        each = pool.map if pool else map
        how = {"execution": asked["execution"], "frame_overhead": frame_overhead, "gpu_share": asked["gpu_share"]}
        return packed_surface(surface(network, cost, asked["method"], each, **how))

    return job


def _preparer(_: Executor | None, folders: Sequence[Path]) -> _Job:
    from ...kernels.trees.ensemble import TreeEnsemble
    from ...profiles.bundle.bundle import load_bundle
    from ...profiles.bundle.files import TREELITE_SUFFIX
    from ...profiles.bundle.tables import TableCache
    from . import answers

    importlib.import_module(_BOARDS_READER)
    if any(path.name.endswith(TREELITE_SUFFIX) for path in folders[0].iterdir()):  # half of the start of this process
        with contextlib.suppress(ImportError):  # a message then names it as missing
            importlib.import_module("treelite")

    def job(work: _Work) -> tuple[Any, bytes]:
        bundle, cache, boards = work.folders
        unusable = []

        def keep(digest: str, ensemble: TreeEnsemble) -> None:
            if digest not in work.request["outputs"]:
                unusable.append(digest)
                return
            with open(work.request["outputs"][digest], "wb", closefd=False) as file:
                file.write(ensemble.packed())

        load_bundle(bundle, tables=TableCache(cache, keep=keep), boards=boards)
        return answers.PreparedAnswer(tuple(unusable)), b""

    return job


_JOBS: dict[str, Callable[[Executor | None, Sequence[Path]], _Job]] = {
    "decompose": _decomposer,
    "check": _checker,
    "sweep": _sweeper,
    "prepare": _preparer,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
