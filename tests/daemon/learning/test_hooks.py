# SPDX-License-Identifier: Apache-2.0
"""Hooks of applications: frames as blocks, decorators and modules; a target changed at run time; what was learned is kept."""

from __future__ import annotations

import time

import pytest

from jetdvfs import qos
from jetdvfs.daemon.errors import TargetNotAttainable
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.daemons.paced import FPS, IMAGE, MODEL, Application, own, run_frames


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
            assert eventually(lambda: application(board.clocks) <= (again.limit_ms or 0))
            clocks = board.clocks
            run_frames(board, again, application, 4)
            assert board.clocks == clocks
    daemon.stop()
    daemon.start()
    with daemon.client() as client, client.hold(client.load(MODEL, IMAGE), target, fps=FPS) as last:
        assert last.corrected is not None
        run_frames(board, last, application, 4)
        assert eventually(lambda: application(board.clocks) <= (last.limit_ms or 0))
