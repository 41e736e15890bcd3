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


def corrected(surface: Surface, observations: Sequence[Observation], cautious: bool = False) -> Surface:
    """The surface by what was observed at its configurations; as it is where that is nothing.

    Args:
        cautious: take everything to be slower by as much as what was observed was, where the correction thinks less of it: what
            one configuration tells may be laid to the wrong clock, and a target that is missed cannot wait for more of them.
    """
    known = [seen for seen in observations if has(surface, seen.configuration)]
    if not known:
        return surface
    found = correct(surface, known).surface
    if cautious:
        predicted_ms = [float(surface.latency_ms[surface.grid.index(seen.configuration)]) for seen in known]
        slower = max((seen.latency_ms or 0.0) / expected_ms for seen, expected_ms in zip(known, predicted_ms, strict=True))
        found = replace(found, latency_ms=np.maximum(found.latency_ms, slower * surface.latency_ms))
    return pinned(found, known)


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
