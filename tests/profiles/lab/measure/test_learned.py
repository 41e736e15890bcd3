# SPDX-License-Identifier: Apache-2.0
"""Learned observations of daemons as boards of a merged record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.daemon.leases.learning.observation_store import ObservationStore, ProgramKey
from jetdvfs.kernels.correction.observation import Observation
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.adapt.measurements import Measurements
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.measure.learned import read_learned
from jetdvfs.profiles.lab.measure.merging import merged
from jetdvfs.profiles.lab.measure.one_twin import measure_twin, one_board_size, plan_twin
from jetdvfs.profiles.reference import reference_network

BOARD = "orin-nano-8gb"
TOP = load_board(BOARD).grid.top
HALF = TOP._replace(gpu_hz=load_board(BOARD).grid.gpu_hz[3])


@pytest.fixture(scope="module")
def record() -> Measurements:
    size = replace(one_board_size(3, 1), random_kernels={}, idle_configurations=4, warm_configurations=2)
    return measure_twin(plan_twin(BOARD, [reference_network("resnet18")], size), None, lambda done, total, text: None)


def learned(path: Path, *observed: Observation, name: str = "resnet18", board: str = BOARD) -> Path:
    store = ObservationStore(path, lambda: 0.0, board)
    store.remember(ProgramKey(1000, "digest"), observed, name=name, app="camera")
    store.save()
    return path


def test_a_daemons_observations_become_a_board_of_the_record(record: Measurements, tmp_path: Path) -> None:
    busy = learned(tmp_path / "a.json", Observation(TOP, 9.0, 6000.0, frames=50), Observation(HALF, 16.0, 5000.0, frames=50))
    paced = learned(tmp_path / "b.json", Observation(TOP, 10.0, 4000.0, frames=50, period_ms=40.0))
    states = {path.name: read_learned(path) for path in (busy, paced)}
    both, parts = merged({"mine": record}, states)
    assert both.nodes == (3, 4, 5) and {name: part.nodes for name, part in parts.items()}["mine"] == (3,)
    (node,) = parts["a.json"].nodes
    times, powers = (both.tables[name].where(both.tables[name].node == node) for name in ("network_ms", "network_mw"))
    assert sorted(times.value) == [9.0, 16.0] and sorted(powers.value) == [5000.0, 6000.0]
    assert np.array_equal(times.configuration, powers.configuration) and len(both.networks) == 1
    (other,) = parts["b.json"].nodes
    # Power over a period contains pauses.
    assert other in both.tables["network_ms"].node and other not in both.tables["network_mw"].node
    assert "camera" not in json.dumps(both.environment)


def test_the_order_of_files_does_not_matter(record: Measurements, tmp_path: Path) -> None:
    states = {}
    for number in range(3):
        path = learned(tmp_path / f"{number}.json", Observation(TOP, 9.0 + number, frames=50))
        states[path.name] = read_learned(path)
    real = replace(record, silicon_version="")
    slower = replace(real.tables["network_ms"], value=1.1 * real.tables["network_ms"].value)
    records = {"first": real, "second": replace(real, tables={**real.tables, "network_ms": slower})}
    for number, backwards in enumerate((False, True)):
        step = -1 if backwards else 1
        both, _ = merged(dict([*records.items()][::step]), dict([*states.items()][::step]))
        both.save(tmp_path / f"{number}.npz")
    assert (tmp_path / "0.npz").read_bytes() == (tmp_path / "1.npz").read_bytes()


def spoiled(**changes: Any) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return spoil


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def off_the_grid(path: Path) -> None:
    learned(path, Observation(FrequencyConfiguration(TOP.cpu_khz, 1, TOP.emc_hz), 9.0, frames=50), board="")


def of_another_network(path: Path) -> None:
    path.unlink()
    learned(path, Observation(TOP, 9.0, frames=50), name="yolo")


def impossible(path: Path) -> None:
    path.unlink()
    learned(path, Observation(TOP, 1e-6, frames=50))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (spoiled(version=3), "version 3 of learned observations; this release reads 2"),
        (spoiled(board="nano"), "learned on board nano; expected orin-nano-8gb, the records' board"),
        (spoiled(programs=[{"name": "resnet18"}]), "programs[0].observed"),
        (spoiled(programs=[]), "observed no network of the records; expected some of resnet18"),
        (halve, "no learned observations"),
        (Path.unlink, "(No such file or directory); expected the learned.json"),
        (lambda path: path.write_text(""), "expected the learned.json of a daemon's state folder"),
        (off_the_grid, "is not a frequency of this board"),
        (of_another_network, "observed no network of the records; expected some of resnet18"),
        (impossible, "network_ms of network resnet18"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_nothing_is_written(
    spoil: Callable[[Path], None], said: str, record: Measurements, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record.save(tmp_path / "mine.npz")
    state, out = learned(tmp_path / "their.json", Observation(TOP, 9.0, frames=50)), tmp_path / "out.npz"
    spoil(state)
    assert main(["table", "merge", str(tmp_path / "mine.npz"), str(state), "--out", str(out)]) == 3
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and said in told, told
    assert sorted(path.name for path in tmp_path.iterdir() if path != state) == ["mine.npz"]


def test_the_same_observations_do_not_count_twice_and_a_record_is_needed(
    record: Measurements, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record.save(tmp_path / "mine.npz")
    files = [str(learned(tmp_path / name, Observation(TOP, 9.0, frames=50))) for name in ("a.json", "b.json")]
    assert main(["table", "merge", str(tmp_path / "mine.npz"), *files, "--out", str(tmp_path / "out.npz")]) == 3
    assert "are the same observations, and would count twice" in capsys.readouterr().err
    assert main(["table", "merge", *files, "--out", str(tmp_path / "out.npz")]) == 2
    assert "a record among them" in capsys.readouterr().err
    assert main(["table", "merge", str(tmp_path / "mine.npz"), files[0], "--out", str(tmp_path / "out.npz")]) == 0
    assert "a.json" in capsys.readouterr().out and Measurements.load(tmp_path / "out.npz").nodes == (3, 4)


def test_a_half_written_record_among_many_is_named(
    record: Measurements, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mine.npz", "their.npz"):
        record.save(tmp_path / name)
    halve(tmp_path / "their.npz")
    words = [str(tmp_path / name) for name in ("mine.npz", "their.npz")]
    assert main(["table", "merge", *words, "--out", str(tmp_path / "out.npz")]) == 3
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "their.npz: not a campaign's result" in told and not (tmp_path / "out.npz").exists()
