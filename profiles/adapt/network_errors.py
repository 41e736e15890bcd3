# SPDX-License-Identifier: Apache-2.0
"""Errors of predictions for whole networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

from ...kernels.network import Network
from ...kernels.surface import Surface
from ..documents import DocumentError, convert
from ..errors import BundleError

_FIGURES = ("percent", "bias_percent", "covered", "high")


class NetworkMeasurement(Struct, frozen=True):
    """One network measured as a whole at n configurations of a board.

    Attributes:
        index: flat grid indices, (n,).
        energy_mj: of the energy rails, (n,); None without measured power.
        frames_ms: single frames, (n, frames), if latencies are medians.
    """

    network: Network
    index: NDArray[np.int64]
    latency_ms: NDArray[np.float64]
    energy_mj: NDArray[np.float64] | None
    frames_ms: NDArray[np.float64] | None = None


class NetworkError(Struct, frozen=True):
    """Error of predictions for one network; energy is None without measured power.

    Attributes:
        latency_percent, energy_percent: mean absolute percentage error.
        latency_bias_percent, energy_bias_percent: mean signed error; positive if predictions are too high.
        latency_covered, energy_covered: share of measurements (of latency, frames) under the 95% surface.
        latency_high, energy_high: median of the 95% surface over the prediction.
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
        """Read the JSON form. Raises BundleError."""
        try:
            return convert(data, cls)
        except DocumentError as error:
            raise BundleError(f"recorded evaluation: {error}") from error


def mean_error_percent(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> float:
    """Mean absolute percentage error."""
    return float(np.abs(predicted / measured - 1).mean() * 100)


def compare(predicted: Surface, measured: NetworkMeasurement) -> NetworkError:
    high, at = predicted.quantile(0.95), measured.index
    latency = _errors(predicted.latency_ms.ravel()[at], high.latency_ms.ravel()[at], measured.latency_ms, measured.frames_ms)
    energy: tuple[float, ...] | tuple[None, ...] = (None,) * len(latency)
    if measured.energy_mj is not None:
        energy = _errors(predicted.energy_mj.ravel()[at], high.energy_mj.ravel()[at], measured.energy_mj)
    found: dict[str, Any] = {
        f"{of}_{figure}": value
        for of, values in (("latency", latency), ("energy", energy))
        for figure, value in zip(_FIGURES, values, strict=True)
    }
    return NetworkError(measured.network.name, predicted.method, len(at), **found)


def _errors(
    predicted: NDArray[np.float64],
    high: NDArray[np.float64],
    measured: NDArray[np.float64],
    singly: NDArray[np.float64] | None = None,
) -> tuple[float, float, float, float]:
    bias = (predicted / measured - 1).mean() * 100
    covered = ((measured[:, None] if singly is None else singly) <= high[:, None]).mean()
    return mean_error_percent(predicted, measured), float(bias), float(covered), float(np.median(high / predicted))


def summary(errors: Sequence[NetworkError]) -> dict[str, dict[str, float]]:
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
