# SPDX-License-Identifier: Apache-2.0
"""board as a person runs it: on a running board, of a described one, and on what is none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.tests.support.boards.hardware_kernel import EMC, GPU, Kernel


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A board's files in a plain folder."""
    for path, text in Kernel().store.items():
        if not path.startswith(f"{GPU}/userspace"):
            place = tmp_path / "root" / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
    return tmp_path / "root"


def test_board_shows_a_running_board(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "--root", str(folder), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["board"], shown["configurations"]) == ("agx-xavier", 3654)
    assert shown["clocks"]["gpu_hz"]["current"] == 318750000
    assert shown["clocks"]["cpu_khz"]["mode"] == ["schedutil"]
    assert shown["rails_mw"]["SYS5V"] == 1330
    assert main(["board", "--root", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "3654 frequency configurations allowed now" in text
    assert "EMC  1065.60 MHz  unlocked" in text


def test_a_file_that_hangs_or_says_nothing_hides_no_other_clock(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    current = folder / GPU.lstrip("/") / "cur_freq"
    current.write_text("N/A")
    assert main(["board", "--root", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "  GPU    unknown  nvhost_podgov" in shown and "EMC  1065.60 MHz  unlocked" in shown
    governor = folder / GPU.lstrip("/") / "governor"
    governor.unlink()
    os.mkfifo(governor)
    assert main(["board", "--root", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "SYS5V" in shown and f"note: {GPU}/governor: reading it hangs" in shown


def test_board_show_tells_what_is_verified(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "show", "agx-xavier", "--json"]) == 0
    status = json.loads(capsys.readouterr().out)["status"]
    assert (status["emc"], status["emc.transition_ms"], status["throttling"]) == ("verified", "derived", "unknown")
    assert main(["board", "show", "agx-xavier"]) == 0
    assert "emc          verified  (bpmp verified, transition_ms derived)" in capsys.readouterr().out
    assert main(["board", "list"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("agx-xavier ")]
    assert "verified: identity, axes, cpu, gpu, emc, rails, thermal, modes; derived: fan; unknown: throttling" in line


def test_a_machine_that_is_no_described_board_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "--root", str(tmp_path)]) == 3
    assert "no described board fits this machine" in capsys.readouterr().err


def test_a_memory_lock_is_ended_by_hand(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = folder / EMC.lstrip("/") / "mrq_rate_locked"
    assert main(["board", "unlock", "--root", str(folder)]) == 0
    assert capsys.readouterr().out == "the memory clock is not locked\n"
    lock.write_text("1")
    assert main(["board", "unlock", "--dry-run", "--root", str(folder)]) == 0
    assert (capsys.readouterr().out, lock.read_text()) == (f"{EMC}/mrq_rate_locked = 0\n", "1")
    assert main(["board", "unlock", "--root", str(folder)]) == 0
    assert lock.read_text().strip() == "0"


def test_a_simulated_board_says_by_what_it_ended_and_nothing_else_on_stderr(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", "twin", "serve", "--mount", str(tmp_path / "board"), "--json"]
    twin = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert twin.stdout is not None and json.loads(twin.stdout.readline())["simulated"]
    twin.send_signal(signal.SIGTERM)
    assert twin.communicate(timeout=30) == ("", "twin serve: ended by SIGTERM\n")
    assert twin.returncode == 0
