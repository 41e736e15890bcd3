# SPDX-License-Identifier: Apache-2.0
"""Response times of applications over a whole grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jetdvfs.daemon.leases.joint_choice import responses_of
from jetdvfs.daemon.planning.lease_plan import GpuLoad


def responses_ms(works: Sequence[GpuLoad], confidence: float | None) -> list[NDArray[np.float64]]:
    """Response time of each application's frames at the ``confidence`` quantile of every frame's latency; None: the median."""
    shape = works[0].surface.grid.shape
    return [
        row.reshape(shape) for row in responses_of(works, np.stack([work.latency_ms(confidence).ravel() for work in works]))
    ]
