# SPDX-License-Identifier: Apache-2.0
"""Calls of functions that the daemon's work takes, by Python or in C: the same on every processor, other than times.

    python tests/bench/calls.py [--write FILE | --like FILE]

The daemon's own controller, monitor of other work and learner run on a simulated AGX Xavier, whose own calls do not count. A
check of the clocks comes every few seconds; its calls are also shown by frame at 30 frames per second. ``--like`` compares with
counts written elsewhere, as under emulation of aarch64, and fails if one differs by more than a tenth.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from jetdvfs.daemon.leases.lease import Holder
from jetdvfs.daemon.planning.lease_plan import LeasePlan
from jetdvfs.kernels.correction.flat import flat_surface
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.units import AXES
from jetdvfs.profiles.twin.simulated_board import SimulatedBoard
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock
from jetdvfs.tests.support.boards.twin_fakes import fake_board
from jetdvfs.tests.support.daemons.virtual_daemon import VirtualDaemon

FPS = 30
_NEAR = 0.1


class Calls:
    """Counts calls, without the simulated board's."""

    def __init__(self, daemon: VirtualDaemon) -> None:
        self.count = 0
        files: Any = daemon.files
        for name in ("_read", "_write", "exists", "list_names", "resolved", "may_write"):
            setattr(files, name, self._uncounted(getattr(files, name)))

    def of(self, work: Callable[[], object]) -> int:
        """Calls of a piece of work."""
        self.count = 0
        sys.setprofile(self._seen)
        try:
            work()
        finally:
            sys.setprofile(None)
        return self.count

    def _seen(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            self.count += 1

    def _uncounted(self, function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            profile = sys.getprofile()
            sys.setprofile(None)
            try:
                return function(*arguments)
            finally:
                sys.setprofile(profile)

        return call


@contextmanager
def daemon(board: SimulatedBoard, clock: FakeClock) -> Iterator[VirtualDaemon]:
    with tempfile.TemporaryDirectory() as folder:
        made = VirtualDaemon(board, clock, Path(folder), lambda: 10_000.0)
        try:
            yield made
        finally:
            made.close()


def counts() -> dict[str, int]:
    """Calls by piece of work."""
    clock = FakeClock()
    with daemon(fake_board(clock), clock) as made:
        calls, grid = Calls(made), made.hardware.grid()
        found: dict[str, int] = {}

        def wait() -> None:
            made.run(made.until(clock.monotonic() + 60))

        def hold(number: int, height: float) -> Any:
            levels = (grid.levels(axis) for axis in AXES)
            plan = LeasePlan(FrequencyConfiguration(*(one[int(len(one) * height)] for one in levels)))
            return made.board_service.granted(Holder(number, 1, 0, "app"), plan, "test")

        wait()
        found["check without a lease"] = calls.of(made.board_service.tend)
        leases: list[Any] = []
        found["first hold, with its baseline"] = calls.of(lambda: leases.append(hold(1, 0.5)))
        wait()
        found["check of one lease"] = calls.of(made.board_service.tend)
        found["hold of other clocks"] = calls.of(lambda: leases.append(hold(2, 0.8)))
        found["release of one of two"] = calls.of(lambda: made.board_service.ended(leases.pop()))
        program = made.run(made.hold(Holder(3, 1, 0, "app"), flat_surface(grid), "latency_ms=30", FPS))
        made.run(made.report(program, 12.0))
        held = made.board_service.snapshot.leases[program.id]
        found["report of a frame"] = calls.of(lambda: made.learner.report(held, [12.0]))
        made.run(made.until(clock.monotonic() + 60))
        found["check of two leases"] = calls.of(made.board_service.tend)
        found["calls of checks by frame"] = round(found["check of two leases"] / made.controller.tend_in_s / FPS)

        def release() -> None:
            for lease in (held, *leases):
                made.board_service.ended(lease)

        found["release of the last, and restore"] = calls.of(release)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--like", type=Path, metavar="FILE")
    args = parser.parse_args()
    found = counts()
    for title, count in found.items():
        print(f"{title:36}{count:8,}")
    if args.write is not None:
        args.write.write_text(json.dumps(found))
    if args.like is not None:
        other = json.loads(args.like.read_text())
        apart = [title for title, count in found.items() if abs(count - other[title]) > _NEAR * other[title]]
        if apart:
            sys.exit(f"other counts than {args.like}: {', '.join(apart)}")


if __name__ == "__main__":
    main()
