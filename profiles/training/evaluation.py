# SPDX-License-Identifier: Apache-2.0
"""How well surfaces predict whole networks: predicted against measured latency and energy at random configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...kernels.cost.board import BoardCost
from ...kernels.cost.model import METHODS, Method, surface
from ...kernels.grid import FrequencyConfiguration, FrequencyGrid
from ...kernels.network import Network
from ...kernels.surface import Surface
from ..documents import DocumentError, convert
from ..errors import BundleError
from ..measuring.meters.meter import Meter

FRAMES = 50
"""So many frames of a network are measured at each configuration where bounds are fitted or judged."""


@dataclass(frozen=True)
class NetworkMeasurement:
    """One network measured as a whole at n configurations of a board.

    Attributes:
        index: the configurations as flat indices of the grid, (n,).
        latency_ms, energy_mj: measured, (n,); energy of the board's energy rails, None where power was not measured.
        frames_ms: single frames at each of them, (n, frames), where latencies are medians; None where nobody kept them.
    """

    network: Network
    index: NDArray[np.int64]
    latency_ms: NDArray[np.float64]
    energy_mj: NDArray[np.float64] | None
    frames_ms: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class NetworkError:
    """How far predictions for one network are from what was measured, over n configurations.

    Attributes:
        latency_percent, energy_percent: mean absolute percentage error.
        latency_bias_percent, energy_bias_percent: mean signed percentage error; positive where predictions are too high.
        latency_covered, energy_covered: share of measurements under the 95% surface; of latency the share of frames.
        latency_high, energy_high: how sharp that is: the median of the 95% surface over the prediction.

    Those of energy are None where power was not measured.
    """

    network: str
    method: str
    configurations: int
    latency_percent: float
    energy_percent: float | None
    latency_bias_percent: float
    energy_bias_percent: float | None
    latency_covered: float
    energy_covered: float | None
    latency_high: float
    energy_high: float | None

    def to_json(self) -> dict[str, Any]:
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> NetworkError:
        """Read the JSON form.

        Raises:
            BundleError: a member is missing or not what it must be.
        """
        try:
            return convert(data, cls)
        except DocumentError as error:
            raise BundleError(f"recorded evaluation: {error}") from error


def measure_network(
    network: Network, grid: FrequencyGrid, rails: Sequence[str], meter: Meter, configurations: int, seed: int
) -> NetworkMeasurement:
    """Measure a network's latency and energy at random configurations of the grid, each at most once."""
    index = np.random.default_rng(seed).choice(grid.size, min(configurations, grid.size), replace=False)
    chosen = [_configuration(grid, position) for position in index]
    latency_ms = np.asarray(meter.network_latency_ms(network, chosen), np.float64)
    measured = meter.network_rails_mw(network, chosen)
    power_mw = sum((np.asarray(measured[rail], np.float64) for rail in rails), np.zeros(len(index)))
    return NetworkMeasurement(network, index, latency_ms, power_mw * latency_ms / 1e3)


class FrameMeter(Protocol):
    """Measures single frames of a network."""

    def network_frames_ms(
        self, network: Network, configurations: Sequence[FrequencyConfiguration], frames: int
    ) -> NDArray[np.float64]:
        """Latencies of so many frames at each configuration, ``(configurations, frames)``."""
        ...


def with_frames(
    measured: NetworkMeasurement, grid: FrequencyGrid, meter: FrameMeter, frames: int = FRAMES
) -> NetworkMeasurement:
    """The measurement with single frames at the same configurations."""
    chosen = [_configuration(grid, position) for position in measured.index]
    return replace(measured, frames_ms=np.asarray(meter.network_frames_ms(measured.network, chosen, frames), np.float64))


def compare(predicted: Surface, measured: NetworkMeasurement) -> NetworkError:
    """The error of one surface against one network's measurement."""
    high, at = predicted.quantile(0.95), measured.index
    latency = _errors(predicted.latency_ms.ravel()[at], high.latency_ms.ravel()[at], measured.latency_ms, measured.frames_ms)
    energy: tuple[float, ...] | tuple[None, ...] = (None,) * len(latency)
    if measured.energy_mj is not None:
        energy = _errors(predicted.energy_mj.ravel()[at], high.energy_mj.ravel()[at], measured.energy_mj)
    return NetworkError(
        network=measured.network.name,
        method=predicted.method,
        configurations=len(at),
        latency_percent=latency[0],
        energy_percent=energy[0],
        latency_bias_percent=latency[1],
        energy_bias_percent=energy[1],
        latency_covered=latency[2],
        energy_covered=energy[2],
        latency_high=latency[3],
        energy_high=energy[3],
    )


def _errors(
    predicted: NDArray[np.float64],
    high: NDArray[np.float64],
    measured: NDArray[np.float64],
    singly: NDArray[np.float64] | None = None,
) -> tuple[float, float, float, float]:
    """Mean absolute and mean signed error in per cent, the share covered (of what was measured ``singly``, where something
    was), and how sharp that is."""
    error = predicted / measured - 1
    percent, bias = np.abs(error).mean() * 100, error.mean() * 100
    covered = ((measured[:, None] if singly is None else singly) <= high[:, None]).mean()
    return float(percent), float(bias), float(covered), float(np.median(high / predicted))


def evaluate(
    cost: BoardCost, measured: Iterable[NetworkMeasurement], methods: Sequence[Method] = METHODS
) -> list[NetworkError]:
    """The error of every method for everything measured, networks in order; a network's surface is made once."""
    errors = []
    by_network: dict[str, list[NetworkMeasurement]] = {}
    for item in measured:
        by_network.setdefault(item.network.digest, []).append(item)
    for items in by_network.values():
        for method in methods:
            predicted = surface(items[0].network, cost, method)
            errors += [compare(predicted, item) for item in items]
    return errors


def summary(errors: Sequence[NetworkError]) -> dict[str, dict[str, float]]:
    """Per method, the means over networks of the errors and coverages; those of energy where power was measured."""
    names = ["latency_percent", "energy_percent", "latency_covered", "energy_covered"]
    if any(error.energy_percent is None for error in errors):
        names = ["latency_percent", "latency_covered"]
    methods = dict.fromkeys(error.method for error in errors)
    return {
        method: {
            name: round(float(np.mean([getattr(error, name) for error in errors if error.method == method])), 4)
            for name in names
        }
        for method in methods
    }


def table(errors: Sequence[NetworkError]) -> str:
    """A table for people: one line per network, the methods side by side, means below; boards of one network are averaged."""
    methods = list(dict.fromkeys(error.method for error in errors))
    networks = list(dict.fromkeys(error.network for error in errors))
    lines = [
        (" " * 24 + "".join(f"{method:^28}    " for method in methods)).rstrip(),
        f"{'network':24}" + "".join(f"{'latency':>14}{'energy':>14}    " for _ in methods).rstrip(),
    ]
    for name in [*networks, "mean"]:
        means = summary([error for error in errors if name in (error.network, "mean")])
        cells = (f"{means[m]['latency_percent']:>13.1f}%{means[m].get('energy_percent', np.nan):>13.1f}%    " for m in methods)
        lines.append(f"{name:24}{''.join(cells)}".rstrip())
    return "\n".join(lines)


def coverage(errors: Sequence[NetworkError], method: str = "timeline") -> str:
    """What becomes of the 95% surfaces' promise, in two lines for people: over all, for the worst network, and how sharp."""
    own = [error for error in errors if error.method == method]
    lines = []
    for figure in ("latency", "energy"):
        by_network: dict[str, list[float]] = {}
        for error in own:
            by_network.setdefault(error.network, []).append(getattr(error, f"{figure}_covered"))
        worst = min(by_network, key=lambda name: float(np.mean(by_network[name])))
        pooled = np.average([getattr(error, f"{figure}_covered") for error in own], weights=[e.configurations for e in own])
        high = np.median([getattr(error, f"{figure}_high") for error in own])
        lines.append(
            f"95% {figure} surface ({method}): covers {pooled:.1%} of all, {np.mean(by_network[worst]):.1%} of {worst}, "
            f"the least; {high:.2f} times the prediction in the median"
        )
    return "\n".join(lines)


def _configuration(grid: FrequencyGrid, index: int) -> FrequencyConfiguration:
    return grid.configuration([int(position) for position in np.unravel_index(index, grid.shape)])
