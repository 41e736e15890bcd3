# SPDX-License-Identifier: Apache-2.0
"""After how many frames a missed target is kept again: the real daemon, its correction, and an application at 30 fps.

    python tests/bench/missed.py [--fps 30]

Networks take longer than predicted, everywhere by the same factor or the longer the lower one clock is. A frame's time follows
from the simulated board's clocks as it begins; what is counted is frames. The board's files are plain ones, which answer within
microseconds as a real board's do: of those served by FUSE each takes a millisecond, and ten where the processor is busy.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jetdvfs.daemon.wire.client import Client
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, served_board
from jetdvfs.tests.support.daemons.paced import Application, predicted

SLOWER = (1.15, 1.3, 1.6)
TARGETS = (1.8, 2.5)
FRAMES = 30
WITHIN = 10

Rule = Callable[[FrequencyConfiguration], float]


def rules(application: Application) -> Iterator[tuple[str, Rule]]:
    """What frames take at clocks, for people and as a rule."""
    top = predicted().grid.top
    for factor in SLOWER:
        yield f"{factor:g} times", lambda clocks, factor=factor: factor * application.predicted_ms(clocks)  # type: ignore[misc]
    for name in ("gpu_hz", "emc_hz"):
        axis = FrequencyConfiguration._fields.index(name)
        yield (
            f"1.1 times, more at low {name}",
            lambda clocks, axis=axis: application.predicted_ms(clocks) * (1.1 + 0.3 * (1 - clocks[axis] / top[axis])),  # type: ignore[misc]
        )


def late_frames(
    board: Board, client: Client, application: Application, rule: Rule, limit_ms: float, fps: float
) -> tuple[list[bool], int]:
    """Which of the frames were late, and which was the first that began at other clocks than the first of all."""
    late: list[bool] = []
    clocks: list[FrequencyConfiguration] = []
    with client.hold(application.network, f"latency_ms={limit_ms:.3f}", fps=fps) as lease:
        due_s = time.monotonic()
        for _ in range(FRAMES):
            clocks.append(board.clocks)
            took_ms = rule(clocks[-1])
            time.sleep(max(due_s + took_ms / 1e3 - time.monotonic(), 0.0))
            lease.report(took_ms)
            late.append(took_ms > limit_ms)
            due_s = max(due_s + 1 / fps, time.monotonic())
    return late, next((number for number, now in enumerate(clocks, 1) if now != clocks[0]), FRAMES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fps", type=float, default=30.0)
    fps = parser.parse_args().fps
    most = 0
    with tempfile.TemporaryDirectory(prefix="jetdvfs-") as name, served_board(Path(name) / "root", "folder") as board:
        folder = Path(name)
        for number, times in enumerate(TARGETS):
            for kind in range(len(SLOWER) + 2):
                state = folder / f"{number}-{kind}"
                state.mkdir()
                # A daemon of its own: what it learned of the last one would make the first plan right.
                with Daemon(board, state, "--profile", "agx-xavier-sim") as daemon, daemon.client() as client:
                    application = Application(client)
                    text, rule = list(rules(application))[kind]
                    late, changed = late_frames(board, client, application, rule, application.target_ms(times), fps)
                kept = max((frame for frame, was in enumerate(late, 1) if was), default=0)
                most = max(most, kept)
                print(
                    f"{text}, target {times:g} times the shortest: {sum(late)} late frames, the last was frame {kept}; "
                    f"other clocks from frame {changed} on",
                    flush=True,
                )
    print(f"at {fps:g} frames per second every target was kept after at most {most} frames; goal {WITHIN}")


if __name__ == "__main__":
    main()
