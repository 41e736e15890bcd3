# SPDX-License-Identifier: Apache-2.0
"""Hooks of applications: frames as blocks, decorators and modules; a target changed at run time; what was learned is kept."""

from __future__ import annotations

import contextlib
import re
import sys
import time
import types

import pytest

from jetdvfs import qos
from jetdvfs.daemon.errors import TargetNotAttainable
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.daemons.paced import FPS, IMAGE, MODEL, Application, own, run_frames
from jetdvfs.tests.support.paths import ROOT


class Reports:
    def __init__(self) -> None:
        self.latencies_ms: list[float] = []

    def report(self, latency_ms: float) -> None:
        self.latencies_ms.append(latency_ms)


class Module:
    """Something like a network's module, which returns before it is done."""

    training = False

    def __call__(self, image: int) -> int:
        return 2 * image


def test_spans_are_part_of_their_frame() -> None:
    lease = Reports()
    with qos.frame(lease) as frame:
        for _ in range(2):
            with frame.span("resize"):
                time.sleep(0.01)
    assert lease.latencies_ms == [frame.latency_ms]
    assert 20 <= frame.spans["resize"] <= frame.latency_ms


def test_calls_of_functions_and_modules_are_frames() -> None:
    lease, waited = Reports(), list[int]()

    @qos.frame(lease)
    def infer(image: int, scale: int = 2) -> int:
        """Doubles."""
        return image * scale

    assert infer(3, scale=3) == 9 and infer.__doc__ == "Doubles."
    module = qos.timed(Module(), lease, wait=lambda: waited.append(1))
    assert module(4) == 8 and module.training is False
    assert len(lease.latencies_ms) == 2 and waited == [1]
    with pytest.raises(TypeError):
        infer("x", scale="y")  # type: ignore[arg-type]
    assert len(lease.latencies_ms) == 2


class Stream:
    """A device that works after its calls have returned."""

    def __init__(self) -> None:
        self.done_s = 0.0

    def launch(self, ms: float) -> None:
        self.done_s = max(self.done_s, time.monotonic()) + ms / 1e3

    def wait(self) -> None:
        time.sleep(max(0.0, self.done_s - time.monotonic()))


def fake_torch(stream: Stream, *, initialized: bool = True, capturing: bool = False) -> types.ModuleType:
    """As much of PyTorch as frames ask, with one stream."""

    class Event:
        def __init__(self, blocking: bool) -> None:
            assert blocking  # the CPU is free meanwhile

        def record(self) -> None:
            self.due_s = stream.done_s

        def synchronize(self) -> None:
            time.sleep(max(0.0, self.due_s - time.monotonic()))

    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        Event=Event,
        is_initialized=lambda: initialized,
        is_current_stream_capturing=lambda: capturing,
        synchronize=stream.wait,
    )
    return torch


def test_a_frame_takes_until_the_gpu_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    lease, stream = Reports(), Stream()
    with qos.frame(lease, wait=stream.wait):
        stream.launch(15)
    monkeypatch.setitem(sys.modules, "torch", fake_torch(stream))
    with qos.frame(lease):
        stream.launch(15)

    @qos.frame(lease)
    def infer() -> None:
        stream.launch(15)

    infer()
    qos.timed(lambda: stream.launch(15), lease)()
    assert len(lease.latencies_ms) == 4 and min(lease.latencies_ms) >= 14
    with qos.frame(lease, wait=False):
        stream.launch(15)
    assert lease.latencies_ms[-1] < 10


def test_a_frame_waits_for_nothing_where_cuda_is_unused_or_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    lease, stream = Reports(), Stream()
    for torch in (fake_torch(stream, initialized=False), fake_torch(stream, capturing=True)):
        monkeypatch.setitem(sys.modules, "torch", torch)
        with qos.frame(lease):
            stream.launch(15)
    assert max(lease.latencies_ms) < 10


def test_a_cuda_library_that_a_frame_cannot_wait_for_is_warned_about_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", types.ModuleType("tensorrt"))
    monkeypatch.setattr(qos, "_warned", set())
    for _ in range(3):
        with qos.frame(Reports()):
            pass
    (record,) = caplog.records
    assert record.name == "jetdvfs" and "tensorrt is loaded" in record.getMessage() and "wait=" in record.getMessage()


def test_the_readmes_example_reports_frames_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```python\n(import torch\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lease, stream = Reports(), Stream()
    torch = fake_torch(stream)
    model = types.SimpleNamespace(cuda=lambda: lambda _: stream.launch(12))
    torch.jit = types.SimpleNamespace(load=lambda _: model)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(qos, "hold", lambda *_, **__: contextlib.nullcontext(lease))
    exec(example, {"camera": range(3)})
    assert len(lease.latencies_ms) == 3 and min(lease.latencies_ms) >= 11


def test_another_target_is_asked_for_in_one_call(board: Board, daemon: Daemon) -> None:
    with daemon.client() as client:
        application = Application(client, slower=1.0)
        slow, fast = (f"latency_ms={application.target_ms(times):.4g}" for times in (3, 1.2))
        with qos.hold(MODEL, IMAGE, slow, fps=FPS, socket_path=daemon.socket) as lease:
            before = board.clocks
            lease.change(fast)
            assert board.clocks != before
            assert own(client)["target"] == fast and own(client)["lease"] == lease.id
            with pytest.raises(TargetNotAttainable):
                lease.change("latency_ms=0.01")
            assert own(client)["target"] == fast
            lease.change(slow)
            assert board.clocks == before


@pytest.mark.slow
def test_a_few_new_frames_confirm_what_an_earlier_lease_or_daemon_learned(board: Board, daemon: Daemon) -> None:
    with daemon.client() as client:
        application = Application(client)
        target = f"latency_ms={application.target_ms(2):.3f}"
        with client.hold(application.network, target, fps=FPS) as lease:
            run_frames(board, lease, application, 4)
            assert eventually(lambda: run_frames(board, lease, application, 1)[0] <= (lease.limit_ms or 0))
            run_frames(board, lease, application, 4)
            assert lease.corrected is None and own(client)["corrected"]["frames"] > 4
        with client.hold(application.network, target, fps=FPS) as again:
            told = again.corrected
            assert told is not None and told["frames"] > 4
            run_frames(board, again, application, 4)

            def settled() -> bool:
                clocks = board.clocks
                run_frames(board, again, application, 4)
                return board.clocks == clocks and application(clocks) <= (again.limit_ms or 0)

            assert eventually(settled)
    daemon.stop()
    daemon.start()
    with daemon.client() as client, client.hold(client.load(MODEL, IMAGE), target, fps=FPS) as last:
        assert last.corrected is not None
        run_frames(board, last, application, 4)
        assert eventually(lambda: application(board.clocks) <= (last.limit_ms or 0))
