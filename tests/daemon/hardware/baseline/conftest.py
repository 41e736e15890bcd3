# SPDX-License-Identifier: Apache-2.0
"""Where the baseline is kept."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "run" / "baseline"
