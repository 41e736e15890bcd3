# SPDX-License-Identifier: Apache-2.0
"""A board's kernel in memory, and its time."""

from __future__ import annotations

import pytest

from jetdvfs.tests.support.boards.hardware_kernel import FakeClock, Kernel


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
