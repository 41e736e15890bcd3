# SPDX-License-Identifier: Apache-2.0
"""Decompose, plan, hold and restore with the installed commands, on a simulated board in a folder; all of it asserted.

    python tests/system/board_walk.py MODEL FACTS            write results that any machine must reproduce into FACTS
    python tests/system/board_walk.py MODEL FACTS --like OTHER   and compare them with another machine's

Launches and clocks must be equal. Predicted figures may differ in the last digits of a float32, as each machine's libm rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BOARD, PROFILE = "agx-orin-64gb", "agx-orin-64gb-sim"
ASKED = ("--input", "1x3x224x224")
TARGET = ("--target", "latency_ms=20")
_CLOSE = 1e-6
_PATIENCE_S = 180.0
"""For one command; emulated, some take half a minute."""

CLI, DAEMON = "jetdvfs.daemon.cli", "jetdvfs.daemon.service"


def call(*arguments: str) -> str:
    """Output of a verb.

    Raises:
        AssertionError: the verb failed; the text has its error output.
    """
    command = [sys.executable, "-m", CLI, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)
    assert done.returncode == 0, f"{' '.join(arguments)}: exit code {done.returncode}: {done.stderr}"
    return done.stdout


@contextmanager
def running(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()


def first_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _PATIENCE_S)
    assert ready, "nothing was printed in time"
    said: dict[str, Any] = json.loads(process.stdout.readline())
    return said


def until(true: Callable[[], bool], name: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"{name}: not within {_PATIENCE_S:g} s"
        time.sleep(0.5)


class FolderBoard:
    """A simulated board in a folder, and the daemon's folders beside it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "board"
        self.socket = folder / "jetdvfs.sock"
        self.folders = ("--state-dir", str(folder / "state"), "--runtime-dir", str(folder / "run"))

    def settings(self) -> dict[str, str]:
        """Files by which clocks are set, with their values."""
        places = {
            "sys/devices/system/cpu/cpufreq": ("scaling_governor", "scaling_min_freq", "scaling_max_freq"),
            "sys/class/devfreq": ("governor", "min_freq", "max_freq"),
            "sys/kernel/debug/bpmp/debug/clk/emc": ("mrq_rate_locked",),
        }
        files = (path for place, names in places.items() for name in names for path in (self.root / place).rglob(name))
        return {str(path.relative_to(self.root)): path.read_text().strip() for path in files}

    def daemon(self) -> tuple[str, ...]:
        where = ("--root", str(self.root), "--socket", str(self.socket), *self.folders)
        return (DAEMON, *where, "--board", BOARD, "--profile", PROFILE)

    def status(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(call("status", "--socket", str(self.socket), "--json"))
        return said

    def answers(self) -> bool:
        try:
            self.status()
        except AssertionError:
            return False
        return True


def decomposed(model: str) -> list[Any]:
    launches: list[Any] = json.loads(call("decompose", model, *ASKED, "--json"))["launches"]
    assert len(launches) > 50
    return launches


def planned(model: str) -> dict[str, Any]:
    choice: dict[str, Any] = json.loads(call("plan", model, *ASKED, *TARGET, "--profile", PROFILE, "--json"))["choice"]
    assert choice["latency_ms"] <= 20
    return choice


def held(model: str, folder: Path) -> dict[str, Any]:
    """Configuration that a lease sets; checks that the board is as before after its end, and after a killed daemon."""
    board = FolderBoard(folder)
    serving = ("twin", "serve", "--board", BOARD, "--mount", str(board.root), "--backend", "folder", "--seed", "12", "--json")
    with running(CLI, *serving) as twin:
        assert first_line(twin)["backend"] == "folder"
        before = board.settings()
        assert len(before) > 5, before
        request = ("hold", model, *ASKED, *TARGET, "--socket", str(board.socket), "--json")
        with running(*board.daemon()) as daemon:
            until(board.answers, "the daemon's answer")
            with running(CLI, *request) as holder:
                lease = first_line(holder)
                assert lease["applied"]["verified"], lease
                assert board.settings() != before
                holder.send_signal(signal.SIGINT)
                holder.wait(_PATIENCE_S)
            until(lambda: board.settings() == before, "the baseline after the lease")
            with running(CLI, *request) as holder:
                first_line(holder)
                daemon.kill()
                daemon.wait()
                assert board.settings() != before
                # It would hold again at the next daemon.
                holder.kill()
        print(call("restore", "--root", str(board.root), "--socket", str(board.socket), *board.folders).strip())
        assert board.settings() == before
    accepted: dict[str, Any] = lease["applied"]["accepted"]
    return accepted


def differences(mine: Any, theirs: Any, at: str = "") -> Iterator[str]:
    """Places where two results differ by more than the last digits of a figure."""
    if isinstance(mine, dict) and isinstance(theirs, dict) and mine.keys() == theirs.keys():
        for name in mine:
            yield from differences(mine[name], theirs[name], f"{at}.{name}")
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for number, pair in enumerate(zip(mine, theirs, strict=True)):
            yield from differences(*pair, f"{at}[{number}]")
    elif isinstance(mine, float) and isinstance(theirs, float):
        if not math.isclose(mine, theirs, rel_tol=_CLOSE):
            yield f"{at}: {mine!r}, {theirs!r}"
    elif mine != theirs:
        yield f"{at}: {str(mine)[:200]}, {str(theirs)[:200]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("facts", type=Path)
    parser.add_argument("--like", type=Path)
    args = parser.parse_args()
    facts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = str(Path(folder) / "cache")
        for name, step in (
            ("decomposed", lambda: decomposed(args.model)),
            ("planned", lambda: planned(args.model)),
            ("held", lambda: held(args.model, Path(folder))),
        ):
            began = time.monotonic()
            facts[name] = step()
            print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    args.facts.write_text(json.dumps(facts, indent=1) + "\n")
    if args.like is not None:
        found = list(differences(facts, json.loads(args.like.read_text())))
        for line in found[:10]:
            print(f"differs {line}", file=sys.stderr)
        return 1 if found else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
