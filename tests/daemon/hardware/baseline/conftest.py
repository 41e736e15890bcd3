# SPDX-License-Identifier: Apache-2.0
"""A board that people have set, and where its baseline is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetdvfs.tests.support.boards.hardware_kernel import CPU, Kernel
from jetdvfs.tests.support.boards.kept_baseline import set_by_people


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "run" / "baseline"


@pytest.fixture
def kernel() -> Kernel:
    kernel = Kernel()
    kernel.take(f"{CPU}/scaling_min_freq", "729600")
    kernel.take(f"{CPU}/scaling_governor", "performance")
    return kernel


@pytest.fixture
def found(kernel: Kernel) -> dict[str, str]:
    return set_by_people(kernel)
