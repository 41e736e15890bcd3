# SPDX-License-Identifier: Apache-2.0
"""What the daemon or the board refuses: an exit code, one line, and the board as it was."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from jetdvfs.daemon.errors import (
    DaemonError,
    HardwareBusy,
    HardwareRefused,
    InputError,
    TargetNotAttainable,
    UsageError,
)
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.support.daemons.board_daemon import EMC, GPU, LOW, Board, Daemon, eventually
from jetdvfs.tests.support.paths import REFERENCE

MODEL = REFERENCE / "squeezenet1_0.pt"

IMAGE = ["1x3x224x224"]


def test_what_cannot_be_done_is_refused_with_its_exit_code(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    with daemon.client() as client:
        network = client.load(MODEL, IMAGE)

        def release_of_nobody() -> None:
            client.hold(configuration=LOW, app="x", reason="")
            client.release("99")

        refusals: list[tuple[type[Exception], Callable[[], object]]] = [
            (TargetNotAttainable, lambda: client.hold(network, "latency_ms=0.001")),
            (UsageError, lambda: client.hold(network, "speed=9")),
            (UsageError, lambda: client.hold("n99", "min-energy")),
            (UsageError, lambda: client.hold(network)),
            (UsageError, lambda: client.hold(network, "min-energy", configuration=LOW)),
            (UsageError, lambda: client.hold(configuration=(1, 2, 3))),
            (UsageError, release_of_nobody),
            (InputError, lambda: client.load(__file__, IMAGE)),
            (InputError, lambda: client.load(MODEL, ["1x3x8"])),
            (InputError, lambda: client.load(MODEL, ["1x3x224x224:float33"])),
            (InputError, lambda: client.load_network({"launches": []})),
            (InputError, lambda: client.load_network({"launches": [{"kind": "conv2d"}]})),
        ]
        for kind, attempt in refusals:
            with pytest.raises(kind) as caught:
                attempt()
            assert "\n" not in str(caught.value)
        client.release("1")
        assert board.settings() == found


def test_a_file_that_refuses_leaves_everything_as_it_was(board: Board, found: dict[str, str], daemon: Daemon) -> None:
    with daemon.client() as client:
        board.twin.faults.refuse(f"/{GPU}/userspace/set_freq")
        with pytest.raises((HardwareRefused, HardwareBusy), match="set_freq"):
            client.hold(configuration=LOW)
        assert board.settings() == found
        status = client.status()
        assert status["leases"] == [] and status["baseline"] == "none"
        board.twin.faults.clear()
        with client.hold(configuration=LOW):
            assert board.clocks == LOW
            # Another lease that cannot be had does not disturb the first.
            board.twin.faults.refuse(f"/{GPU}/userspace/set_freq")
            with pytest.raises(DaemonError):
                client.hold(configuration=FrequencyConfiguration(2265600, 1377000000, 2133000000))
            board.twin.faults.clear()
            assert board.clocks == LOW
            assert len(client.status()["leases"]) == 1


def test_a_stuck_clock_is_said_to_be_unverified(board: Board, daemon: Daemon) -> None:
    with daemon.client() as client:
        board.twin.faults.stick("gpu", 318750000)
        with client.hold(configuration=LOW) as lease:
            assert lease.applied is not None and not lease.applied["verified"]
            assert lease.applied["requested"]["gpu_hz"] == LOW.gpu_hz
            assert lease.applied["effective"]["gpu_hz"] == 318750000
            assert any("GPU" in reason for reason in client.status()["degraded"])
        board.twin.faults.clear()
        assert eventually(lambda: client.status()["degraded"] == [])


def test_a_clock_file_that_hangs_is_named_and_everybody_is_answered(
    board: Board, found: dict[str, str], daemon: Daemon
) -> None:
    with daemon.client() as client, client.hold(configuration=LOW):
        board.twin.faults.slow_down(f"/{EMC}/pto_counter", 4.0)
        assert eventually(lambda: f"/{EMC}/pto_counter: reading it hangs" in client.status()["degraded"])
        started = time.monotonic()
        status = client.status()
        assert time.monotonic() - started < 2
        assert len(status["leases"]) == 1 and status["temperatures_mc"]
        board.twin.faults.clear()
        assert eventually(lambda: client.status()["degraded"] == [])
        assert board.clocks == LOW
