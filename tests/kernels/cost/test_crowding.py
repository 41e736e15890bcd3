# SPDX-License-Identifier: Apache-2.0
"""In a network, kernels have the memory of a slower clock: the host uses it too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from jetdvfs.kernels.cost.crowding import LEAST_LEFT, crowd, memory_use
from jetdvfs.kernels.errors import CostModelError
from jetdvfs.kernels.grid import FrequencyGrid
from jetdvfs.tests.support.profiles.analytic import board

CPU_MHZ, EMC_MHZ = np.array([500.0, 2000.0], np.float32), np.array([400.0, 800.0, 1600.0], np.float32)


def times(of_memory: float, of_rest: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """One kernel's times over the clocks, the same at both CPU clocks and at the only GPU clock."""
    over_memory = of_memory / EMC_MHZ + of_rest
    return np.broadcast_to(over_memory, (1, 2, 1, 3)).astype(np.float32)


def test_a_kernel_that_waits_for_memory_takes_as_long_as_at_the_clock_that_is_left() -> None:
    took = times(1000.0, 0.0)
    crowd(took, 0.1, CPU_MHZ, EMC_MHZ)
    left = EMC_MHZ - 0.1 * CPU_MHZ[:, None]
    assert took[0, :, 0] == pytest.approx(1000.0 / left, rel=1e-4)


def test_a_clock_that_is_used_badly_counts_as_what_it_moves() -> None:
    cost = replace(
        board(grid=FrequencyGrid((500_000, 2_000_000), (10**9,), (400_000_000, 800_000_000, 1_600_000_000))),
        emc_use=(0.5, 1.0, 1.0),
    )
    assert cost.moved_mhz.tolist() == [200.0, 800.0, 1600.0]
    took = np.broadcast_to(1000.0 / cost.moved_mhz, (1, 2, 1, 3)).astype(np.float32)
    crowd(took, 0.05, CPU_MHZ, cost.moved_mhz)
    assert took[0, :, 0] == pytest.approx(1000.0 / (cost.moved_mhz - 0.05 * CPU_MHZ[:, None]), rel=1e-4)


@pytest.mark.parametrize(
    ("emc_use", "complaint"), [((1.0,), "has 1 numbers, expected 2"), ((1.0, 0.4), "no more than the one below")]
)
def test_what_memory_clocks_move_must_rise_with_them(emc_use: tuple[float, ...], complaint: str) -> None:
    with pytest.raises(CostModelError, match=complaint):
        replace(board(), emc_use=emc_use)


def test_a_kernel_that_computes_takes_no_longer() -> None:
    took = times(0.0, 2.0)
    crowd(took, 0.1, CPU_MHZ, EMC_MHZ)
    assert took == pytest.approx(2.0)


def test_some_of_the_memory_is_always_left() -> None:
    took = times(1000.0, 0.0)
    crowd(took, 10.0, CPU_MHZ, EMC_MHZ)
    assert took[0, :, 0] == pytest.approx(np.broadcast_to(1000.0 / (LEAST_LEFT * EMC_MHZ), (2, 3)), rel=1e-4)


def test_nothing_changes_where_the_host_takes_nothing_or_the_memory_has_one_clock() -> None:
    took = times(1000.0, 1.0)
    crowd(took, 0.0, CPU_MHZ, EMC_MHZ)
    assert (took == times(1000.0, 1.0)).all()
    alone = took[..., :1].copy()
    crowd(alone, 0.1, CPU_MHZ, EMC_MHZ[:1])
    assert (alone == took[..., :1]).all()


def test_below_the_lowest_clock_a_kernel_goes_on_as_the_overlap_of_computing_and_transfers_does() -> None:
    emc_mhz = np.array([200.0, 400.0, 800.0, 1600.0], np.float32)

    took = np.broadcast_to(np.hypot(1.0, 200.0 / emc_mhz), (1, 2, 1, 4)).astype(np.float32)
    crowd(took, 0.02, CPU_MHZ, emc_mhz)
    left_mhz = emc_mhz[0] - 0.02 * CPU_MHZ
    assert took[0, :, 0, 0] == pytest.approx(np.hypot(1.0, 200.0 / left_mhz), rel=0.02)


def test_what_kernels_use_of_the_memory_is_of_those_that_run_longest_and_never_rises_with_its_clock() -> None:
    memory_ms = np.stack([np.full((1, 1, 3), 0.9), np.full((1, 1, 3), 0.1)])
    gpu_ms: NDArray[np.float32] = np.ones((2, 2, 1, 3), np.float32)
    assert memory_use(np.array([1, 1]), gpu_ms, memory_ms) == pytest.approx(0.5)
    assert memory_use(np.array([3, 1]), gpu_ms, memory_ms) == pytest.approx(0.7)
    longer = gpu_ms * np.array([4.0, 1.0, 1.0], np.float32)  # models may err: more use at a higher clock than at a lower one
    used = memory_use(np.array([1, 1]), longer, memory_ms)
    assert used.shape == (2, 3) and (np.diff(used, axis=1) <= 0).all()
    assert memory_use(np.array([1, 1]), gpu_ms / np.float32(100), memory_ms) == pytest.approx(1.0)
