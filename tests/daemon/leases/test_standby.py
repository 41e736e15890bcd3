# SPDX-License-Identifier: Apache-2.0
"""Standby: a lease for a target whose frames stop gets low clocks until the next frame, or a busy GPU, brings its own back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.daemon.config import IdleRules
from jetdvfs.daemon.leases.frames import FrameLog
from jetdvfs.daemon.leases.lease import Holder, Lease
from jetdvfs.daemon.leases.standby import StandbyWatch
from jetdvfs.daemon.planning.lease_plan import LeasePlan
from jetdvfs.daemon.wire.client import Client, HeldLease
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.support.daemons.board_daemon import CPU, LOW, Board, Daemon, eventually
from jetdvfs.tests.support.paths import REFERENCE
from jetdvfs.tests.support.verbs import run_in

MODEL = REFERENCE / "squeezenet1_0.pt"
GPU_LOW, EMC_LOW = 114750000, 204000000
NONE, ONE = frozenset[str](), frozenset({"1"})


@contextmanager
def targets(board: Board, tmp_path: Path, idle: str = "{after_s: 0.5}") -> Iterator[tuple[Daemon, Client]]:
    """A daemon with a profile; standby begins soon."""
    config = tmp_path / "jetdvfsd.yaml"
    config.write_text(f"idle: {idle}\nfloors: off\n")
    with Daemon(board, tmp_path, "--profile", "agx-xavier-sim", "--config", str(config)) as daemon, daemon.client() as client:
        yield daemon, client


def held(client: Client, **options: Any) -> HeldLease:
    lease = client.hold(client.load(MODEL, ["1x3x224x224"]), "latency_ms=20", fps=30, **options)
    assert lease.plan is not None
    return lease


def frame(lease: HeldLease) -> None:
    lease.report(8.0)
    lease.flush()


def in_standby(client: Client) -> bool:
    (lease,) = client.status()["leases"]
    return bool(lease["standby"] and lease["standby"]["now"])


def test_clocks_fall_once_frames_stop_and_the_next_frame_brings_them_back(
    board: Board, found: dict[str, str], tmp_path: Path
) -> None:
    with targets(board, tmp_path) as (daemon, client):
        lease = held(client)
        planned = FrequencyConfiguration(**(lease.plan or {})["choice"]["configuration"])
        time.sleep(2.5)
        assert board.clocks == planned, "a lease that never reported a frame keeps its clocks"
        frame(lease)
        assert eventually(lambda: in_standby(client))
        assert eventually(lambda: board.clocks[1:] == (GPU_LOW, EMC_LOW))
        assert board.read(f"{CPU}/scaling_governor") == found[f"{CPU}/scaling_governor"]
        status = client.status()
        assert status["applied"]["governed"] == ["cpu_khz"] and not status["degraded"]
        assert status["leases"][0]["unkept"] is None and status["leases"][0]["missed"] is None
        assert "standby, as no frames come" in status["applied"]["reason"]
        shown = run_in(Path("/"), "status", "--socket", daemon.socket).stdout
        assert "in standby, as no frames come: 1 time, " in shown
        changes = status["changes"]["count"]
        frame(lease)
        assert eventually(lambda: board.clocks == planned)
        assert eventually(lambda: not in_standby(client))
        after = client.status()
        standby = after["leases"][0]["standby"]
        assert standby["count"] == 1 and standby["total_s"] > 0 and standby["back_ms"] > 0
        assert after["changes"]["count"] == changes + 1
        lease.release()
    assert board.settings() == found


@pytest.mark.slow
def test_a_lease_may_keep_its_clocks_and_the_operator_may_turn_standby_off(board: Board, tmp_path: Path) -> None:
    with targets(board, tmp_path) as (_, client):
        lease = held(client, standby=False)
        frame(lease)
        planned = board.clocks
        time.sleep(3)
        assert board.clocks == planned and not in_standby(client)
    with targets(board, tmp_path, "off") as (_, client):
        lease = held(client)
        frame(lease)
        time.sleep(3)
        assert board.clocks == planned and not in_standby(client)


def test_standby_takes_the_clocks_of_the_configuration_and_follows_a_reload(board: Board, tmp_path: Path) -> None:
    with targets(board, tmp_path, "{after_s: 0.5, clocks: '1190.4,318.75,1600'}") as (daemon, client):
        lease = held(client)
        planned = board.clocks
        frame(lease)
        assert eventually(lambda: board.clocks == FrequencyConfiguration(1190400, 318750000, 1600000000))
        (tmp_path / "jetdvfsd.yaml").write_text("idle: off\nfloors: off\n")
        daemon.process.send_signal(1)
        assert eventually(lambda: board.clocks == planned)


def test_the_clocks_of_another_lease_stay_while_one_is_in_standby(board: Board, tmp_path: Path) -> None:
    with targets(board, tmp_path) as (_, client), client.hold(configuration=LOW):
        lease = held(client)
        frame(lease)
        assert eventually(lambda: bool((client.status()["leases"][1]["standby"] or {}).get("now")))
        assert eventually(lambda: board.clocks == LOW)


def test_a_misspelt_standby_is_refused_with_the_file_and_line(tmp_path: Path) -> None:
    config = tmp_path / "jetdvfsd.yaml"
    config.write_text("idle: {after_s: 5, clocks: 'low,min,min'}\n")
    done = run_in(Path("/"), "config", "check", config)
    assert done.returncode == 2 and f"{config}, line 1: idle.clocks: configuration 'low,min,min'" in done.stdout


def watched(load: list[float | None], frames: FrameLog) -> tuple[StandbyWatch, Lease]:
    watch = StandbyWatch(IdleRules(), lambda: load[0])
    plan = LeasePlan(LOW, request=_Request())  # type: ignore[arg-type]
    return watch, Lease("1", Holder("c", 1, 1, "app"), plan, "", 0.0, frames)


class _Request:
    """The part of a request that standby asks for."""

    fps = None


def test_a_gpu_that_works_without_reported_frames_keeps_a_lease_out_of_standby_and_brings_it_back() -> None:
    load: list[float | None] = [0.5]
    frames = FrameLog()
    watch, lease = watched(load, frames)
    frames.report([5.0], 0.0)
    assert watch.update([lease], 10.0) == (NONE, NONE)
    load[0] = 0.0
    assert watch.update([lease], 12.0) == (NONE, NONE), "it worked two seconds ago"
    assert watch.update([lease], 15.5) == (ONE, NONE)
    load[0] = 0.3
    assert watch.update([lease], 17.0) == (NONE, NONE), "a load at low clocks is less at its own"
    load[0] = 0.9
    assert watch.update([lease], 18.0) == (NONE, ONE)
    load[0] = None
    assert watch.update([lease], 24.0) == (ONE, NONE), "a GPU whose load is unknown counts as idle"


def test_a_slow_rate_of_frames_is_no_end_of_frames() -> None:
    frames = FrameLog()
    watch, lease = watched([0.0], frames)
    lease.plan.request.fps = 0.25  # type: ignore[union-attr, misc]
    frames.report([5.0], 0.0)
    assert watch.update([lease], 11.0) == (NONE, NONE)
    assert watch.update([lease], 12.5) == (ONE, NONE)
