# SPDX-License-Identifier: Apache-2.0
"""Files of release 1.0 are read, and files of a later release are refused with the way out."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jetdvfs.daemon.config import read_config
from jetdvfs.daemon.leases.learning.observation_store import ObservationStore, ProgramKey
from jetdvfs.kernels.network import Network
from jetdvfs.profiles.adapt.measurements import Measurements
from jetdvfs.profiles.errors import ProfilesError
from jetdvfs.profiles.twin.serve import serve
from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.tests.support.daemons.board_daemon import LOW, Board, BoardFiles, Daemon, eventually
from jetdvfs.tests.support.stable import STORED
from jetdvfs.tests.support.verbs import run_in

STATE = STORED / "state"
BASELINE = json.loads((STATE / "runtime" / "baseline" / "baseline.0").read_text().splitlines()[1])


class HeldBoard(BoardFiles):
    """A simulated board whose daemon died with clocks held, with the files that a daemon of 1.0 leaves then."""

    def __init__(self, board: Board, daemon: Daemon) -> None:
        super().__init__(board.root)
        self.runtime, self.state = daemon.runtime, daemon.state
        self.before = self.clocks
        with daemon.client() as client:
            client.hold(configuration=LOW, reason="test")
            daemon.kill()
        assert self.clocks == {path: ours["values"][-1] for path, ours in BASELINE["journal"].items()}
        for path in (STATE / "runtime").rglob("*"):
            if path.is_file():
                self.put(self.runtime / path.relative_to(STATE / "runtime"), path.read_text().splitlines()[1])
        learned = (STATE / "learned.json").read_text().replace('"uid": 0', f'"uid": {os.getuid()}')
        (self.state / "learned.json").write_text(learned)

    def put(self, path: Path, text: str) -> None:
        """Write a stored file as of the board's present boot."""
        text = text.replace(BASELINE["boot_id"], self.read("proc/sys/kernel/random/boot_id"))
        path.write_text(f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}\n")

    @property
    def clocks(self) -> dict[str, str]:
        paths = ((path, self.root / path[1:]) for path in BASELINE["journal"])
        return {path: file.read_text().strip() for path, file in paths if file.exists()}

    def restore(self) -> Any:
        folders = ("--runtime-dir", self.runtime, "--state-dir", self.state)
        return run_in(self.root.parent, "restore", "--root", self.root, *folders)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[HeldBoard]:
    twin = simulated_board("agx-xavier")
    with serve(twin, tmp_path / "board", "folder"):
        board = Board(twin, tmp_path / "board")
        yield HeldBoard(board, Daemon(board, tmp_path, "--profile", "agx-xavier-sim"))


def test_a_baseline_of_1_0_is_restored(held: HeldBoard) -> None:
    done = held.restore()
    assert (done.returncode, done.stderr) == (0, "")
    assert not (held.runtime / "baseline").exists()
    assert eventually(lambda: held.clocks == held.before)  # plain files follow a little later


def test_a_baseline_of_a_later_release_is_refused_with_the_way_out(held: HeldBoard) -> None:
    for path in (held.runtime / "baseline").iterdir():
        held.put(path, json.dumps({**BASELINE, "version": 3, "more": 1}))
    done = held.restore()
    assert "version 3, expected 2: reboot, or restore with the release that wrote it" in done.stdout + done.stderr


def test_observations_of_1_0_are_remembered(held: HeldBoard) -> None:
    known = json.loads((STATE / "learned.json").read_text())["programs"][0]
    memory = ObservationStore(held.state / "learned.json", lambda: float(known["observed"][-1]["seen_s"]))
    (program,) = memory.learned(None)
    assert (program.name, program.app, program.configurations) == (known["name"], known["app"], len(known["observed"]))
    found = memory.observations(ProgramKey(os.getuid(), known["program"]))
    assert [one.latency_ms for one in found] == [one["latency_ms"] for one in known["observed"]]


def test_a_daemon_goes_on_from_the_state_of_1_0(held: HeldBoard) -> None:
    with Daemon(held, held.root.parent, "--profile", "agx-xavier-sim") as daemon, daemon.client() as client:
        assert client.status()["baseline"] == "none" and eventually(lambda: held.clocks == held.before)
        assert [one["app"] for one in client.learned()] == ["camera"]


def test_observations_of_a_later_release_are_set_aside_for_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "learned.json"
    path.write_text('{"version": 3, "all": []}')
    with caplog.at_level(logging.WARNING):
        assert ObservationStore(path).learned(None) == []
    assert "version 3, expected 2; set aside as learned.json.version-3 for its release" in caplog.text
    assert (tmp_path / "learned.json.version-3").read_text() == '{"version": 3, "all": []}' and not path.exists()


def test_a_profile_of_1_0_predicts(tmp_path: Path) -> None:
    (network,) = Measurements.load(STORED / "record.npz").networks
    (tmp_path / "network.json").write_text(json.dumps(network.to_json(host_calls=True)))
    done = run_in(tmp_path, "predict", "network.json", "--profile", STORED / "profile", "--config", "max", "--json")
    assert (done.returncode, json.loads(done.stdout)["simulated"]) == (0, True)
    assert run_in(tmp_path, "profile", "show", STORED / "profile").returncode == 0


@pytest.mark.parametrize(
    ("number", "remedy"), [(4, "upgrade jetdvfs to the release that made it"), (2, "make the profile again with it")]
)
def test_a_profile_of_another_release_is_refused_with_the_way_out(number: int, remedy: str, tmp_path: Path) -> None:
    shutil.copytree(STORED / "profile", tmp_path / "profile")
    manifest = tmp_path / "profile" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": number}))
    done = run_in(tmp_path, "profile", "show", tmp_path / "profile")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert f"format {number}; this release reads 3: {remedy}" in done.stderr


def test_a_record_of_1_0_is_read() -> None:
    record = Measurements.load(STORED / "record.npz")
    assert [network.name for network in record.networks] == ["two"] and isinstance(record.networks[0], Network)
    assert list(record.tables["kernel_ms"].value) == [0.5, 0.25] and record.described.name == "bench"


@pytest.mark.parametrize(
    ("change", "read"), [(lambda about: about.pop("format"), True), (lambda about: about.update(format=2), False)]
)
def test_a_record_of_a_later_release_is_refused_with_the_way_out(
    change: Callable[[dict[str, Any]], object], read: bool, tmp_path: Path
) -> None:
    with np.load(STORED / "record.npz") as arrays:
        kept = dict(arrays)
    about = json.loads(kept["about"].tobytes())
    change(about)
    np.savez(tmp_path / "record.npz", **{**kept, "about": np.frombuffer(json.dumps(about).encode(), np.uint8)})
    if read:
        assert Measurements.load(tmp_path / "record.npz").board == "bench"
        return
    with pytest.raises(ProfilesError, match="format 2; this release reads 1: upgrade jetdvfs to the one that made it"):
        Measurements.load(tmp_path / "record.npz")


def test_a_configuration_of_1_0_is_sound() -> None:
    reading = read_config(STORED / "jetdvfsd.yaml")
    assert reading.members is not None and not reading.problems and not reading.warnings
