# SPDX-License-Identifier: Apache-2.0
"""Power limit that keeps the hottest zone below a ceiling.

First-order heat sink: temperature above the surroundings is thermal resistance times power averaged with its time constant. So
present readings give the lasting power, even while warming up.
"""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import NamedTuple

from ....kernels.stored_files import replacing
from ...errors import DaemonError
from ...hardware.baseline.record import read_boot_id
from ...hardware.files import Files

FILE_NAME = "drawn.json"
EVERY_S = 5.0
_MOST_BYTES = 1 << 12


class MeanPower(NamedTuple):
    """Mean power, and its last time on the boot's monotonic clock."""

    mean_mw: float
    seen_s: float


class MeanPowerFile:
    def __init__(self, path: Path, files: Files) -> None:
        self._path = path
        self._files = files
        self._kept_s = float("-inf")

    def read(self, now_s: float) -> MeanPower | None:
        try:
            if self._path.stat().st_size > _MOST_BYTES:
                return None
            kept = json.loads(self._path.read_text(encoding="utf-8"))
            found = MeanPower(float(kept["mean_mw"]), float(kept["seen_s"]))
            same = kept["boot_id"] == read_boot_id(self._files)
        except (OSError, ValueError, KeyError, TypeError, DaemonError):
            return None
        return found if same and 0 <= found.mean_mw < math.inf and 0 <= found.seen_s <= now_s else None

    def keep(self, mean_power: MeanPower) -> None:
        if mean_power.seen_s - self._kept_s < EVERY_S:
            return
        self._kept_s = mean_power.seen_s
        with contextlib.suppress(OSError, DaemonError):
            text = json.dumps({"boot_id": read_boot_id(self._files), **mean_power._asdict()})
            with replacing(self._path, 0o644, durable=False) as file:
                file.write(text.encode())


MARGIN_C = 2.0
"""Margin of the settled board below its ceiling: sensors scatter, and zones differ."""
ASSUMED_K_PER_W = 1.0
_TAU_S = 60.0  # of small heat sinks with a fan; assumed
_USUAL_SURROUNDINGS_C = 25.0
_EVERY_S = 10.0
_LOWER_BY, _RAISE_BY = 0.03, 0.10
_CALM_S = 60.0
_TOO_HOT_SHARE = 0.9
_STEP_MW = 100.0


class TemperatureCeiling:
    """Power limit of one board, by power averaged by the heat sink. For one thread.

    Args:
        k_per_w: thermal resistance; 0 (unknown) for :data:`ASSUMED_K_PER_W`.
        mean_power: from an earlier process of this boot.
    """

    def __init__(self, k_per_w: float, mean_power: MeanPower | None = None) -> None:
        self._k_per_w = k_per_w or ASSUMED_K_PER_W
        self.drawn = mean_power
        self._limit: tuple[float, float] | None = None  # mW, and when it was found

    def see(self, now_s: float, drawn_mw: float, hottest_c: float | None = None) -> None:
        """Note the board's power, every few seconds.

        The first reading is the initial mean, at most the power that its temperature implies in usual surroundings.
        """
        if self.drawn is None:
            long_mw = math.inf if hottest_c is None else 1e3 * max(hottest_c - _USUAL_SURROUNDINGS_C, 0.0) / self._k_per_w
            self.drawn = MeanPower(min(drawn_mw, long_mw), now_s)
            return
        near = 1.0 - math.exp(-(now_s - self.drawn.seen_s) / _TAU_S)
        self.drawn = MeanPower(self.drawn.mean_mw + near * (drawn_mw - self.drawn.mean_mw), now_s)

    def forget(self) -> None:
        self._limit = None

    @property
    def last_mw(self) -> float | None:
        return self._limit[0] if self._limit is not None else None

    def limit_mw(self, now_s: float, hottest_c: float, ceiling_c: float) -> float | None:
        """Power limit, lowered at once and raised after a calm minute; None before any reading."""
        if self.drawn is None:
            return None
        left_c = ceiling_c - MARGIN_C - hottest_c
        found_mw = max(self.drawn.mean_mw + 1e3 * left_c / self._k_per_w, 0.0)
        if self._limit is None:
            self._limit = (_rounded(found_mw), now_s)
            return self._limit[0]
        before_mw, since_s = self._limit
        if now_s - since_s < _EVERY_S:
            return before_mw
        if hottest_c > ceiling_c:
            found_mw = min(found_mw, _TOO_HOT_SHARE * before_mw)
        lower = found_mw < before_mw * (1 - _LOWER_BY)
        if lower or (found_mw > before_mw * (1 + _RAISE_BY) and now_s - since_s >= _CALM_S):
            self._limit = (_rounded(found_mw), now_s)
        return self._limit[0]


def _rounded(power_mw: float) -> float:
    return _STEP_MW * math.floor(power_mw / _STEP_MW)
