# SPDX-License-Identifier: Apache-2.0
"""The children that read models."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest


@pytest.fixture
def readers() -> Callable[[], list[psutil.Process]]:
    """Tells which children this process has, and which run their program, that it did not have before the test."""
    before = psutil.Process().children()

    def runs(child: psutil.Process) -> bool:
        with suppress(psutil.NoSuchProcess):
            return child not in before and "jetdvfs.daemon.worker.main" in child.cmdline()
        return False

    return lambda: [child for child in psutil.Process().children() if runs(child)]
