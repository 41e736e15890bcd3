# SPDX-License-Identifier: Apache-2.0
"""What scenarios are drawn from: what of a board can be asked for, and which of its files can misbehave."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.units import AXES
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.tests.support.boards.twin_fakes import TreeFiles

#: The board that most scenarios are about, and the others with one of each way to the memory clock.
USUAL_BOARD = "agx-xavier"
OTHER_BOARDS = ("orin-nano-8gb", "tx2", "nano", "agx-orin-32gb", "xavier-nx", "agx-thor")

_CLOCK_FILES = ("/cpufreq/", "/devfreq/", "/clk/", "/bwmgr", "emc_iso_cap", "nvpmodel_clk_cap", "power/")
_SENSOR_FILES = ("/thermal", "/hwmon", "/proc/stat", "/proc/pressure", "actmon", "/cpuidle/", "_pg_mask", "nvpmodel")


@dataclass(frozen=True)
class World:
    """One board as a scenario's author sees it.

    Attributes:
        levels: what each axis offers in the power mode that it boots with, lowest first; in kHz, Hz and Hz.
        all_levels: what it offers in any.
        clock_files: files by which clocks are read and set.
        writable: those of them that are written.
        other_files: sensors, tables and counters.
    """

    board: str
    levels: tuple[tuple[int, ...], ...]
    all_levels: tuple[tuple[int, ...], ...]
    clock_files: tuple[str, ...]
    writable: tuple[str, ...]
    other_files: tuple[str, ...]

    def configuration(self, draw: random.Random) -> FrequencyConfiguration:
        """A setting of the three clocks, now and then one that is not offered."""
        axes = self.levels if draw.random() < 0.9 else self.all_levels
        return FrequencyConfiguration(*(draw.choice(axis) for axis in axes))

    def some_file(self, draw: random.Random, *, clocks: float = 0.7) -> str:
        """A file, with this probability one of a clock."""
        return draw.choice(self.clock_files if draw.random() < clocks else self.other_files)


@cache
def world(board: str) -> World:
    twin = simulated_board(board)
    tree = twin.tree
    offered, described = Hardware.probe(TreeFiles(twin), twin.clock).grid(), load_board(board).grid
    files = sorted((path, node.write is not None) for path, node in tree.files())
    clock_files = [path for path, _ in files if any(part in path for part in _CLOCK_FILES)]
    levels, all_levels = (tuple(tuple(map(int, grid.levels(axis))) for axis in AXES) for grid in (offered, described))
    return World(
        board,
        levels,
        all_levels,
        tuple(clock_files),
        tuple(path for path, writable in files if writable and path in clock_files),
        tuple(path for path, _ in files if path not in clock_files and any(part in path for part in _SENSOR_FILES)),
    )


def pick(draw: random.Random, weights: Sequence[tuple[float, str]]) -> str:
    """One of several names by weight."""
    return draw.choices([name for _, name in weights], [weight for weight, _ in weights])[0]
