# SPDX-License-Identifier: Apache-2.0
"""The unprivileged worker: real children, real descriptors, and models that try something."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pickle
import pwd
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from jetdvfs.daemon.errors import InputError
from jetdvfs.daemon.surfaces import register
from jetdvfs.daemon.worker.model_file import ModelFile
from jetdvfs.daemon.worker.workers import Workers, WorkerSettings
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.profiles import reference
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.bundle.finding import resolve_bundle
from jetdvfs.tests.support import handmade_onnx
from jetdvfs.tests.support.attached import attached
from jetdvfs.tests.support.paths import REFERENCE

MODEL = REFERENCE / "squeezenet1_0.pt"
IMAGE = [TensorSpec((1, 3, 224, 224))]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def decompose(descriptor: int, settings: WorkerSettings | None = None) -> bytes:
    async def job() -> bytes:
        with attached(descriptor) as sent:
            return await Workers(settings).decompose(sent, IMAGE, "squeezenet")

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
        network = json.loads(decompose(file.fileno()))
        assert file.tell() == 77
    loaded = register(network)
    assert loaded.name == "squeezenet"
    assert loaded.info["kinds"]["conv2d"] == 26


def test_an_onnx_file_is_read_through_its_descriptor_too(tmp_path: Path) -> None:
    path = tmp_path / "model"  # known by what is in it, not by its name
    picture = handmade_onnx.declared("x", (1, 3, 224, 224))
    path.write_bytes(handmade_onnx.model(handmade_onnx.graph([handmade_onnx.node("Relu", ["x"], ["y"])], [picture], ["y"])))
    with path.open("rb") as file:
        assert json.loads(decompose(file.fileno()))["kinds"] == {"relu": 1}


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
    """Tells which children this process has that it did not have before the test."""
    before = psutil.Process().children()
    return lambda: [child for child in psutil.Process().children() if child not in before]


def test_a_reader_that_takes_too_long_is_ended(readers: Callable[[], list[psutil.Process]]) -> None:
    with MODEL.open("rb") as file, pytest.raises(InputError, match=r"took more than 0\.02 s"):
        decompose(file.fileno(), WorkerSettings(model_timeout_s=0.02))
    assert not readers()


def test_a_reader_that_is_killed_is_reported_and_the_next_one_works(readers: Callable[[], list[psutil.Process]]) -> None:
    async def job() -> bytes:
        workers = Workers(WorkerSettings(parallel=1))
        with MODEL.open("rb") as file, attached(file.fileno()) as once, attached(file.fileno()) as again:
            first = asyncio.create_task(workers.decompose(once, IMAGE, "x"))
            while not (children := readers()) and not first.done():
                await asyncio.sleep(0.001)
            children[0].kill()
            with pytest.raises(InputError, match="ended by SIGKILL"):
                await first
            return await workers.decompose(again, IMAGE, "x")

    assert json.loads(asyncio.run(job()))["launches"]


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


def confined(program: str) -> str:
    """What a program prints after it confined itself as a worker does."""
    text = (
        "import os, socket, sys; from jetdvfs.daemon.worker.sandbox import Allowance, confine; "
        "extra = os.dup(0); "
        "confine('nobody', Allowance(memory_bytes=1 << 29, cpu_s=5), keep=()); " + program
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_root
def test_a_worker_is_nobody_and_cannot_become_anybody_else() -> None:
    status = confined("print(open('/proc/self/status').read())")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert "0" not in fields["Uid"].split() + fields["Gid"].split() + fields.get("Groups", "").split()
    assert fields["NoNewPrivs"].strip() == "1"
    assert int(fields["CapPrm"], 16) == int(fields["CapEff"], 16) == 0


@needs_root
@pytest.mark.parametrize(
    "attempt",
    [
        "os.setuid(0)",
        "os.fork()",
        "os.write(os.memfd_create('file'), b'x')",
        "bytearray(1 << 30)",
        "open('/proc/1/environ').read()",
        "[os.dup(0) for _ in range(1000)]",
        "os.kill(os.getppid(), 0)",
    ],
)
def test_a_worker_may_not(attempt: str) -> None:
    program = f"\ntry:\n    import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n    {attempt}\n    print('done')\n"
    program += "except (OSError, MemoryError) as error:\n    print(type(error).__name__)"
    assert confined(program) in ("PermissionError", "BlockingIOError", "OSError", "MemoryError")


@needs_root
def test_threads_of_a_worker_are_as_confined_as_it_is_and_no_others_can_be_started() -> None:
    program = """
import threading
from concurrent.futures import ThreadPoolExecutor
from jetdvfs.tests.support.paths import REFERENCE
crew = ThreadPoolExecutor(1)
confine('nobody', Allowance(memory_bytes=1 << 29, cpu_s=5), keep=(), start_threads=lambda: crew.submit(int).result())
status = crew.submit(lambda: open('/proc/thread-self/status').read()).result()
print(*[line.split()[1] for line in status.splitlines() if line.startswith(('Uid', 'NoNewPrivs', 'CapEff'))])
try:
    threading.Thread(target=int).start()
except RuntimeError:
    print('no more')
"""
    text = "import os\nfrom jetdvfs.daemon.worker.sandbox import Allowance, confine\n" + program
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=30)
    (uid, capabilities, no_new), last = done.stdout.splitlines()[0].split(), done.stdout.splitlines()[1]
    assert int(uid) == pwd.getpwnam("nobody").pw_uid and int(capabilities, 16) == 0 and no_new == "1"
    assert last == "no more"


def test_a_sweep_on_several_threads_answers_as_on_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    bundle = resolve_bundle("agx-xavier-sim")
    load_bundle(bundle, cache_dir=tmp_path)
    network = json.dumps(reference.reference_network("shufflenet_v2_x1_0").to_json(host_calls=True)).encode()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    one, several = (
        asyncio.run(Workers(WorkerSettings(threads=threads)).sweep(network, bundle, tmp_path, "timeline")) for threads in (1, 3)
    )
    assert one == several


def test_a_worker_keeps_no_descriptor_it_was_not_given() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    assert confined("print(sorted(int(name) for name in os.listdir('/proc/self/fd')))") == "[0, 1, 2, 3]"


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
