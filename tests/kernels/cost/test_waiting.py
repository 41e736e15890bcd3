# SPDX-License-Identifier: Apache-2.0
"""How much of the memory a network's kernels use while they run, by which the host's calls wait for it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from jetdvfs.kernels.cost.waiting import memory_use


def test_what_kernels_use_of_the_memory_is_of_those_that_run_longest_and_never_rises_with_its_clock() -> None:
    memory_ms = np.stack([np.full((1, 1, 3), 0.9), np.full((1, 1, 3), 0.1)])
    gpu_ms: NDArray[np.float32] = np.ones((2, 2, 1, 3), np.float32)
    assert memory_use(np.array([1, 1]), gpu_ms, memory_ms) == pytest.approx(0.5)
    assert memory_use(np.array([3, 1]), gpu_ms, memory_ms) == pytest.approx(0.7)
    longer = gpu_ms * np.array([4.0, 1.0, 1.0], np.float32)  # models may err: more use at a higher clock than at a lower one
    used = memory_use(np.array([1, 1]), longer, memory_ms)
    assert used.shape == (2, 3) and (np.diff(used, axis=1) <= 0).all()
    assert memory_use(np.array([1, 1]), gpu_ms / np.float32(100), memory_ms) == pytest.approx(1.0)
