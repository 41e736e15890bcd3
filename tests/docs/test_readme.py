# SPDX-License-Identifier: Apache-2.0
"""Commands of README.md, run as written and in order. Those of its section on a board are run by ``tests/system``."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon
from jetdvfs.tests.support.paths import REFERENCE, ROOT

BLOCK = re.compile(r"^## ([^\n]+)\n((?:(?!^## ).)*?)^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
SCRIPT = '#!/bin/sh\nexec {python} -c "import sys; from jetdvfs.daemon.cli import main; sys.exit(main())" "$@"\n'


def commands() -> Mapping[str, list[str]]:
    """Console commands of each section."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return {section: re.findall(r"^\$ (.*)$", block, re.MULTILINE) for section, _, block in BLOCK.findall(text)}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The source tree after ``make`` has installed it, with a model and an application next to it."""
    for path in ROOT.iterdir():
        if path.name not in (".git", ".venv", "build", "demo-out"):
            (tmp_path / path.name).symlink_to(path)
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "activate").write_text(f'PATH="{programs}:$PATH"\n')
    (programs / "jetdvfs").write_text(SCRIPT.format(python=sys.executable))
    (tmp_path / "my-application").write_text("#!/bin/sh\n")
    for program in (programs / "jetdvfs", tmp_path / "my-application"):
        program.chmod(0o755)
    (tmp_path / "model.pt").symlink_to(REFERENCE / "resnet18.pt")
    for made in (programs / "pip", programs.parent / ".demo"):
        made.touch()
    return tmp_path


def run(section: str, clone: Path, **env: str) -> str:
    """Type a section's commands into one shell that ends at the first failure; return the output."""
    script = "\n".join(["set -e", *commands()[section]])
    command = ["env", *(f"{name}={value}" for name, value in env.items()), "bash", "-c", script]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_every_section_with_commands_is_run() -> None:
    assert commands().keys() == {"Try it", "On your Jetson", "Hold a target"}


@pytest.mark.slow
def test_the_demo_then_a_plan(clone: Path) -> None:
    shown = run("Try it", clone)
    table = re.findall(r"^  ((?:latency|min|top)[^\d/][\w=,/ -]+?)  ", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(table) == 4 and all(row in shown for row in table)
    assert "every clock is back at its baseline" in shown
    assert "simulated: this profile was measured on a simulated board" in shown and "set CPU " in shown


def test_targets_are_held_while_an_application_runs(clone: Path, board: Board, tmp_path: Path) -> None:
    before = board.settings()
    with Daemon(board, tmp_path / "running", "--profile", "agx-xavier-sim") as daemon, daemon.client():
        path = f"{clone / '.venv' / 'bin'}:/usr/bin:/bin"
        shown = run("Hold a target", clone, PATH=path, JETDVFS_SOCKET=str(daemon.socket))
    held = re.findall(r"^model at .* \(lease \d+, simulated\)", shown, re.MULTILINE)
    assert len(held) == 3 and "asked: 20" in held[0] and "GPU " in shown
    assert board.settings() == before
