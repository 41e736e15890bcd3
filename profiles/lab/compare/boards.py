# SPDX-License-Identifier: Apache-2.0
"""Comparisons by simulated board."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ...board import list_boards, load_board
from . import agx_orin, orin_nano, thor, tx2, xavier
from .fit import Report

_PARTS = (tx2, orin_nano, agx_orin, xavier, thor)
COMPARISONS: Mapping[str, Callable[[Path], Report]] = {part.BOARD: part.compare for part in _PARTS}


def not_compared() -> dict[str, str]:
    twins = {name: load_board(name).raw.get("twin", {}) for name in list_boards() if name not in COMPARISONS}
    return {name: str(twin.get("calibrated_on", "nothing")) for name, twin in twins.items()}
