# SPDX-License-Identifier: Apache-2.0
"""A predictor of whole networks, given to a profile from the command line, serves leases of the real daemon."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import jetdvfs
from jetdvfs.daemon.cli import main
from jetdvfs.daemon.errors import InputError
from jetdvfs.profiles.networks.record import About, Recorder, Row, device_features
from jetdvfs.tests.support.daemons.board_daemon import LOW, Board, Daemon
from jetdvfs.tests.support.profiles.measured_networks import chain, measured
from jetdvfs.tests.support.profiles.small_bundle import BOARD, make_bundle

NETWORK = chain("chain", (12, 12, 12))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile with a predictor that learnt from a few networks at two configurations of the board."""
    pytest.importorskip("torch", reason="what trains")
    folder = tmp_path_factory.mktemp("served")
    folder.chmod(0o755)
    make_bundle(folder / "plain", leakage_mw=100.0)
    recorder = Recorder(folder / "record", About("a formula", True, ("latency_ms", "energy_mj")))
    devices = device_features(BOARD.chip, (LOW, BOARD.grid.top), BOARD.chip.dram_gib)
    for network in measured(12, [tuple(map(float, device)) for device in devices]):
        times = [(row.device, row.values["latency_ms"]) for row in network.rows]
        rows = tuple(Row("agx-xavier 0", device, {"latency_ms": ms, "energy_mj": 9 * ms}) for device, ms in times)
        recorder.add(replace(network, rows=rows))
    asked = ("profile", "predictor", str(folder / "plain"), str(folder / "record"), "--epochs", "3")
    assert main([*asked, "--predictor", "launches", "--out", str(folder / "served")]) == 0
    assert main([*asked, "--predictor", "oracle", "--out", str(folder / "other")]) == 2
    return folder / "served"


def test_a_lease_is_served_by_the_predictor_and_says_so(
    board: Board, found: dict[str, str], served: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = jetdvfs.load_profile(served).surface(NETWORK, method="network")
    with Daemon(board, tmp_path, "--profile", str(served)) as daemon, daemon.client() as client:
        network = client.load_network(NETWORK.to_json(host_calls=True))
        at = client.predict(network, LOW, method="network")["at"]
        assert at["latency_ms"] == pytest.approx(expected.at(LOW).latency_ms, rel=1e-5)
        assert at["energy_mj"] == pytest.approx(expected.at(LOW).energy_mj, rel=0.02)  # the board is not as warm as the profile
        assert client.predict(network, LOW)["at"]["latency_ms"] != pytest.approx(at["latency_ms"], rel=1e-3)
        with client.hold(network, "min-energy", method="network") as lease, client.hold(network, "min-energy"):
            status = client.status()
            assert [one["method"] for one in status["leases"]] == ["network", "timeline"]
            assert lease.plan is not None and status["leases"][0]["predicted"] == lease.plan["choice"]
            assert status["profile"]["predictor"] == "launches"
            assert main(["status", "--socket", str(daemon.socket)]) == 0
            shown = capsys.readouterr().out
            assert "with a predictor of whole networks: launches" in shown
            assert shown.count("per inference by the predictor of whole networks") == 1
        with pytest.raises(InputError, match="valid: eager, with nothing beside"):
            client.predict(network, method="network", execution="graph")
    assert board.settings() == found


def test_a_profile_without_one_refuses_the_method_in_one_line(
    served: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "chain.json"
    path.write_text(json.dumps(NETWORK.to_json(host_calls=True)))
    asked = ("predict", str(path), "--method", "network", "--profile")
    assert main([*asked, str(served)]) == 0
    assert "top clocks" in capsys.readouterr().out
    assert main([*asked, str(served), "--temperature", "60"]) == 2
    assert main([*asked, str(served.with_name("plain"))]) == 3
    assert "profile predictor" in capsys.readouterr().err
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for file in served.iterdir():
        (damaged / file.name).write_bytes(file.read_bytes())
    (damaged / "predictor.npz").write_bytes(b"no predictor")
    assert main([*asked, str(damaged)]) == 3
    assert "predictor.npz is damaged" in capsys.readouterr().err
