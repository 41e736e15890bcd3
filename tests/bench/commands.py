# SPDX-License-Identifier: Apache-2.0
"""How long a user waits for commands, on a simulated board that this process serves.

    python tests/bench/commands.py [--tries 5]

Each row has the median of a few tries in turn, its multiple of the time that Python takes to start and load NumPy (of the same
round, so that a busy machine changes it little), and the goal in that unit. The limit of a command is the start of Python.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from jetdvfs.profiles.reference import reference_input, reference_model, reference_names
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, served_board

NAMES = tuple(reference_names())
# A goal of 1 s was set on a machine on which Python with NumPy took this long.
NUMPY_S = 0.074


class Row(NamedTuple):
    title: str
    seconds: Callable[[], float]
    goal_s: float | None


def took(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def ran(command: Sequence[object], code: int | None = 0) -> float:
    def run() -> None:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, cwd="/")
        assert code is None or done.returncode == code, done.stderr

    return took(run)


def cli(daemon: Daemon, *words: object) -> list[object]:
    board = ("--socket", daemon.socket) if words[0] == "hold" else ()
    verb, *rest = words
    return [sys.executable, "-m", "jetdvfs.daemon.cli", verb, *board, *rest]


def first_hold(board: Board, folder: Path) -> float:
    """From a model file to its clocks, by a daemon that has read no model yet."""
    with Daemon(board, Path(tempfile.mkdtemp(dir=folder))) as daemon, daemon.client() as client:
        time.sleep(3)  # until its tables are checked

        def hold() -> None:
            network = client.load(reference_model(NAMES[0]), [str(reference_input(NAMES[0]))])
            client.hold(network, "min-energy", fps=30).release()

        return took(hold)


def ten_networks(board: Board, folder: Path) -> float:
    """Ten applications that ask for the surfaces of ten networks at once."""
    with Daemon(board, Path(tempfile.mkdtemp(dir=folder))) as daemon, ThreadPoolExecutor(len(NAMES)) as pool:
        time.sleep(3)

        def ask(name: str) -> None:
            with daemon.client() as client:
                client.predict(client.load(reference_model(name), [str(reference_input(name))]))

        return took(lambda: list(pool.map(ask, NAMES)))


def rows(board: Board, daemon: Daemon, other: Board, folder: Path) -> list[Row]:
    model = (reference_model(NAMES[0]), "--input", reference_input(NAMES[0]), "--target", "min-energy", "--fps", 30)
    root = ("--root", board.root)
    plot = ("plan", *model, "--profile", "agx-xavier-sim", "--plot", folder / "plan.png")

    def beside_true(*words: object) -> float:
        return ran(cli(daemon, "hold", *words, "--", "true")) - ran(["true"])

    return [
        Row("python", lambda: ran([sys.executable, "-c", "pass"]), None),
        Row("python with NumPy", lambda: ran([sys.executable, "-c", "import numpy"]), None),
        Row("a wrong argument", lambda: ran(cli(daemon, "plan", "--tarket"), 2), 0.3),
        Row("doctor", lambda: ran(cli(daemon, "doctor", *root), None), 0.3),
        Row("config check", lambda: ran(cli(daemon, "config", "check", *root), None), 0.3),
        Row("restore, nothing to do", lambda: ran(cli(daemon, "restore", "--dry-run", *root), None), 0.3),
        Row("hold --config ... -- true, beside true", lambda: beside_true("--config", "max"), 0.15),
        Row("hold MODEL ... -- true, beside true", lambda: beside_true(*model), 0.35),
        Row("plan --plot", lambda: ran(cli(daemon, *plot)), 1.2),
        Row("first hold of a model, by a client that is connected", lambda: first_hold(other, folder), 0.4),
        Row("ten networks at once", lambda: ten_networks(other, folder), 0.4),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=5)
    tries = parser.parse_args().tries
    with tempfile.TemporaryDirectory(prefix="jetdvfs-") as name, ExitStack() as stack:
        folder = Path(name)
        board, other = (stack.enter_context(served_board(folder / root, "auto")) for root in ("one", "other"))
        (folder / "daemon").mkdir()
        with Daemon(board, folder / "daemon") as daemon:
            every = rows(board, daemon, other, folder)
            for row in every:
                row.seconds()
            found = [[row.seconds() for row in every] for _ in range(tries)]
    print(f"{'':54}{'ms':>7}{'times NumPy':>13}{'goal':>7}")
    for number, row in enumerate(every):
        middle = statistics.median(one[number] for one in found)
        times = statistics.median(one[number] / one[1] for one in found)
        goal = "" if row.goal_s is None else f"{row.goal_s / NUMPY_S:.1f}"
        print(f"{row.title:54}{1e3 * middle:7.0f}{times:13.1f}{goal:>7}")


if __name__ == "__main__":
    main()
