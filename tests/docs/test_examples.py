# SPDX-License-Identifier: Apache-2.0
"""The scripts of docs/examples, each run as its text says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon
from jetdvfs.tests.support.paths import DOCS, REFERENCE

EXAMPLES = DOCS / "examples"
MODEL = REFERENCE / "squeezenet1_0.pt"
IMAGE = "1x3x224x224"


def run(name: str, *arguments: object, socket: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    # An installation without the C core says so in a warning, which is not the example's.
    quiet = {"PYTHONWARNINGS": "ignore::RuntimeWarning"}
    env = {**os.environ, **quiet, "JETDVFS_SOCKET": str(socket or "/nowhere/jetdvfs.sock")}
    return subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def daemon(board: Board, tmp_path_factory: pytest.TempPathFactory, bundle: Path) -> Iterator[Daemon]:
    """One that has converted its profile and predicted the model: an application goes on alone when it waits for long."""
    with Daemon(board, tmp_path_factory.mktemp("daemon"), "--profile", str(bundle)) as daemon:
        with daemon.client() as client:
            client.plan(client.load(MODEL, [IMAGE]), "min-energy", fps=30)
        yield daemon


def test_every_example_says_how_it_is_run_and_is_run_here() -> None:
    tests = Path(__file__).read_text(encoding="utf-8")
    names = [path.name for path in EXAMPLES.glob("*.py")]
    assert len(names) >= 3
    for name in names:
        assert f"\n    python docs/examples/{name} " in (EXAMPLES / name).read_text(encoding="utf-8"), name
        assert f'run("{name}"' in tests, name


def test_a_notebook_predicts_plans_draws_and_tabulates(tmp_path: Path) -> None:
    wanted = [tmp_path / name for name, library in (("plan.png", "matplotlib"), ("table.csv", "pandas")) if find_spec(library)]
    done = run("notebook.py", *wanted)
    assert (done.returncode, done.stderr) == (0, "")
    network, surface, plan, _ = done.stdout.splitlines()
    assert network.startswith("<network resnet18 ") and surface.startswith("<surface of resnet18 on simulated agx-xavier")
    assert plan.startswith("<plan for latency_ms=20 at 30 fps with 0.95 confidence")
    assert all(path.stat().st_size > 10_000 for path in wanted)


def test_many_models_are_listed_and_what_is_none_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "empty.pt").touch()
    done = run("decompose_many.py", IMAGE, MODEL, tmp_path / "empty.pt", REFERENCE / "alexnet.pt")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["model", "squeezenet1_0", "alexnet"]
    assert len(done.stderr.splitlines()) == 1 and "empty.pt" in done.stderr


def test_a_rate_too_high_is_said_and_the_others_are_planned_for() -> None:
    done = run("frame_rates.py", MODEL, IMAGE, "agx-xavier-sim", 10, 100_000)
    assert (done.returncode, done.stderr) == (0, "")
    _, slow, fast = done.stdout.splitlines()
    assert "mJ per frame" in slow and "100000 fps: " in fast.replace("1e+05", "100000") and "mJ per frame" not in fast


def test_an_application_holds_reports_and_gives_back(board: Board, daemon: Daemon) -> None:
    before = board.settings()
    done = run("hold_with_qos.py", MODEL, IMAGE, "min-energy", 3, socket=daemon.socket)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("held: {'cpu_khz': ") and "3 frames" in done.stdout
    assert board.settings() == before


def test_the_same_application_runs_without_a_daemon() -> None:
    done = run("hold_with_qos.py", MODEL, IMAGE, "min-energy", 2)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("no daemon: ") and "2 frames" in done.stdout


def test_the_socket_is_spoken_to_without_a_library(board: Board, daemon: Daemon) -> None:
    before = board.settings()
    done = run("raw_socket.py", 1190400, 675750000, 1600000000, socket=daemon.socket)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].startswith("in effect: {'cpu_khz': 1190400, ")
    assert done.stdout.strip().endswith("verified")
    with daemon.client() as client:
        assert client.status()["baseline"] == "none"
    assert board.settings() == before
    refused = run("raw_socket.py", 1, 2, 3, socket=daemon.socket)
    assert refused.returncode == 1 and "io.jetdvfs." in refused.stderr
