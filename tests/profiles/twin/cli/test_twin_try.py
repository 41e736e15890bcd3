# SPDX-License-Identifier: Apache-2.0
"""`twin try`: board, daemon and a command in one; all end together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TRY = [sys.executable, "-m", "jetdvfs.daemon.cli", "twin", "try", "--backend", "folder"]


def tried(*words: str, stdin: str = "", shell: str = "/bin/sh") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SHELL": shell}
    return subprocess.run([*TRY, *words], input=stdin, env=env, capture_output=True, text=True, check=False, timeout=120)


def test_a_command_finds_the_daemon_and_the_board_and_its_exit_code_is_passed_on() -> None:
    code = "import json, os, sys; from jetdvfs import Client; c = Client(); print(json.dumps([c.status()['board'], "
    code += "os.environ['JETDVFS_ROOT'], os.path.exists(os.environ['JETDVFS_ROOT'] + '/sys')])); sys.exit(5)"
    done = tried("--board", "orin-nano-8gb", "--", sys.executable, "-c", code)
    assert done.returncode == 5, done.stderr
    board, root, there = json.loads(done.stdout)
    assert board == "orin-nano-8gb" and there and not Path(root).exists()


def test_without_a_command_a_shell_is_told_what_to_try() -> None:
    done = tried(stdin="echo found $JETDVFS_SOCKET; exit 3\n")
    assert done.returncode == 3 and "simulated agx-xavier" in done.stdout and "jetdvfs status" in done.stdout
    socket = done.stdout.rsplit("found ", 1)[1].strip()
    assert socket.endswith("jetdvfs.sock") and not Path(socket).exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--board", "no-board"), 3, "no-board"),
        (("--", "no-such-program"), 127, "no such command"),
        (("--profile", "no-profile", "--", "true"), 3, "no-profile"),
    ],
)
def test_wrong_words_end_in_one_line(words: tuple[str, ...], code: int, said: str) -> None:
    done = tried(*words)
    assert (done.returncode, len(done.stderr.splitlines())) == (code, 1), done.stderr
    assert said in done.stderr
