# SPDX-License-Identifier: Apache-2.0
"""The walk through docs/your-board.md on a simulated board: every command of it, as it stands there."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jetdvfs.tests.support.paths import ROOT

TEXT = (ROOT / "docs" / "your-board.md").read_text(encoding="utf-8").partition("## On a simulated board")[2]
MODULES = {"jetdvfs": "jetdvfs.daemon.cli", "jetdvfs-lab": "jetdvfs.profiles.lab.cli", "jetdvfsd": "jetdvfs.daemon.service"}
GOES_ON = ("jetdvfs twin serve", "jetdvfsd")
PATIENCE_S = 600.0


def commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def words(command: str) -> list[str]:
    program, *rest = shlex.split(command)
    return [sys.executable, "-m", MODULES[program], *rest]


@contextmanager
def going_on(command: str, folder: Path, appears: Path) -> Iterator[None]:
    process = subprocess.Popen(words(command), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + PATIENCE_S
        while not appears.exists():
            assert process.poll() is None and time.monotonic() < end, command
            time.sleep(0.05)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)


def run(command: str, folder: Path) -> str:
    done = subprocess.run(words(command), cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_every_command_of_the_walk_does_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xgboost", reason="training needs xgboost")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "profiles").symlink_to(ROOT / "profiles")
    serve, *rest = commands()
    assert serve.startswith(GOES_ON[0])
    said: dict[str, str] = {}
    with going_on(serve, tmp_path, tmp_path / "board.bench"):
        for number, command in enumerate(rest):
            if command.startswith("jetdvfsd"):
                with going_on(command, tmp_path, tmp_path / "jetdvfs.sock"):
                    said[rest[number + 1]] = run(rest[number + 1], tmp_path)
            elif command not in said:
                said[command] = run(command, tmp_path)
    text = "\n".join(said.values())
    assert "agx-xavier-adapted" in said["jetdvfs status --socket jetdvfs.sock"]
    assert "carried from" in text and "other boards were not seen" in text and "predicted and observed" in text
    assert [path.name for path in (tmp_path / "installed").iterdir()] == ["agx-xavier-adapted"]
