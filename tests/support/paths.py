# SPDX-License-Identifier: Apache-2.0
"""Where tests find the source tree, their own files, and measurements of real boards that are not part of the repository."""

from __future__ import annotations

import lzma
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REFERENCE = ROOT / "profiles" / "reference"
FIXTURES = ROOT / "tests" / "fixtures"
SNAPSHOTS = ROOT / "tests" / "snapshots"
SHARED_DATA = Path(os.environ.get("JETDVFS_SHARED_DATA") or ROOT.parent / "shared" / "data")
SHARED_CASES = SHARED_DATA.parent / "cases"

LIST_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
"""How lists of launches are compressed: text, so that bytes have no alignment."""
