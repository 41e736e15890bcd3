# SPDX-License-Identifier: Apache-2.0
"""What was seen at a configuration stands in a surface."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jetdvfs.kernels.correction.flat import flat_surface
from jetdvfs.kernels.correction.observation import Observation
from jetdvfs.kernels.correction.pinning import pinned
from jetdvfs.kernels.grid import FrequencyConfiguration, FrequencyGrid
from jetdvfs.kernels.surface import Surface

GRID = FrequencyGrid(
    cpu_khz=(500_000, 1_000_000, 2_000_000), gpu_hz=(300_000_000, 900_000_000), emc_hz=(600_000_000, 2_100_000_000)
)


def _crowded() -> Surface:
    """A network whose kernels wait for the memory the longer the faster the host takes its part of it."""
    flat = flat_surface(GRID)
    crowding = np.array([0.0, 0.1, 0.3])[:, None, None] * np.array([1.0, 0.0])
    return replace(flat, latency_ms=flat.latency_ms[-1:] * (1 + crowding))


def _seen(surface: Surface, configuration: FrequencyConfiguration, slower: float = 1.0) -> Observation:
    return Observation(configuration, latency_ms=slower * surface.at(configuration).latency_ms, frames=30)


def test_a_slow_frame_at_a_high_cpu_clock_says_nothing_of_lower_ones() -> None:
    surface = _crowded()
    fast_host = FrequencyConfiguration(2_000_000, 900_000_000, 600_000_000)
    slow_host = fast_host._replace(cpu_khz=500_000)
    assert surface.at(fast_host).latency_ms > 1.2 * surface.at(slow_host).latency_ms
    left = pinned(surface, [_seen(surface, fast_host), _seen(surface, slow_host)])
    np.testing.assert_allclose(left.latency_ms, surface.latency_ms)


def test_lower_gpu_and_memory_clocks_are_no_faster_than_what_was_seen_and_higher_ones_no_slower() -> None:
    surface = _crowded()
    middle = FrequencyConfiguration(1_000_000, 900_000_000, 600_000_000)
    seen = _seen(surface, middle, slower=9.0)
    left = pinned(surface, [seen])
    assert left.at(middle).latency_ms == left.at(middle._replace(gpu_hz=300_000_000)).latency_ms == seen.latency_ms
    seen = _seen(surface, middle, slower=0.5)
    assert pinned(surface, [seen]).at(middle._replace(emc_hz=2_100_000_000)).latency_ms <= (seen.latency_ms or 0.0)


def test_of_two_that_contradict_each_other_what_the_lease_saw_itself_stands() -> None:
    surface = _crowded()
    here = FrequencyConfiguration(1_000_000, 300_000_000, 600_000_000)
    below = _seen(surface, here, slower=0.8)
    above = _seen(surface, here._replace(gpu_hz=900_000_000), slower=1.3)
    left = pinned(surface, [above, below])
    assert left.at(above.configuration).latency_ms == left.at(here).latency_ms == above.latency_ms
