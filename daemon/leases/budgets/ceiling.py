# SPDX-License-Identifier: Apache-2.0
"""What a board may draw so that its hottest zone stays below a ceiling.

A board heats like a heat sink of first order: its temperature stands above that of its surroundings by its thermal resistance
times what it drew of late, averaged with the sink's time constant. So the power at which it settles just below the ceiling
follows from what is read now, while it warms up as well as when it has settled. What the resistance or the constant is wrong by
(a fan that turns faster, a board in a box) is made good as the zones come nearer.
"""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import NamedTuple

from ...errors import DaemonError
from ...hardware.baseline.record import read_boot_id
from ...hardware.files import Files

FILE_NAME = "drawn.json"
EVERY_S = 5.0
_MOST_BYTES = 1 << 12


class Drawn(NamedTuple):
    """A mean, and when it was the last one by the monotonic clock of the boot."""

    mean_mw: float
    seen_s: float


class KeptDrawn:
    """One file, written every :data:`EVERY_S` seconds. Where it cannot be, or is not of this boot, nothing is known.

    Args:
        path: in a folder that lasts for one boot.
        files: of the board, for the boot's id.
    """

    def __init__(self, path: Path, files: Files) -> None:
        self._path = path
        self._files = files
        self._kept_s = float("-inf")

    def read(self, now_s: float) -> Drawn | None:
        """What was kept in this boot."""
        try:
            if self._path.stat().st_size > _MOST_BYTES:
                return None
            kept = json.loads(self._path.read_text(encoding="utf-8"))
            found = Drawn(float(kept["mean_mw"]), float(kept["seen_s"]))
            same = kept["boot_id"] == read_boot_id(self._files)
        except (OSError, ValueError, KeyError, TypeError, DaemonError):
            return None
        return found if same and 0 <= found.mean_mw < math.inf and 0 <= found.seen_s <= now_s else None

    def keep(self, drawn: Drawn) -> None:
        """Write it, unless that was done a moment ago."""
        if drawn.seen_s - self._kept_s < EVERY_S:
            return
        self._kept_s = drawn.seen_s
        beside = self._path.with_name(f".{self._path.name}.new")
        with contextlib.suppress(OSError, DaemonError):
            text = json.dumps({"boot_id": read_boot_id(self._files), **drawn._asdict()})
            try:
                beside.write_text(text, encoding="utf-8")
                beside.replace(self._path)
            except OSError:
                beside.unlink()
                raise


MARGIN_C = 2.0
"""The board is to settle so far below its ceiling: sensors scatter, and zones differ."""
ASSUMED_K_PER_W = 1.0
_TAU_S = 60.0  # of small heat sinks with a fan; assumed
_USUAL_SURROUNDINGS_C = 25.0
_EVERY_S = 10.0
_LOWER_BY, _RAISE_BY = 0.03, 0.10
_CALM_S = 60.0
_TOO_HOT_SHARE = 0.9
_STEP_MW = 100.0


class Ceiling:
    """Follows one board. For one thread.

    Args:
        k_per_w: its thermal resistance; 0 where nobody knows, and :data:`ASSUMED_K_PER_W` is taken.
        drawn: what it drew of late as somebody else saw it in this boot; None where nobody did.

    Attributes:
        drawn: what the board drew of late, averaged as its heat sink does; None while nothing was seen.
    """

    def __init__(self, k_per_w: float, drawn: Drawn | None = None) -> None:
        self._k_per_w = k_per_w or ASSUMED_K_PER_W
        self.drawn = drawn
        self._limit: tuple[float, float] | None = None  # mW, and when it was found

    def see(self, now_s: float, drawn_mw: float, hottest_c: float | None = None) -> None:
        """Note what the board draws; to be called every few seconds, whether there is a ceiling or not.

        The first time it is taken to have drawn as much for long, but no more than its temperature tells in usual surroundings.
        """
        if self.drawn is None:
            long_mw = math.inf if hottest_c is None else 1e3 * max(hottest_c - _USUAL_SURROUNDINGS_C, 0.0) / self._k_per_w
            self.drawn = Drawn(min(drawn_mw, long_mw), now_s)
            return
        near = 1.0 - math.exp(-(now_s - self.drawn.seen_s) / _TAU_S)
        self.drawn = Drawn(self.drawn.mean_mw + near * (drawn_mw - self.drawn.mean_mw), now_s)

    def forget(self) -> None:
        """There is no ceiling any more."""
        self._limit = None

    @property
    def last_mw(self) -> float | None:
        """What was found last that may be drawn; None where nothing was."""
        return self._limit[0] if self._limit is not None else None

    def limit_mw(self, now_s: float, hottest_c: float, ceiling_c: float) -> float | None:
        """What may be drawn; None while nothing was seen.

        It is lowered at once and raised after a minute of calm, so that clocks do not follow every reading.
        """
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
