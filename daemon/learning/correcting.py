# SPDX-License-Identifier: Apache-2.0
"""A surface as what was observed of a lease leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...kernels.correction.correct import correct
from ...kernels.correction.observation import Observation
from ...kernels.grid import FrequencyConfiguration
from ...kernels.surface import Surface

_TELLING = 3
"""From how many frames on what they took is held against a configuration."""


def corrected(surface: Surface, observations: Sequence[Observation]) -> Surface:
    """The surface by what was observed at its configurations; as it is where that is nothing."""
    known = [seen for seen in observations if has(surface, seen.configuration)]
    return pinned(correct(surface, known).surface, known) if known else surface


def pinned(surface: Surface, observations: Sequence[Observation]) -> Surface:
    """The surface, nowhere at odds with what was seen: lower clocks take no less time than that, higher ones no more."""
    latency_ms = surface.latency_ms.copy()
    for seen in sorted(observations, key=lambda one: -one.age_s):
        if seen.latency_ms is None or seen.disturbed or seen.frames < _TELLING:
            continue
        cpu, gpu, emc = surface.grid.index(seen.configuration)
        slower, faster = np.s_[: cpu + 1, : gpu + 1, : emc + 1], np.s_[cpu:, gpu:, emc:]
        latency_ms[slower] = np.maximum(latency_ms[slower], seen.latency_ms)
        latency_ms[faster] = np.minimum(latency_ms[faster], seen.latency_ms)
    return replace(surface, latency_ms=latency_ms, energy_mj=surface.power_mw * latency_ms / 1e3)


def has(surface: Surface, configuration: FrequencyConfiguration) -> bool:
    """Whether a configuration is one of the surface's."""
    return all(level in surface.grid.levels(axis) for axis, level in configuration._asdict().items())
