# SPDX-License-Identifier: Apache-2.0
"""Two applications whose frames queue on one GPU: the real daemon on a simulated board, on which they run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import jetdvfs
from jetdvfs.daemon.planning.lease_plan import GpuLoad
from jetdvfs.daemon.wire.client import Client, HeldLease
from jetdvfs.kernels.network import Network
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon
from jetdvfs.tests.support.daemons.paced import IMAGE, MODEL, predicted
from jetdvfs.tests.support.responses import responses_ms


@pytest.fixture(scope="module")
def daemon(board: Board, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    found = board.settings()
    with Daemon(board, tmp_path_factory.mktemp("sharing"), "--profile", "agx-xavier-sim") as daemon:
        yield daemon
    assert board.settings() == found


@pytest.fixture(scope="module")
def network() -> Network:
    found: Network = jetdvfs.decompose(str(MODEL), IMAGE[0])
    return found


def held(client: Client, limit_ms: float, fps: float | None = None) -> HeldLease:
    return client.hold(client.load(MODEL, IMAGE), f"latency_ms={limit_ms:.3f}", fps=fps, confidence=0.9)


def run_both(
    board: Board, network: Network, frames: int, fps: float, pids: tuple[int, int] = (0, 0)
) -> tuple[list[float], list[float]]:
    """Latencies, in ms, of two applications that run at the same time, the second one back to back, of these processes."""

    def run(rate: float | None, pid: int) -> list[float]:
        stream = board.twin.infer(network, fps=rate, frames=frames, pid=pid)
        return [1e3 * latency for latency in stream.latencies_s]

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.submit(run, fps, pids[0]), pool.submit(run, None, pids[1])
        return one.result(), other.result()


@pytest.mark.slow
def test_two_that_alone_fit_lower_clocks_get_clocks_at_which_both_keep_their_targets(
    board: Board, daemon: Daemon, network: Network
) -> None:
    limit_ms = 4 * float(predicted().latency_ms.min())
    with daemon.client() as client, daemon.client() as other, held(client, limit_ms, 10) as first:
        alone = board.clocks
        assert first.shared is None and first.unkept is None
        with held(other, 1.1 * limit_ms) as second:
            together = board.clocks
            assert together.gpu_hz > alone.gpu_hz
            shared = second.shared
            assert shared is not None and shared["leases"] == [first.id] and shared["latency_ms"] <= 1.1 * limit_ms
            assert second.unkept is None
            paced, back_to_back = run_both(board, network, 20, 10)
            # The same of two processes, which take turns.
            works = [GpuLoad(predicted(), 10, 0.9, process=1), GpuLoad(predicted(), None, 0.9, process=2)]
            bounds = [float(one[predicted().grid.index(together)]) for one in responses_ms(works, 0.9)]
            for bound_ms, latencies in zip(bounds, run_both(board, network, 20, 10, (1, 2)), strict=True):
                assert sum(one > bound_ms for one in latencies) <= 2
            # What those clocks cost: at the ones that are enough for each alone, both are late.
            alone_ms = 2 * float(predicted().latency_ms[predicted().grid.index(alone)])
            assert alone_ms > 1.1 * limit_ms
            assert sum(one > limit_ms for one in paced) <= 2
            assert sum(one > 1.1 * limit_ms for one in back_to_back) <= 2
            # What they report, waiting included, is no reason to set the clocks otherwise.
            changes = client.status()["changes"]
            for lease, latencies in ((first, paced), (second, back_to_back)):
                for latency_ms in latencies:
                    lease.report(latency_ms)
                lease.flush()
            time.sleep(0.5)
            assert client.status()["changes"] == changes and changes["count"] == 2 and board.clocks == together
            states = {lease["lease"]: lease for lease in client.status()["leases"]}
            assert states[first.id]["shared"]["leases"] == [second.id] and states[first.id].get("unkept") is None
        assert board.clocks.gpu_hz < together.gpu_hz


def test_what_both_cannot_have_is_said_with_the_best_attainable_everywhere(daemon: Daemon) -> None:
    limit_ms = 1.5 * float(predicted().latency_ms.min())
    with daemon.client() as client, daemon.client() as other, held(client, limit_ms) as first, held(other, limit_ms) as second:
        assert second.unkept is not None and second.unkept["leases"] == [first.id]
        assert "best attainable" in second.unkept["reason"] and f"over {limit_ms:.4g} ms" in second.unkept["reason"]
        status = client.status()
        assert all("best attainable" in lease["unkept"]["reason"] for lease in status["leases"])
        assert any("best attainable" in text for text in status["degraded"])
        assert any("best attainable" in entry["message"] for entry in client.log(second.id))
        best_ms = 2 * float(predicted().quantile(0.9).latency_ms.min())
        assert second.shared is not None and second.shared["latency_ms"] == pytest.approx(best_ms, rel=0.05)


def test_frames_of_both_that_take_longer_than_predicted_are_made_good_in_company_with_one_change_each(
    board: Board, daemon: Daemon
) -> None:
    limit_ms = 5 * float(predicted().latency_ms.min())

    def observed_ms() -> float:
        return 1.3 * 2 * float(predicted().latency_ms[predicted().grid.index(board.clocks)])

    with daemon.client() as client, daemon.client() as other, held(client, limit_ms) as first, held(other, limit_ms) as second:
        assert observed_ms() > limit_ms
        before = client.status()["changes"]["count"]
        for _ in range(16):
            time.sleep(0.15)
            late = observed_ms() > limit_ms
            first.report(observed_ms())
            second.report(observed_ms())
        assert not late and observed_ms() <= limit_ms
        assert client.status()["changes"]["count"] <= before + 2
