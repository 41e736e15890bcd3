# SPDX-License-Identifier: Apache-2.0
"""What the board drew of late, kept for the next daemon of the same boot: the heat sink does not cool with a restart."""

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
