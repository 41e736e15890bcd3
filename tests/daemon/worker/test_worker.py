# SPDX-License-Identifier: Apache-2.0
"""The unprivileged worker: real children, real descriptors, and what becomes of those that are killed, stopped or left."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from jetdvfs.daemon.errors import InputError
from jetdvfs.daemon.worker import user_pool
from jetdvfs.daemon.worker.answers import NetworkInfo
from jetdvfs.daemon.worker.packing import packed_network, packed_surface
from jetdvfs.daemon.worker.workers import Workers, WorkerSettings
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.profiles import reference
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.bundle.finding import resolve_bundle
from jetdvfs.tests.support.daemons.attached import attached
from jetdvfs.tests.support.daemons.reading_workers import IMAGE, MODEL, decompose
from jetdvfs.tests.support.models import handmade, handmade_onnx
from jetdvfs.tests.support.profiles.small_bundle import BOARD, make_bundle

NETWORK = reference.reference_network("shufflenet_v2_x1_0")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def test_a_model_is_read_through_its_descriptor() -> None:
    with MODEL.open("rb") as file:
        file.seek(77)
        info = decompose(file.fileno())
        assert file.tell() == 77
    assert (info.name, info.kinds["conv2d"]) == ("squeezenet", 26)


def test_an_onnx_file_is_read_through_its_descriptor_too(tmp_path: Path) -> None:
    path = tmp_path / "model"  # known by what is in it, not by its name
    picture = handmade_onnx.declared("x", (1, 3, 224, 224))
    path.write_bytes(handmade_onnx.model(handmade_onnx.graph([handmade_onnx.node("Relu", ["x"], ["y"])], [picture], ["y"])))
    with path.open("rb") as file:
        assert decompose(file.fileno()).kinds == {"relu": 1}


def test_a_network_given_as_json_is_checked_by_a_child() -> None:
    async def checked(data: bytes, accepted: tuple[str, ...] = ()) -> NetworkInfo:
        info, _ = await Workers().check(data, os.getuid(), accepted)
        return info

    given = NETWORK.to_json(host_calls=True)
    assert asyncio.run(checked(json.dumps(given).encode())) == packed_network(NETWORK)[0]
    end = {"operator": "torchvision::nms", "place": "line 7", "reason": "boxes decide"}
    part = json.dumps({**given, "boundary": end}).encode()
    assert asyncio.run(checked(part, ("torchvision::nms",))).boundary is not None
    for data, text in (
        (b"[", "network: expected a JSON object"),
        (b"[" * 100_000, "network: expected a JSON object"),
        (b'{"launches": NaN}', "network: expected a JSON object"),
        (b"[]", "network: expected an object with a list of launches"),
        (b'{"launches": []}', "network 'network' launches no kernel; there is nothing to predict"),
        (b'{"launches": [{"kind": "conv2d"}]}', "launch .*: expected kind, inputs, output"),
        (part, "the list of launches ends at torchvision::nms"),
    ):
        with pytest.raises(InputError, match=text):
            asyncio.run(checked(data))


def test_a_reader_that_takes_too_long_is_ended(readers: Callable[[], list[psutil.Process]]) -> None:
    with MODEL.open("rb") as file, pytest.raises(InputError, match=r"took more than 0\.02 s"):
        decompose(file.fileno(), WorkerSettings(model_timeout_s=0.02))
    assert not readers()


def test_a_reader_that_is_killed_is_reported_and_the_next_one_works(readers: Callable[[], list[psutil.Process]]) -> None:
    async def job() -> NetworkInfo:
        workers = Workers(WorkerSettings(parallel=1))
        with MODEL.open("rb") as file, attached(file.fileno()) as once, attached(file.fileno()) as again:
            first = asyncio.create_task(workers.decompose(once, IMAGE, "x"))
            while not (children := readers()) and not first.done():
                await asyncio.sleep(0.001)
            children[0].kill()
            with pytest.raises(InputError, match="ended by SIGKILL"):
                await first
            info, _ = await workers.decompose(again, IMAGE, "x")
            return info

    assert asyncio.run(job()).launches


def test_a_reader_that_is_stopped_is_ended_in_its_time_and_the_next_one_works(
    readers: Callable[[], list[psutil.Process]],
) -> None:
    async def job() -> NetworkInfo:
        workers = Workers(WorkerSettings(parallel=1, model_timeout_s=4.0))
        with MODEL.open("rb") as file, attached(file.fileno()) as once, attached(file.fileno()) as again:
            first = asyncio.create_task(workers.decompose(once, IMAGE, "x"))
            while not (children := readers()) and not first.done():
                await asyncio.sleep(0.001)
            os.kill(children[0].pid, signal.SIGSTOP)
            with pytest.raises(InputError, match=r"took more than 4 s"):
                await first
            info, _ = await workers.decompose(again, IMAGE, "x")
            return info

    assert asyncio.run(job()).launches
    assert not readers()


def test_a_list_that_is_longer_than_an_answer_is_refused_in_one_line_and_the_next_model_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(handmade.archive(handmade.forward("for i in range(100000):", "  x = torch.relu(x)", "return x")))
    assert path.stat().st_size < 2000

    async def job() -> NetworkInfo:
        workers = Workers(WorkerSettings(parallel=1))
        with (
            path.open("rb") as long,
            MODEL.open("rb") as file,
            attached(long.fileno()) as once,
            attached(file.fileno()) as again,
        ):
            with pytest.raises(
                InputError, match=r"^network 'long': its list of 100000 launches is longer than an answer may be: "
            ):
                await workers.decompose(once, [TensorSpec((8, 8))], "long")
            info, _ = await workers.decompose(again, IMAGE, "x")
            return info

    assert asyncio.run(job()).launches


def test_a_client_that_goes_away_takes_its_reader_with_it(readers: Callable[[], list[psutil.Process]]) -> None:
    async def job() -> None:
        workers = Workers()
        with MODEL.open("rb") as file, attached(file.fileno()) as sent:
            task = asyncio.create_task(workers.decompose(sent, IMAGE, "x"))
            while not readers() and not task.done():
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(job())
    assert not readers()


class Stopped:
    """Two readers at once, each stopped after it has become somebody else."""

    def __init__(self, readers: Callable[[], list[psutil.Process]]) -> None:
        self._readers = readers
        self.uids: list[int] = []
        self.pids: list[int] = []

    async def look(self, seen: Callable[[], None]) -> None:
        workers = Workers(WorkerSettings(parallel=2))
        with MODEL.open("rb") as file, attached(file.fileno()) as one, attached(file.fileno()) as other:
            jobs = [asyncio.create_task(workers.decompose(sent, IMAGE, "x")) for sent in (one, other)]
            found: dict[int, int] = {}
            while len(found) < 2 and not any(job.done() for job in jobs):
                for reader in self._readers():
                    if reader.pid not in found and (uid := reader.uids().effective) != 0:
                        os.kill(reader.pid, signal.SIGSTOP)
                        found[reader.pid] = uid
                await asyncio.sleep(0.001)
            self.pids, self.uids = list(found), list(found.values())
            try:
                seen()
            finally:
                for job in jobs:
                    job.cancel()
                await asyncio.gather(*jobs, return_exceptions=True)


@needs_root
def test_workers_at_the_same_time_are_different_users_without_rights_over_each_other(
    readers: Callable[[], list[psutil.Process]],
) -> None:
    stopped = Stopped(readers)
    # As one of them, without anything else that confines it.
    program = """
import ctypes, os, sys
own, *others = map(int, sys.argv[1:])
os.setgroups([]); os.setresgid(own, own, own); os.setresuid(own, own, own)
for other in others:
    proc = f"/proc/{other}"
    for attempt in (lambda: os.kill(other, 0), lambda: open(f"{proc}/mem", "rb"), lambda: os.readlink(f"{proc}/exe")):
        try:
            attempt()
            print("done")
        except PermissionError:
            pass
    if ctypes.CDLL(None).ptrace(16, other, None, None) != -1:
        print("traced")
"""

    def seen() -> None:
        assert len(set(stopped.uids)) == 2 and set(stopped.uids) <= set(user_pool.RANGE)
        own, other = stopped.uids[0], stopped.pids[1]
        command = [sys.executable, "-c", program, str(own), str(other), str(os.getpid())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    asyncio.run(stopped.look(seen))
    assert not readers()


def test_what_confines_workers_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def jobs() -> None:
        workers = Workers()
        for _ in range(2):
            with MODEL.open("rb") as file, attached(file.fileno()) as sent:
                await workers.decompose(sent, IMAGE, "x")

    with caplog.at_level(logging.INFO):
        asyncio.run(jobs())
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith("children that read models are confined by ")


def test_a_sweep_answers_what_the_surface_is_on_one_thread_or_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    bundle = resolve_bundle("agx-xavier-sim")
    loaded = load_bundle(bundle, cache_dir=tmp_path)
    _, network = packed_network(NETWORK)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})

    def swept(threads: int) -> tuple[Any, bytes]:
        workers = Workers(WorkerSettings(threads=threads))
        return packed_surface(asyncio.run(workers.sweep(network, bundle, tmp_path, loaded.manifest.grid, "timeline")))

    assert swept(1) == swept(3) == packed_surface(surface(NETWORK, loaded.cost))


def test_a_sweep_without_its_tables_makes_them_for_itself_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "tables").mkdir()
    bundle, (_, network) = resolve_bundle("agx-xavier-sim"), packed_network(NETWORK)
    swept = asyncio.run(Workers().sweep(network, bundle, tmp_path, BOARD.grid, "timeline"))
    assert list((tmp_path / "tables").iterdir()) == []
    assert packed_surface(swept) == packed_surface(surface(NETWORK, load_bundle(bundle, cache_dir=tmp_path / "other").cost))


def test_a_sweep_without_tables_of_models_in_treelites_form_says_so(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "one", tmp_path / "tables"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    make_bundle(tmp_path / "one")
    _, network = packed_network(NETWORK)
    with pytest.raises(InputError, match=r"has no node table, and treelite, which makes one, cannot be loaded"):
        asyncio.run(Workers().sweep(network, tmp_path / "one", tmp_path, BOARD.grid, "timeline"))
    assert list((tmp_path / "tables").iterdir()) == []
