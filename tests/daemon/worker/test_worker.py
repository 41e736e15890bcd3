# SPDX-License-Identifier: Apache-2.0
"""The unprivileged worker: real children, real descriptors, models that try something, and children that were taken over."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from jetdvfs.daemon.errors import InputError
from jetdvfs.daemon.worker import accounts
from jetdvfs.daemon.worker.answers import NetworkInfo, packed_network, packed_surface, surface_bytes
from jetdvfs.daemon.worker.framing import PREFIX
from jetdvfs.daemon.worker.model_file import ModelFile
from jetdvfs.daemon.worker.workers import WorkerFailed, Workers, WorkerSettings
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.profiles import reference
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.bundle.finding import resolve_bundle
from jetdvfs.tests.support.daemons.attached import attached
from jetdvfs.tests.support.models import handmade, handmade_onnx
from jetdvfs.tests.support.paths import REFERENCE
from jetdvfs.tests.support.profiles.small_bundle import BOARD

MODEL = REFERENCE / "squeezenet1_0.pt"
IMAGE = [TensorSpec((1, 3, 224, 224))]
NETWORK = reference.reference_network("shufflenet_v2_x1_0")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def decompose(descriptor: int, settings: WorkerSettings | None = None) -> NetworkInfo:
    async def job() -> NetworkInfo:
        with attached(descriptor) as sent:
            info, _ = await Workers(settings).decompose(sent, IMAGE, "squeezenet")
            return info

    return asyncio.run(job())


def refusal(descriptor: int) -> str:
    with pytest.raises(InputError) as caught:
        decompose(descriptor)
    text = str(caught.value)
    assert "\n" not in text
    return text


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


def test_a_pipe_is_refused() -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, b"PK")
        assert "a pipe" in refusal(reading)
    finally:
        os.close(reading)
        os.close(writing)


def test_what_is_no_regular_file_is_refused_by_name(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    device = os.open("/dev/zero", os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as sock:
        assert "a directory" in refusal(folder)
        assert "a character device" in refusal(device)
        assert "a socket" in refusal(sock.fileno())
    os.close(folder)
    os.close(device)


def test_a_descriptor_that_is_not_open_for_reading_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(MODEL.read_bytes())
    with path.open("ab") as file:
        assert "cannot be read" in refusal(file.fileno())


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\0" * 5000, MODEL.read_bytes()[:-400]])
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with path.open("rb") as file:
        refusal(file.fileno())


def test_a_pickle_that_calls_something_is_refused_and_calls_nothing(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
            return os.system, (f"touch {tmp_path}/called",)

    path = tmp_path / "model.pt"
    with zipfile.ZipFile(MODEL) as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.infolist():
            evil = entry.filename.endswith("/data.pkl")
            target.writestr(entry.filename, pickle.dumps(Evil(), protocol=2) if evil else source.read(entry))
    tmp_path.chmod(0o777)
    with path.open("rb") as file:
        assert "system" in refusal(file.fileno())
    assert not (tmp_path / "called").exists()


@pytest.fixture
def readers() -> Callable[[], list[psutil.Process]]:
    """Tells which children this process has, and which run their program, that it did not have before the test."""
    before = psutil.Process().children()

    def runs(child: psutil.Process) -> bool:
        with suppress(psutil.NoSuchProcess):
            return child not in before and "jetdvfs.daemon.worker.main" in child.cmdline()
        return False

    return lambda: [child for child in psutil.Process().children() if runs(child)]


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
        assert len(set(stopped.uids)) == 2 and set(stopped.uids) <= set(accounts.RANGE)
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


def taken_over(folder: Path, says: str) -> Path:
    """A program in the place of a child's: it answers something of its own. ``sock`` is its socket, ``answer`` sends one."""
    program = folder / "taken-over"
    program.write_text(
        f"#!{sys.executable} -I\n"
        "import json, socket, struct, sys, time\n"
        "sock = socket.socket(fileno=json.loads(sys.argv[-1])['socket'])\n"
        "def answer(header, payload=b''):\n"
        "    sock.recv(1 << 16)  # what is closed with something unread in it loses what was sent\n"
        "    sock.sendall(struct.pack('>II', len(header), len(payload)) + header + payload)\n" + says
    )
    program.chmod(0o755)
    return program


NONSENSE = [
    "sock.sendall(struct.pack('>II', 1 << 31, 0)); sock.sendall(b'x' * (1 << 24))",
    "sock.sendall(struct.pack('>II', 2, 1 << 31) + b'{}'); sock.sendall(b'x' * (1 << 24))",
    f"sock.sendall(b'x' * {PREFIX.size - 1})",
    "sock.sendall(b'')",
    "answer(b'nonsense')",
    "answer(b'[' * 60000)",
    "answer(b'null')",
    "answer(b'{}')",
    "answer(b'{}', b'x' * (1 << 20))",
    'answer(b\'{"error": "fatal"}\')',
    'answer(b\'{"walls": ["\\\\u001b[2J"]}\')',
    'answer(b\'{"about": {"name": "x", "digest": "y"}}\')',
    "import os; os.kill(os.getpid(), 40)",
    "import os; os._exit(0)",
    "import time; time.sleep(60)",
]


def test_a_child_that_was_taken_over_gets_a_line_said_of_it_and_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readers: Callable[[], list[psutil.Process]]
) -> None:
    async def jobs() -> None:
        workers = Workers(WorkerSettings(parallel=1, model_timeout_s=4.0))
        with MODEL.open("rb") as file:
            for says in NONSENSE:
                with monkeypatch.context() as patched, attached(file.fileno()) as sent:
                    patched.setattr(sys, "executable", str(taken_over(tmp_path, says)))
                    started = time.monotonic()
                    with pytest.raises(InputError, match=r"^model: reading it ") as caught:
                        await workers.decompose(sent, IMAGE, "x")
                    assert time.monotonic() - started < 6 and str(caught.value).isprintable(), says
            with attached(file.fileno()) as sent:
                info, _ = await workers.decompose(sent, IMAGE, "x")
                assert info.launches

    asyncio.run(jobs())
    assert not readers()


def test_a_surface_that_a_child_made_up_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says = """answer(b'{"about": {"method": "sum", "unmodelled": []}}', struct.pack('d', float('nan')) * %d)"""
    size = surface_bytes(BOARD.grid) // 8
    monkeypatch.setattr(sys, "executable", str(taken_over(tmp_path, says % size)))
    bundle = resolve_bundle("agx-xavier-sim")
    with pytest.raises(WorkerFailed, match=r"answered something else than a surface .*latency_ms"):
        asyncio.run(Workers().sweep(b"", bundle, tmp_path, BOARD.grid, "sum"))


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


def test_a_sweep_without_its_tables_says_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "tables").mkdir()
    _, network = packed_network(NETWORK)
    with pytest.raises(InputError, match=r"has no node table, and treelite, which makes one, cannot be loaded"):
        asyncio.run(Workers().sweep(network, resolve_bundle("agx-xavier-sim"), tmp_path, BOARD.grid, "timeline"))
    assert list((tmp_path / "tables").iterdir()) == []


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(MODEL.read_bytes())
    with path.open("rb") as handle:
        file = ModelFile(handle.fileno())
        os.truncate(path, 100)
        file.seek(90)
        assert len(file.read(50)) == 10
        with pytest.raises(InputError, match="shrank"):
            file.read(50)
        with pytest.raises(InputError, match="shrank"):
            file.check()


def test_a_file_that_changed_while_it_was_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(MODEL.read_bytes())
    with path.open("rb") as handle:
        file = ModelFile(handle.fileno())
        file.read(100)
        with path.open("ab") as writer:
            writer.write(b"more")
        with pytest.raises(InputError, match="changed"):
            file.check()


def test_no_more_than_the_bound_is_read_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(b"x" * 1000)
    with path.open("rb") as handle:
        file = io.BufferedReader(ModelFile(handle.fileno(), read_bytes=600), buffer_size=100)
        with pytest.raises(InputError, match="would have to be read"):
            file.read()
