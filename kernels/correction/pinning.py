# SPDX-License-Identifier: Apache-2.0
"""Observed configurations take precedence over a correction by all observations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..surface import Surface

if TYPE_CHECKING:
    import numpy as np

    from .observation import Observation
else:
    from ..lazy import numpy as np

TELLING = 3
"""Number of frames from which an observation pins a configuration."""


def pinned(surface: Surface, observations: Sequence[Observation]) -> Surface:
    """The surface, consistent with observations: at an observed CPU clock, lower clocks take no less time, higher no more.

    Of two that conflict the newer one counts. Other CPU clocks are unaffected: a faster host leaves less power and memory to
    the GPU.
    """
    latency_ms = surface.latency_ms.copy()
    for _, seen in sorted(enumerate(observations), key=lambda one: (-one[1].age_s, -one[0])):
        if seen.latency_ms is None or seen.disturbed or seen.frames < TELLING:
            continue
        cpu, gpu, emc = surface.grid.index(seen.configuration)
        slower, faster = np.s_[cpu, : gpu + 1, : emc + 1], np.s_[cpu, gpu:, emc:]
        latency_ms[slower] = np.maximum(latency_ms[slower], seen.latency_ms)
        latency_ms[faster] = np.minimum(latency_ms[faster], seen.latency_ms)
    return replace(surface, latency_ms=latency_ms, energy_mj=surface.power_mw * latency_ms / 1e3)
