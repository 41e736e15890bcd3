# SPDX-License-Identifier: Apache-2.0
"""Batteries that are to last and zones that are to stay cool: the real daemon on a simulated board that a battery feeds."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.daemon.errors import TargetNotAttainable, UsageError
from jetdvfs.daemon.wire.client import Client, LoadedModel
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.twin.serve import serve
from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually
from jetdvfs.tests.support.daemons.paced import IMAGE, MODEL, predicted

LEFT_WH = 30.0


@pytest.fixture(scope="module")
def fed() -> Iterator[Board]:
    if fuse.missing():
        pytest.skip(f"the simulated board needs FUSE: {fuse.missing()}")
    folder = Path(tempfile.mkdtemp(prefix="battery-"))
    twin = simulated_board("agx-xavier", battery_wh=LEFT_WH)
    with serve(twin, folder / "root", "fuse"):
        yield Board(twin, folder / "root")
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def daemon(fed: Board, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    found = fed.settings()
    folder = tmp_path_factory.mktemp("budgets")
    (folder / "jetdvfsd.yaml").write_text("ceiling_c: 105\n")
    with Daemon(fed, folder, "--profile", "agx-xavier-sim", "--config", str(folder / "jetdvfsd.yaml")) as daemon:
        yield daemon
    assert fed.settings() == found


def power_mw(configuration: Mapping[str, int]) -> float:
    """What is predicted to be drawn at the clocks that were requested, on a die at the temperature of the profile."""
    return float(predicted().power_mw[predicted().grid.index(FrequencyConfiguration(**configuration))])


def lasting(client: Client, hours: float, network: LoadedModel | None = None, **more: Any) -> Any:
    return client.hold(network or client.load(MODEL, IMAGE), f"hours={hours:g}", **more)


def test_a_battery_that_is_to_last_bounds_what_the_board_draws_as_little_as_it_can(daemon: Daemon) -> None:
    with daemon.client() as client:
        assert eventually(lambda: client.status()["rails_mw"])
        network = client.load(MODEL, IMAGE)
        with lasting(client, 2.0, network) as longer:
            budget, battery = client.status()["budget"], client.status()["battery"]
            # Of the 15 W that may be drawn, the carrier and rails that are not counted as energy take some.
            assert 8_000 < budget["limit_mw"] <= 1e3 * LEFT_WH / 2
            assert "last for 2 h" in budget["reason"] and client.status()["ceiling_c"] == 105
            assert battery["battery"] == "battery" and battery["left_wh"] == pytest.approx(LEFT_WH, rel=0.02)
            drawn_mw = power_mw(longer.applied["requested"])
            assert 0.7 * budget["limit_mw"] < drawn_mw <= 1.05 * budget["limit_mw"]
            assert "Wh left in the battery last for 2 h" in longer.plan["why"]
        with lasting(client, 4.0, network) as shorter:
            assert power_mw(shorter.applied["requested"]) < drawn_mw
        assert client.status()["budget"] is None


def test_a_stated_charge_counts_before_the_one_that_the_board_tells(daemon: Daemon) -> None:
    with daemon.client() as client, lasting(client, 2.0, battery_wh=24.0):
        assert client.status()["budget"]["limit_mw"] <= 12_000
        assert client.status()["battery"]["left_wh"] == pytest.approx(24.0, rel=0.01)


def test_a_deadline_that_the_battery_cannot_pay_for_is_granted_and_said(daemon: Daemon) -> None:
    limit_ms = 1.2 * float(predicted().latency_ms.min())
    with daemon.client() as client, daemon.client() as other, lasting(client, 4.0):
        network = other.load(MODEL, IMAGE)
        with other.hold(network, f"latency_ms={limit_ms:.3f}") as lease:
            assert lease.unkept is not None and "best attainable" in lease.unkept["reason"]
            assert any("best attainable" in text for text in client.status()["degraded"])
        with pytest.raises(TargetNotAttainable):
            other.hold(network, "latency_ms=0.1")


@pytest.mark.slow
def test_any_target_respects_a_ceiling_and_a_hotter_board_is_slowed_down(fed: Board, daemon: Daemon) -> None:
    with daemon.client() as client:
        temperatures_mc = client.status()["temperatures_mc"]
        hottest_c = max(temperatures_mc[zone] for zone in ("CPU-therm", "AUX-therm")) / 1e3
        network = client.load(MODEL, IMAGE)
        free = client.plan(network, "power_mw=40000")["choice"]["configuration"]
        with client.hold(network, "power_mw=40000", ceiling_c=hottest_c + 8) as lease:
            assert lease.applied is not None
            status = client.status()
            assert status["ceiling_c"] == hottest_c + 8 and "hotter than" in status["budget"]["reason"]
            assert power_mw(lease.applied["requested"]) < 0.8 * power_mw(free)
            before = fed.clocks
            fed.twin.faults.script({"kind": "heat", "degrees": 12})
            assert eventually(lambda: fed.clocks.gpu_hz < before.gpu_hz, 20.0)
            assert eventually(lambda: any("above the ceiling" in text for text in client.status()["degraded"]))
        fed.twin.faults.clear()


def test_what_cannot_be_watched_is_refused_in_a_line(daemon: Daemon) -> None:
    with daemon.client() as client:
        network = client.load(MODEL, IMAGE)
        refused: list[tuple[str, dict[str, Any], str]] = [
            ("hours=0", {}, "expected hours=NUMBER"),
            ("hours=6", {"battery_wh": -3.0}, "battery_wh=-3: expected"),
            ("min-energy", {"battery_wh": 30.0}, "said of a target of hours"),
            ("min-energy", {"ceiling_c": 300.0}, "ceiling_c=300: expected"),
        ]
        for target, more, said in refused:
            with pytest.raises(UsageError, match=said):
                client.hold(network, target, **more)
