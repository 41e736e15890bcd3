# SPDX-License-Identifier: Apache-2.0
"""A target that frames miss is said at once, and met again where any configuration can meet it: the real daemon on a board."""

from __future__ import annotations

import re

import pytest

from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.daemons.paced import FPS, Application, own, predicted, run_frames
from jetdvfs.tests.support.verbs import on_terminal


def test_a_missed_target_is_corrected_within_ten_frames_and_said(board: Board, daemon: Daemon) -> None:
    with daemon.client() as client, daemon.client() as other:
        application = Application(client)
        limit_ms = application.target_ms(2)
        with client.hold(application.network, f"latency_ms={limit_ms:.3f}", fps=FPS) as lease:
            assert application.predicted_ms(board.clocks) <= limit_ms < application(board.clocks)
            took = run_frames(board, lease, application, 12)
            assert max(took[10:]) <= limit_ms
            assert eventually(lambda: run_frames(board, lease, application, 1) and own(other)["missed"] is None)
            assert 3 <= own(other)["late"] <= 10
            kinds = [entry["kind"] for entry in other.log(lease.id)]
            assert kinds.index("target_missed") < kinds.index("planned_again") < kinds.index("target_kept")
            said = next(entry for entry in other.log(lease.id) if entry["kind"] == "target_missed")
            assert "the prediction was wrong by 30%" in said["message"] and said["app"]


def test_what_no_configuration_can_meet_is_said_with_the_best_attainable_which_is_set(board: Board, daemon: Daemon) -> None:
    with daemon.client() as client, daemon.client() as other:
        application = Application(client, slower=3.0)
        with client.hold(application.network, f"latency_ms={application.target_ms(1.5):.3f}") as lease:
            run_frames(board, lease, application, 9)
            assert eventually(lambda: "best attainable" in ((lease.missed() or {}).get("doing") or "")), other.log()
            missed = lease.missed()
            assert missed is not None and missed["observed_ms"] > missed["limit_ms"]
            assert "best attainable" in own(other)["unkept"]["reason"]
            status = on_terminal("status", "--socket", daemon.socket, NO_COLOR="")
            assert re.search(r"^\x1b\[31m     missed: latency_ms=.* observed, over .*\x1b\[0m$", status, re.MULTILINE)
            assert "\x1b" not in on_terminal("status", "--socket", daemon.socket, NO_COLOR="1")
            assert application(board.clocks) <= 1.05 * application.slower * float(predicted().latency_ms.min())
            clocks = board.clocks
            run_frames(board, lease, application, 8)
            assert board.clocks == clocks


def test_what_happens_is_told_to_whoever_watches(board: Board, daemon: Daemon) -> None:
    with daemon.client() as client, daemon.client() as watching:
        application = Application(client)
        with client.hold(application.network, f"latency_ms={application.target_ms(2):.3f}", fps=FPS) as lease:
            news = watching.watch(lease.id, after=0)
            assert next(news)["kind"] == "lease_begun"
            run_frames(board, lease, application, 12)
            while (entry := next(news))["kind"] != "target_missed":
                pass
            assert entry["lease"] == lease.id and "30%" in entry["reason"]


@pytest.mark.slow
def test_a_target_that_is_kept_stays_so_whatever_is_tried_for_less(board: Board, daemon: Daemon) -> None:
    with daemon.client() as client:
        application = Application(client, slower=1.0)
        with client.hold(application.network, f"latency_ms={application.target_ms(2):.3f}", fps=FPS) as lease:
            run_frames(board, lease, application, 24)
            assert lease.missed() is None
            assert {entry["kind"] for entry in client.log()} <= {"lease_begun", "clocks_set", "planned_again"}
