# SPDX-License-Identifier: Apache-2.0
"""How well a profile does on a simulated board that it is not of, after so many observations of networks there.

Observations are latency and power at random configurations, with the noise of a campaign. They are the network's own, or those
of the others together, one after the other; errors are over the whole grid, against what the board does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....kernels.correction.correct import correct
from ....kernels.correction.observation import Observation
from ....kernels.cost.model import surface
from ....kernels.network import Network
from ....kernels.surface import Surface
from ...board import load_board
from ...bundle.bundle import Bundle
from ...measuring.meters.simulated import TwinMeter
from ...twin.silicon.silicon import Silicon
from ..evaluation import measure_network
from ..truth import true_surface
from .adapting import observations
from .prior import Prior, adapted, prior_of

COUNTS = (0, 3, 10, 30, 100)


@dataclass(frozen=True)
class Row:
    """What becomes of predictions after so many observations.

    Attributes:
        others_latency_percent, others_power_percent: mean absolute errors of networks of which nothing was observed, the
            observations being of the others.
        own_latency_percent, own_power_percent: the same where they are of the network itself.
    """

    observations: int
    others_latency_percent: float
    others_power_percent: float
    own_latency_percent: float
    own_power_percent: float

    def to_json(self) -> dict[str, Any]:
        return {name: round(value, 4) for name, value in asdict(self).items()}


def transferred(
    bundle: Bundle,
    board: str,
    silicon: int,
    node: int,
    networks: Sequence[Network],
    seed: int = 0,
    progress: Callable[[int, int, str], None] = lambda done, total, text: None,
) -> list[Row]:
    """A row for each of :data:`COUNTS`.

    Raises:
        BoardDescriptionError: there is no such board.
        TwinError: there is no silicon for it, or it does not know one of the networks' kinds.
    """
    device, chip = load_board(board), Silicon(node, board, version=silicon)
    meter = TwinMeter(chip, seed + 1)
    truths = [true_surface(network, chip, device.grid, device.energy_rails) for network in networks]
    measured = [
        measure_network(network, device.grid, device.energy_rails, meter, max(COUNTS), seed + number)
        for number, network in enumerate(networks)
    ]
    observed = [each for _, each in observations(device, measured)]
    prior, rows = prior_of(bundle, device), []
    for number, count in enumerate(COUNTS):
        others, own = [], []
        for left, network in enumerate(networks):
            progress(number * len(networks) + left, len(COUNTS) * len(networks), f"{network.name}, {count} observations")
            known = _of_others(prior, networks, observed, left, count, board)
            others.append(_error(surface(network, known.cost), truths[left]))
            mine = surface(network, prior.cost)
            own.append(_error(correct(mine, observed[left][:count]).surface if count else mine, truths[left]))
        rows.append(Row(count, *map(float, np.mean(others, axis=0)), *map(float, np.mean(own, axis=0))))
    progress(len(COUNTS) * len(networks), len(COUNTS) * len(networks), "done")
    return rows


def _of_others(
    prior: Prior, networks: Sequence[Network], observed: Sequence[Sequence[Observation]], left: int, count: int, board: str
) -> Prior:
    """What so many observations say, dealt out to all networks but one."""
    others = [number for number in range(len(networks)) if number != left]
    dealt = [
        (networks[number], observed[number][: len(range(place, count, len(others)))]) for place, number in enumerate(others)
    ]
    return adapted(prior, load_board(board), [(network, each) for network, each in dealt if each])


def _error(predicted: Surface, true: Surface) -> NDArray[np.float64]:
    """Mean absolute errors of latency and power in per cent."""
    pairs = ((predicted.latency_ms, true.latency_ms), (predicted.power_mw, true.power_mw))
    return np.array([np.abs(ours / theirs - 1).mean() * 100 for ours, theirs in pairs])
