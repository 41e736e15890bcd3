# SPDX-License-Identifier: Apache-2.0
"""Order of observations on a simulated board, and convergence of plans.

Observations start at the top clocks and follow the plans' uncertainty, or are random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from ....kernels.correction.correct import correct
from ....kernels.correction.observation import Observation
from ....kernels.cost.model import surface
from ....kernels.grid import FrequencyConfiguration, FrequencyGrid
from ....kernels.network import Network
from ....kernels.surface import Surface
from ...adapt.prior import next_observation, on_front, prior_of
from ...board import load_board
from ...bundle.bundle import Bundle
from ...twin.silicon.silicon import Silicon
from ..measure.meters.meter import Meter
from ..measure.meters.simulated import TwinMeter
from .evaluation import true_surface

COUNTS = (3, 6, 12, 24, 36, 60)
OBSERVATION_S = 2.5
"""Board time; 'jetdvfs setup' takes 2 to 3 s on most boards."""
_RANDOM = 3  # random orders, of which the mean is told
_DEADLINES = (1.05, 1.2, 1.5, 2.0, 3.0, 5.0)  # of the latency at the best clocks
_LIKELY = 0.5
_STEADY = 100

Order = Callable[[Sequence[Sequence[Observation]]], tuple[int, FrequencyConfiguration, float]]


class OrderRow(Struct, frozen=True):
    """State after some time.

    Attributes:
        order: ``chosen`` or ``random``.
        minutes: of the board's time.
        expected_percent: reported uncertainty.
        error_percent: larger mean absolute error of latency and energy, at plannable configurations.
        excess_percent: mean energy of plans above the best within the same deadline.
    """

    order: str
    observations: int
    minutes: float
    expected_percent: float | None
    error_percent: float
    excess_percent: float


def orders_compared(
    bundle: Bundle,
    board: str,
    perturbed: int,
    node: int,
    networks: Sequence[Network],
    seed: int = 0,
    progress: Callable[[int, int, str], None] = lambda done, total, text: None,
    counts: Sequence[int] = COUNTS,
) -> list[OrderRow]:
    """A row for each order and count of observations. Raises BoardDescriptionError, TwinError."""
    device, chip = load_board(board), Silicon(node, board, perturbed=perturbed)
    truths = [true_surface(network, chip, device.grid, device.energy_rails) for network in networks]
    prior = prior_of(bundle, device)
    surfaces = [surface(network, prior.cost) for network in networks]

    def chosen(observations: Sequence[Sequence[Observation]]) -> tuple[int, FrequencyConfiguration, float]:
        tried = [{one.configuration for one in each} for each in observations]
        choice = next_observation(surfaces, observations, tried, device.grid)
        assert choice is not None  # a grid has more configurations than are observed
        return choice.network, choice.configuration, choice.uncertainty

    orders: list[tuple[str, Order]] = [("chosen", chosen)]
    orders += [("random", _at_random(device.grid, np.random.default_rng([seed, number]))) for number in range(_RANDOM)]
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for number, (name, order) in enumerate(orders):
        meter: Meter = TwinMeter(chip, seed + 1)
        seen: list[list[Observation]] = [[] for _ in networks]
        for count in range(max(counts) + 1):
            at, configuration, uncertainty = order(seen)
            if count in counts:
                found.setdefault((name, count), []).append((uncertainty, *_scores(surfaces, seen, truths)))
            seen[at].append(_observed(meter, networks[at], configuration, device.energy_rails))
            progress(number * (max(counts) + 1) + count, len(orders) * (max(counts) + 1), f"{name}, {count} observations")
    progress(1, 1, "done")
    rows = []
    for (name, count), each in found.items():
        expected, error, excess = (100 * float(value) for value in np.mean(each, axis=0))
        told = None if name == "random" or math.isinf(expected) else expected
        rows.append(OrderRow(name, count, count * OBSERVATION_S / 60, told, error, excess))
    return rows


def _at_random(grid: FrequencyGrid, rng: np.random.Generator) -> Order:
    def order(observations: Sequence[Sequence[Observation]]) -> tuple[int, FrequencyConfiguration, float]:
        number = min(range(len(observations)), key=lambda one: len(observations[one]))
        anywhere = grid.configuration([int(rng.integers(length)) for length in grid.shape])
        return number, anywhere if observations[number] else grid.top, 0.0

    return order


def _observed(meter: Meter, network: Network, configuration: FrequencyConfiguration, rails: Sequence[str]) -> Observation:
    latency_ms = float(meter.network_latency_ms(network, [configuration])[0])
    found = meter.network_rails_mw(network, [configuration])
    return Observation(configuration, latency_ms, float(sum(found[rail][0] for rail in rails)), frames=_STEADY)


def _scores(
    surfaces: Sequence[Surface], observations: Sequence[Sequence[Observation]], truths: Sequence[Surface]
) -> tuple[float, float]:
    errors, excess = [], []
    for predicted, each, true in zip(surfaces, observations, truths, strict=True):
        now = correct(predicted, each).surface if each else predicted
        likely = on_front(true) > _LIKELY
        pairs = ((now.latency_ms, true.latency_ms), (now.energy_mj, true.energy_mj))
        errors.append(max(float(np.abs(ours / theirs - 1)[likely].mean()) for ours, theirs in pairs))
        for factor in _DEADLINES:
            deadline_ms = factor * float(true.latency_ms.min())
            within = now.latency_ms <= deadline_ms
            objective = np.where(within, now.energy_mj, np.inf) if within.any() else now.latency_ms
            best = float(true.energy_mj[true.latency_ms <= deadline_ms].min())
            excess.append(max(float(true.energy_mj.ravel()[int(objective.argmin())]) / best - 1, 0.0))
    return float(np.mean(errors)), float(np.mean(excess))
