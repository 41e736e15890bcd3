# SPDX-License-Identifier: Apache-2.0
"""Giving back what a daemon that died still held, without a daemon: for ``jetdvfs restore``, and for one that cannot start."""

from __future__ import annotations

from pathlib import Path

from ..profiles.timing import SystemClock
from .hardware.baseline import BaselineKeeper
from .hardware.baseline.record import Marker
from .hardware.baseline.stock import Stock
from .hardware.files import Files
from .hardware.hardware import Hardware
from .system.state import BASELINE_FOLDER, OLDER_BASELINE_NAME

LAST_TRY_S = 1.0
"""For how long what does not take at once is tried again, where nobody tries later."""


def keeper_of(files: Files, runtime_dir: Path, state_dir: Path) -> BaselineKeeper:
    """What is kept of how a board was found, whoever left it there; to be used only where no daemon runs."""
    clock = SystemClock()

    def stock(held: Marker) -> Stock:
        return Hardware.probe(files, clock, board=held.board or None).stock(held)

    folder, older = runtime_dir.resolve() / BASELINE_FOLDER, state_dir.resolve() / OLDER_BASELINE_NAME
    return BaselineKeeper(files, clock, folder, older, "", stock)
