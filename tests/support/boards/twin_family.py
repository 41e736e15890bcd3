# SPDX-License-Identifier: Apache-2.0
"""Every described board's twin with each of its JetPacks, and the hardware layer on one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.profiles.board import list_boards, load_board
from jetdvfs.profiles.twin.simulated_board import SimulatedBoard
from jetdvfs.tests.support.boards.twin_fakes import TreeFiles

CPUFREQ = "/sys/devices/system/cpu/cpufreq"


class System(NamedTuple):
    """A board with one of its JetPacks."""

    board: str
    jetpack: str

    def __str__(self) -> str:
        return f"{self.board} JetPack {self.jetpack}"


FAMILY = [System(name, release.jetpack) for name in list_boards() for release in load_board(name).releases]
USUAL = [System(name, "") for name in list_boards()]


def short(path: str) -> str:
    """A path without what is the same on every board."""
    for folder, name in (
        (CPUFREQ, "cpu"),
        ("/sys/kernel/debug/bpmp/debug/clk/emc", "emc"),
        ("/sys/kernel/debug/bpmp/debug/bwmgr", "emc"),
        ("/sys/kernel/debug/clk/override.emc", "emc override"),
    ):
        path = path.replace(folder, name)
    return path


class Found:
    """A twin, and the hardware layer on it, in a time that passes only when somebody waits."""

    def __init__(self, board: SimulatedBoard, folder: Path) -> None:
        self.board = board
        self.files = TreeFiles(board)
        self.baseline = folder / "baseline.json"
        self.hardware = self.probe()

    def probe(self) -> Hardware:
        return Hardware.probe(self.files, self.board.clock, baseline=self.baseline)

    def writes(self) -> list[str]:
        made = [f"{short(path)} = {value}" for path, value in self.files.written]
        self.files.written.clear()
        return made

    def settings(self) -> dict[str, str]:
        """What may be set, as it stands; a setpoint counts only while somebody has taken the clock into their hands."""
        names: tuple[str, ...] = (
            "scaling_governor",
            "scaling_min_freq",
            "scaling_max_freq",
            "governor",
            "min_freq",
            "max_freq",
        )
        names += ("mrq_rate_locked", "bwmgr_halt", "clk_state", "emc")
        return {p: self.files.read_text(p) for p, node in self.board.tree.files() if node.write and p.endswith(names)}
