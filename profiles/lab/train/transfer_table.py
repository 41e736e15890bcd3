# SPDX-License-Identifier: Apache-2.0
"""Accuracy of a profile on an unseen simulated board, by number of observations.

Observations are noisy latency and power at random configurations, of the network itself or of the rest in turn.
Compared with fits of the network's observations alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ....kernels.correction.correct import correct
from ....kernels.correction.correction_run import CorrectionRun
from ....kernels.correction.fitting import fit
from ....kernels.correction.flat import flat_surface
from ....kernels.correction.observation import Observation
from ....kernels.cost.model import surface
from ....kernels.cost.roofline import DeviceRates, terms_ms
from ....kernels.grid import FrequencyGrid
from ....kernels.network import Network
from ....kernels.surface import Surface
from ...adapt.adapting import observations
from ...adapt.network_errors import mean_error_percent
from ...adapt.prior import Prior, adapted, prior_of
from ...board import load_board
from ...bundle.bundle import Bundle
from ...twin.silicon.silicon import Silicon
from ..measure.meters.simulated import TwinMeter
from .evaluation import measure_network, true_surface

Array = NDArray[np.float64]

_ANY_RATE, _LEFT, _NOTHING_SMOOTH = 4.0, 0.05, 1e-4  # deviations of logarithms: of a rate, and of the residual


class PublishedResult(Struct, frozen=True):
    """Published result of another method; errors are upper limits."""

    name: str
    observations: int
    latency_percent: float
    power_percent: float
    source: str


POWERTRAIN = PublishedResult("PowerTrain", 50, 15.0, 6.0, "arXiv 2407.13944")


class _TwoRateModel(Struct, frozen=True, eq=False):
    """Log of summed launch times, each the longer of compute and transfers, ``(launches, n)``."""

    compute_ms: Array
    transfer_ms: Array

    def __call__(self, unknowns: Array) -> tuple[Array, Array]:
        compute, transfer = self.compute_ms * np.exp(unknowns[0]), self.transfer_ms * np.exp(unknowns[1])
        whole = np.maximum(compute, transfer).sum(axis=0)
        part = np.where(compute > transfer, compute, 0.0).sum(axis=0) / whole
        return np.log(whole), np.stack([part, 1 - part], axis=1)


def two_rates(network: Network, chip: DeviceRates, grid: FrequencyGrid, observations: Sequence[Observation]) -> Array:
    """Latency in ms over the grid, with a compute and a transfer rate fitted to observations."""
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
            _TwoRateModel(compute_ms[:, gpu, emc], transfer_ms[:, gpu, emc]),
            np.full(2, _ANY_RATE),
            seen,
            np.full(count, _LEFT),
            np.eye(count),
            (_NOTHING_SMOOTH,),
            _NOTHING_SMOOTH,
        ).unknowns
    every = len(grid.gpu_hz) * len(grid.emc_hz)
    logs, _ = _TwoRateModel(compute_ms.reshape(-1, every), transfer_ms.reshape(-1, every))(unknowns)
    return np.broadcast_to(np.exp(logs).reshape(1, *over_both[1:]), grid.shape)


def overlap_fit(grid: FrequencyGrid, observations: Sequence[Observation]) -> Surface:
    """Fit of a three-term overlap and power of three clocks. Raises GridError."""
    return CorrectionRun(flat_surface(grid), observations, smooth=False).result().surface


COUNTS = (0, 3, 10, 30, 100)


class TransferRow(Struct, frozen=True):
    """Mean absolute errors after a number of observations.

    Attributes:
        others_latency_percent, others_power_percent: of unobserved networks, from observations of the rest.
        own_latency_percent, own_power_percent: of observed networks.
        overlap_latency_percent, overlap_power_percent: of the overlap fit to these.
        rates_latency_percent: of the launches with two rates fitted to these.
    """

    observations: int
    others_latency_percent: float | None
    others_power_percent: float | None
    own_latency_percent: float
    own_power_percent: float
    overlap_latency_percent: float | None
    overlap_power_percent: float | None
    rates_latency_percent: float


def transferred(
    bundle: Bundle,
    board: str,
    perturbed: int,
    node: int,
    networks: Sequence[Network],
    seed: int = 0,
    progress: Callable[[int, int, str], None] = lambda done, total, text: None,
) -> list[TransferRow]:
    """A row for each of :data:`COUNTS`. Raises BoardDescriptionError, TwinError."""
    device, chip = load_board(board), Silicon(node, board, perturbed=perturbed)
    meter = TwinMeter(chip, seed + 1)
    truths = [true_surface(network, chip, device.grid, device.energy_rails) for network in networks]
    measured = [
        measure_network(network, device.grid, device.energy_rails, meter, max(COUNTS), seed + number)
        for number, network in enumerate(networks)
    ]
    observed = [each for _, each in observations(device, measured)]
    prior, rows = prior_of(bundle, device), []
    for number, count in enumerate(COUNTS):
        others, own, overlap, rates = [], [], [], []
        for left, network in enumerate(networks):
            progress(number * len(networks) + left, len(COUNTS) * len(networks), f"{network.name}, {count} observations")
            true, seen = truths[left], observed[left][:count]
            if len(networks) > 1:
                known = _of_others(prior, networks, observed, left, count, board)
                others.append(_errors(surface(network, known.cost), true))
            mine = surface(network, prior.cost)
            own.append(_errors(correct(mine, seen).surface if seen else mine, true))
            if seen:
                overlap.append(_errors(overlap_fit(device.grid, seen), true))
            rates.append(mean_error_percent(two_rates(network, device.chip, device.grid, seen), true.latency_ms))
        own_ms, own_mw = map(float, np.mean(own, axis=0))
        rows.append(TransferRow(count, *_means(others), own_ms, own_mw, *_means(overlap), float(np.mean(rates))))
    progress(len(COUNTS) * len(networks), len(COUNTS) * len(networks), "done")
    return rows


def _of_others(
    prior: Prior, networks: Sequence[Network], observed: Sequence[Sequence[Observation]], left: int, count: int, board: str
) -> Prior:
    others = [number for number in range(len(networks)) if number != left]
    dealt = [
        (networks[number], observed[number][: len(range(place, count, len(others)))]) for place, number in enumerate(others)
    ]
    return adapted(prior, load_board(board), [(network, each) for network, each in dealt if each])


def _errors(predicted: Surface, true: Surface) -> tuple[float, float]:
    return mean_error_percent(predicted.latency_ms, true.latency_ms), mean_error_percent(predicted.power_mw, true.power_mw)


def _means(errors: Sequence[tuple[float, float]]) -> tuple[float | None, float | None]:
    if not errors:
        return None, None
    latency, power = map(float, np.mean(errors, axis=0))
    return latency, power
