# SPDX-License-Identifier: Apache-2.0
"""Reads of the board's files during one hold: each may sleep in the kernel, so they are few; the read-back is not spared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from jetdvfs.daemon.config import Config
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.daemon.leases.controller import Controller
from jetdvfs.daemon.leases.demand import DemandMonitor
from jetdvfs.daemon.leases.demand_floors import FloorRules
from jetdvfs.daemon.leases.lease import Holder
from jetdvfs.daemon.planning.lease_plan import LeasePlan
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.units import AXES
from jetdvfs.profiles.twin.simulated_board import SimulatedBoard
from jetdvfs.tests.support.boards.twin_fakes import TreeFiles, VirtualClock, fake_board

MOST_READS = 60


class RecordedFiles(TreeFiles):
    """A board's tree; ``calls`` are the reads (path) and the writes (path and ``=``), in order."""

    def __init__(self, board: SimulatedBoard) -> None:
        super().__init__(board)
        self.calls: list[str] = []

    def _read(self, path: str) -> bytes:
        self.calls.append(path)
        return super()._read(path)

    def _write(self, path: str, line: bytes) -> int:
        self.calls.append(f"{path}=")
        return super()._write(path, line)


class Held:
    """A controller on a twin with all that measures other work, as the resident daemon has it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.board = fake_board(VirtualClock(), name)
        self.files = RecordedFiles(self.board)
        clock, described = self.board.clock, self.board.description
        self.hardware = Hardware.probe(self.files, clock, baseline=folder / "baseline")
        demands = DemandMonitor(self.files, described, clock.monotonic, self.hardware, FloorRules())
        self.controller = Controller(self.hardware, Config(), clock.monotonic, demands)
        for _ in range(2):
            self.controller.tend()
            clock.sleep(10)

    def hold(self, height: float) -> Sequence[str]:
        """Hold a configuration at this part of every axis; the calls to files that it took."""
        grid = self.hardware.grid()
        levels = (grid.levels(axis) for axis in AXES)
        wanted = FrequencyConfiguration(*(one[int(len(one) * height)] for one in levels))
        self.files.calls.clear()
        _, applied = self.controller.hold(Holder(height, 1, 0, "app"), LeasePlan(wanted), "test")
        assert applied.verified and applied.accepted == wanted
        return tuple(self.files.calls)


def reads(calls: Sequence[str]) -> list[str]:
    return [call for call in calls if not call.endswith("=")]


@pytest.mark.parametrize("board", ["orin-nano-8gb", "tx2"])
def test_a_hold_of_four_writes_takes_sixty_reads_at_most(board: str, tmp_path: Path) -> None:
    held = Held(board, tmp_path)
    held.hold(0.3)
    held.board.clock.sleep(10)
    calls = held.hold(0.7)
    assert len(calls) - len(reads(calls)) == 4
    assert len(reads(calls)) <= MOST_READS


def test_a_first_hold_with_its_baseline_takes_sixty_reads_at_most(tmp_path: Path) -> None:
    calls = Held("agx-xavier", tmp_path).hold(0.5)
    assert len(calls) - len(reads(calls)) == 6
    assert len(reads(calls)) <= MOST_READS


@pytest.mark.parametrize("board", ["agx-xavier", "orin-nano-8gb", "agx-thor"])
def test_no_table_of_frequencies_and_no_power_mode_is_read_twice_for_one_hold(board: str, tmp_path: Path) -> None:
    counted = Counter(reads(Held(board, tmp_path).hold(0.5)))
    stable = {path: count for path, count in counted.items() if path.endswith(("_frequencies", "/status"))}
    assert stable and set(stable.values()) == {1}


@pytest.mark.parametrize("board", ["agx-xavier", "orin-nano-8gb", "agx-thor"])
def test_every_file_that_is_written_is_read_before_and_after(board: str, tmp_path: Path) -> None:
    held = Held(board, tmp_path)
    for height in (0.5, 0.7):
        calls = held.hold(height)
        for place, call in enumerate(calls):
            if call.endswith("="):
                assert call[:-1] in calls[:place] and call[:-1] in calls[place + 1 :], call
        held.board.clock.sleep(10)
