# SPDX-License-Identifier: Apache-2.0
"""Frames that cannot be their network's correct nothing, and their application hears why: by rule, and in the real daemon."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.daemon.leases.credible_range import FAR, INSISTENT, CredibleRange, OutlierTracker, credible, doubt
from jetdvfs.daemon.wire.client import Client, HeldLease
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.daemons.paced import IMAGE, MODEL, Application, own, predicted
from jetdvfs.tests.support.surfaces import GRID, crowded

HERE = FrequencyConfiguration(500_000, 300_000_000, 600_000_000)


def test_frames_below_the_roofline_or_far_from_a_prediction_are_out_of_range() -> None:
    surface = replace(crowded(), least_ms=np.full(GRID.shape, 0.01))
    here_ms = surface.at(HERE).latency_ms
    where = credible(surface, HERE)
    sides = [where.side(latency_ms) for latency_ms in (0.0, 0.009, here_ms / 3.1, here_ms / 2.9, 2.9 * here_ms, 3.1 * here_ms)]
    assert sides == ["impossible", "impossible", "fast", None, None, "slow"]
    assert credible(surface, HERE, alone=False).side(100 * here_ms) is None  # frames of others delay these
    accepted = credible(surface, HERE, accepted=True)
    assert (accepted.side(0.009), accepted.side(here_ms / 9)) == ("impossible", None)
    guessed = replace(surface, guessed_share=np.full(GRID.shape, 0.2))
    assert credible(guessed, HERE).side(here_ms / 9) is None
    assert credible(None, None).side(0.0) == "impossible" and credible(None, None).side(1e7) is None
    unknown = credible(replace(surface, least_ms=np.full(GRID.shape, 0.01)), FrequencyConfiguration(1, 1, 1))
    assert (unknown.side(0.009), unknown.side(1e7)) == ("impossible", None)


def test_frames_are_doubted_once_most_of_the_last_are_and_believed_for_their_lease_once_they_insist() -> None:
    where, doubts = CredibleRange(1.0, 30.0), OutlierTracker()
    doubts.note([2.0, 2.0, 20.0, 20.0, 20.0], where, 0.0)
    assert doubts.found() is None
    doubts.note([2.0] * 4, where, 1.0)
    assert doubts.found() == ("fast", 2.0) and doubts.frames == 4
    frames, seconds = INSISTENT["fast"]
    doubts.note([2.0] * frames, where, 2.0)
    assert not doubts.insistent(2.0) and doubts.insistent(2.0 + seconds)
    doubts.note([20.0], where, 50.0)
    assert not doubts.insistent(100.0)
    slow = OutlierTracker()
    slow.note([FAR * 31.0] * INSISTENT["slow"][0], where, 0.0)
    assert slow.insistent(0.0) and slow.found() == ("slow", FAR * 31.0)
    slow.accept()
    assert not slow.insistent(math.inf) and slow.found() is None
    impossible = OutlierTracker()
    impossible.note([0.1] * 10_000, where, 0.0)
    assert not impossible.insistent(math.inf)


def test_the_reason_says_what_was_observed_what_is_possible_and_what_to_check() -> None:
    where = CredibleRange(1.4, 6.7)
    told = str(doubt("impossible", 0.1, where, 3, "resnet18"))
    assert told == "0.1 ms is less than resnet18 can take at these clocks (1.4 ms): does the frame wait for the GPU?"
    assert "6.7 ms" in str(doubt("fast", 2.0, where, 3, "resnet18"))
    assert "other work" in str(doubt("slow", 60.0, where, 3, "resnet18"))


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as client:
        yield client


@pytest.fixture
def application(client: Client) -> Application:
    return Application(client, slower=1.0)


def report(lease: HeldLease, latency_ms: float, reports: int = 4, frames: int = 8) -> None:
    for _ in range(reports):
        for _ in range(frames):
            lease.report(latency_ms)
        lease.flush()
        time.sleep(0.15)


def settled(board: Board) -> FrequencyConfiguration:
    """The clocks once a plan for the frames before, which a busy machine makes late, has set them."""
    while True:
        clocks = board.clocks
        time.sleep(0.5)
        if board.clocks == clocks:
            return clocks


def planned(daemon: Daemon, target: str) -> dict[str, Any]:
    """GPU and memory clock of a plan; the CPU's may be kept up for other work on this machine."""
    with daemon.client() as client:
        choice = client.plan(client.load(MODEL, IMAGE), target)["choice"]
    return {name: choice["configuration"][name] for name in ("gpu_hz", "emc_hz")}


@pytest.mark.parametrize("latency_ms", [0.0, 2.0])
def test_launch_times_change_no_plan_now_or_later(
    board: Board, daemon: Daemon, client: Client, application: Application, latency_ms: float
) -> None:
    target = f"latency_ms={application.target_ms(4):.3f}"
    before = planned(daemon, target)
    with client.hold(application.network, target) as lease:
        clocks = board.clocks
        assert latency_ms < application.predicted_ms(clocks) / FAR
        report(lease, latency_ms)
        assert eventually(lambda: own(client)["doubted"] is not None)
        told = own(client)["doubted"]
        assert "does the frame wait for the GPU?" in told["reason"] and told["observed_ms"] == latency_ms
        assert told["side"] in ("impossible", "fast") and set(lease.notices(within_s=5.0)) == {f"doubted {told['side']}"}
        report(lease, latency_ms)
        assert board.clocks == clocks and own(client)["frames"] == 64
        (said,) = (entry for entry in client.log(lease.id) if entry["kind"] == "frames_doubted")
        assert told["reason"][:20] in said["message"]
    assert client.learned() == []
    assert planned(daemon, target) == before
    daemon.stop()
    daemon.start()
    assert planned(daemon, target) == before


def test_frames_far_slower_than_predicted_get_the_highest_clocks_until_they_are_believed(
    board: Board, daemon: Daemon, client: Client, application: Application
) -> None:
    slow_ms = 30 * application.target_ms(1)
    with client.hold(application.network, f"latency_ms={application.target_ms(3):.3f}") as lease:
        report(lease, slow_ms, reports=2)
        top = predicted().grid.top
        assert eventually(lambda: board.clocks == top)
        assert "other work" in own(client)["doubted"]["reason"]
        report(lease, slow_ms, reports=8)
        assert eventually(lambda: own(client)["doubted"] is None and own(client)["corrected"] is not None)
    assert client.learned() == []  # insisted on by this lease, for this lease
    with client.hold(application.network, f"latency_ms={application.target_ms(3):.3f}") as again:
        assert again.corrected is None and board.clocks != top


def test_an_application_can_have_its_frames_believed(
    board: Board, daemon: Daemon, client: Client, application: Application
) -> None:
    target = f"latency_ms={application.target_ms(1.2):.3f}"
    with client.hold(application.network, target, trust_frames=True) as lease:
        before = board.clocks
        report(lease, 0.3)
        assert eventually(lambda: board.clocks != before)
        assert own(client)["doubted"] is None
    (kept,) = client.learned()
    assert kept["factor"] < 0.2


def test_remembered_frames_refuse_no_hold_and_reach_no_farther_than_the_predictions_uncertainty(
    board: Board, daemon: Daemon, client: Client, application: Application
) -> None:
    fastest_ms = application.target_ms(1)
    with client.hold(application.network, f"latency_ms={3 * fastest_ms:.3f}") as lease:
        for _ in range(8):
            report(lease, 2.5 * application.predicted_ms(settled(board)), reports=1)
    (kept,) = client.learned()
    assert kept["factor"] == pytest.approx(2.5, rel=0.1)
    tight = f"latency_ms={1.02 * fastest_ms:.3f}"
    plan = client.plan(application.network, f"latency_ms={2 * fastest_ms:.3f}")["choice"]
    place = predicted().grid.index(FrequencyConfiguration(**plan["configuration"]))
    sigma = float(predicted().latency_sigma[place])
    assert plan["latency_ms"] <= float(predicted().latency_ms[place]) * np.exp(2 * sigma) * 1.001
    client.plan(application.network, tight)
    with client.hold(application.network, tight) as again:
        assert again.corrected is not None
    assert client.forget(MODEL.stem) == 1 and client.learned() == [] and client.forget() == 0
