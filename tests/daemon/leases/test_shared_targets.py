# SPDX-License-Identifier: Apache-2.0
"""Every target on a shared GPU: clocks of a lease that saves energy may be lowered for all, those of another may not."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.daemon.leases.lease import Holder, Lease
from jetdvfs.daemon.leases.sharing import Arbiter
from jetdvfs.daemon.planning.lease_plan import PlanRequest
from jetdvfs.daemon.planning.limits import Limits
from jetdvfs.daemon.planning.plan import Planning
from jetdvfs.daemon.planning.targets import target_classes
from jetdvfs.kernels.grid import FrequencyConfiguration, FrequencyGrid
from jetdvfs.kernels.surface import Surface

GRID = FrequencyGrid((1_000_000,), tuple(100_000_000 * step for step in range(1, 11)), (1_000_000_000,))
GPU = np.array(GRID.gpu_hz, np.float64).reshape(GRID.shape) / 1e9
#: True if clocks above those that are needed are given up where others share the GPU.
LOWERED = {
    "latency_ms": True,
    "tokens_per_s": True,
    "ttft_ms": True,
    "min-energy": True,
    "energy_mj": False,
    "power_mw": False,
    "hours": False,
    "mj_per_token": False,
    "min-edp": False,
}


def surface() -> Surface:
    """2 ms at 1 GHz, longer in proportion below; 0.1 W idle, and the cube of the clock above it."""
    latency_ms, idle_mw, sigma = 2 / GPU, np.full(GRID.shape, 1e2), np.full(GRID.shape, 0.05)
    power_mw = 1e2 + 1e4 * GPU**3
    return Surface(GRID, latency_ms, power_mw, power_mw * latency_ms / 1e3, idle_mw, sigma, sigma, "timeline")


def held(name: str, target: str, configuration: FrequencyConfiguration) -> Lease:
    """A lease whose plan is at a configuration, as one that was made within other limits may be."""
    request = PlanRequest(Planning(), surface(), target, 5, None, name, True)
    return Lease(
        name, Holder(name, int(name), 1000, "app"), replace(request.plan(Limits()), configuration=configuration), "", 0
    )


@pytest.mark.parametrize("target", target_classes(), ids=lambda target: str(target.keyword))
def test_clocks_above_the_need_are_given_up_by_targets_that_save_energy_alone(target: type) -> None:
    example = next(one for one in target_classes() if one is target).example()
    leases = [held("1", str(example), GRID.top), held("2", "min-energy", GRID.configuration((0, 0, 0)))]
    together = Arbiter().requested(leases, Limits)
    assert (together.gpu_hz < GRID.top.gpu_hz) == LOWERED[example.keyword]
