# SPDX-License-Identifier: Apache-2.0
"""What was seen at a configuration stands in a surface."""

from __future__ import annotations

import numpy as np

from jetdvfs.kernels.correction.pinning import pinned
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.support.surfaces import crowded, seen_at


def test_a_slow_frame_at_a_high_cpu_clock_says_nothing_of_lower_ones() -> None:
    surface = crowded()
    fast_host = FrequencyConfiguration(2_000_000, 900_000_000, 600_000_000)
    slow_host = fast_host._replace(cpu_khz=500_000)
    assert surface.at(fast_host).latency_ms > 1.2 * surface.at(slow_host).latency_ms
    left = pinned(surface, [seen_at(surface, fast_host), seen_at(surface, slow_host)])
    np.testing.assert_allclose(left.latency_ms, surface.latency_ms)


def test_lower_gpu_and_memory_clocks_are_no_faster_than_what_was_seen_and_higher_ones_no_slower() -> None:
    surface = crowded()
    middle = FrequencyConfiguration(1_000_000, 900_000_000, 600_000_000)
    seen = seen_at(surface, middle, slower=9.0)
    left = pinned(surface, [seen])
    assert left.at(middle).latency_ms == left.at(middle._replace(gpu_hz=300_000_000)).latency_ms == seen.latency_ms
    seen = seen_at(surface, middle, slower=0.5)
    assert pinned(surface, [seen]).at(middle._replace(emc_hz=2_100_000_000)).latency_ms <= (seen.latency_ms or 0.0)


def test_of_two_that_contradict_each_other_what_the_lease_saw_itself_stands() -> None:
    surface = crowded()
    here = FrequencyConfiguration(1_000_000, 300_000_000, 600_000_000)
    below = seen_at(surface, here, slower=0.8)
    above = seen_at(surface, here._replace(gpu_hz=900_000_000), slower=1.3)
    left = pinned(surface, [above, below])
    assert left.at(above.configuration).latency_ms == left.at(here).latency_ms == above.latency_ms
