# SPDX-License-Identifier: Apache-2.0
"""What a carried and corrected profile is held against: launches with two rates, and figures that others published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .....kernels.correction.correcting import Correcting
from .....kernels.correction.fitting import fit
from .....kernels.correction.flat import flat_surface
from .....kernels.correction.observation import Observation
from .....kernels.cost.roofline import DeviceRates, terms_ms
from .....kernels.grid import FrequencyGrid
from .....kernels.network import Network
from .....kernels.surface import Surface

Array = NDArray[np.float64]

_ANY_RATE, _LEFT, _NOTHING_SMOOTH = 4.0, 0.05, 1e-4  # deviations of logarithms: of a rate, of what two rates do not explain


@dataclass(frozen=True)
class Published:
    """What others say of their own way.

    Attributes:
        observations: modes that were profiled.
        latency_percent, power_percent: the errors that they stay below.
    """

    name: str
    observations: int
    latency_percent: float
    power_percent: float
    source: str


POWERTRAIN = Published("PowerTrain", 50, 15.0, 6.0, "arXiv 2407.13944")


@dataclass(frozen=True, eq=False)
class _TwoRates:
    """The logarithm of launches' times one after the other, each the longer of computing and transfers, ``(launches, n)``."""

    compute_ms: Array
    transfer_ms: Array

    def __call__(self, unknowns: Array) -> tuple[Array, Array]:
        compute, transfer = self.compute_ms * np.exp(unknowns[0]), self.transfer_ms * np.exp(unknowns[1])
        whole = np.maximum(compute, transfer).sum(axis=0)
        part = np.where(compute > transfer, compute, 0.0).sum(axis=0) / whole
        return np.log(whole), np.stack([part, 1 - part], axis=1)


def two_rates(network: Network, chip: DeviceRates, grid: FrequencyGrid, observations: Sequence[Observation]) -> Array:
    """The latency in ms over the grid of the launches alone, a rate of computing and one of transfers fitted to observations.

    Args:
        chip: the rates before anything is observed.
        observations: at configurations of the grid, with latencies.
    """
    gpu_mhz, emc_mhz = (np.array(levels, np.float64) / 1e6 for levels in (grid.gpu_hz, grid.emc_hz))
    compute_ms, transfer_ms = terms_ms(network.launches, gpu_mhz[None, :, None], emc_mhz[None, None, :], chip)
    over_both = np.broadcast_shapes(compute_ms.shape, transfer_ms.shape)
    compute_ms, transfer_ms = (np.broadcast_to(one, over_both) for one in (compute_ms, transfer_ms))
    unknowns = np.zeros(2)
    if observations:
        places = [grid.index(one.configuration) for one in observations]
        gpu, emc = ([place[axis] for place in places] for axis in (1, 2))
        seen = np.log(np.array([one.latency_ms for one in observations], np.float64))
        count = len(observations)
        unknowns = fit(
            _TwoRates(compute_ms[:, gpu, emc], transfer_ms[:, gpu, emc]),
            np.full(2, _ANY_RATE),
            seen,
            np.full(count, _LEFT),
            np.eye(count),
            (_NOTHING_SMOOTH,),
            _NOTHING_SMOOTH,
        ).unknowns
    every = len(grid.gpu_hz) * len(grid.emc_hz)
    logs, _ = _TwoRates(compute_ms.reshape(-1, every), transfer_ms.reshape(-1, every))(unknowns)
    return np.broadcast_to(np.exp(logs).reshape(1, *over_both[1:]), grid.shape)


def overlap_fit(grid: FrequencyGrid, observations: Sequence[Observation]) -> Surface:
    """The overlap of three terms and the power of three clocks, fitted to observations, and nothing learned on top: what a
    correction is held against.

    Raises:
        GridError: an observation is of a configuration that the grid has not.
    """
    return Correcting(flat_surface(grid), observations, smooth=False).result().surface
