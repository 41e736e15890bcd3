# SPDX-License-Identifier: Apache-2.0
"""Restoration of the board after a dead daemon, for ``jetdvfs restore`` or a daemon that cannot start."""

from __future__ import annotations

from pathlib import Path

from ..profiles.timing import SystemClock
from .hardware.baseline import BaselineKeeper
from .hardware.baseline.held_clocks import HeldClocksReport
from .hardware.baseline.record import Marker
from .hardware.files import Files
from .hardware.hardware import Hardware
from .system.state import BASELINE_FOLDER


def keeper_of(files: Files, runtime_dir: Path, state_dir: Path) -> BaselineKeeper:
    """Keeper of the baseline that any daemon left; only while none runs."""
    clock = SystemClock()

    def stock(held: Marker) -> HeldClocksReport:
        return Hardware.probe(files, clock, board=held.board or None).stock(held)

    return BaselineKeeper(files, clock, runtime_dir.resolve() / BASELINE_FOLDER, state_dir.resolve(), "", stock)
