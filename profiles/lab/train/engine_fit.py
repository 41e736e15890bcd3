# SPDX-License-Identifier: Apache-2.0
"""Fits of what engines cost: what a start takes the host, and by which factors kernels differ from the framework's.

A network in an engine is hardly ever limited by the host, so its latency is a start and the sum of its kernels' times, which
the factors of :class:`jetdvfs.kernels.cost.engines.EngineRates` make up linearly. Where the GPU does wait, the latency is
played with the factors found before, and what it exceeds that sum by is taken off what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ....kernels.cost import timeline
from ....kernels.cost.board import UNSCALED, BoardCost
from ....kernels.cost.engines import EngineRates, Engines, Sort, images_ms, sort_of, time_in_engine
from ....kernels.cost.execution import host_times
from ....kernels.cost.host import HostModel, handing
from ....kernels.cost.model import kernel_costs, used_memory
from ....kernels.cost.totals import NO_SHARES
from ....kernels.execution import Execution
from ....kernels.grid import FrequencyGrid
from ...adapt.measurements import Rows
from ...adapt.network_errors import NetworkMeasurement
from ...errors import MeasurementError
from .host_fit import clocks_mhz, fit_issue_time

_ENGINE: Execution = "engine"
_ROUNDS = 8
_LEAST, _MOST = 0.02, 4.0  # of a factor: what is listed costs something
_TIMES = ("floor", "windows", "products", "others", "copies", "layouts")
_POWERS = ("product_power", "other_power")


def fit_start(host: HostModel, us: Rows, launches: NDArray[np.int64], grid: FrequencyGrid) -> HostModel:
    """The host with what it takes to start an engine, and to hand over each of its kernels.

    Args:
        us: how long starts took, in microseconds.
        launches: how many kernels each of them handed over.

    Raises:
        MeasurementError: nothing was measured, or engines of one size alone.
    """
    if len(set(launches.tolist())) < 2:
        raise MeasurementError(f"engines: starts of {len(set(launches.tolist()))} sizes were measured; expected 2 or more")
    start, each = fit_issue_time(us, launches, grid)
    return replace(host, calls={**host.calls, _ENGINE: start, handing(_ENGINE): each})


def fit_rates(cost: BoardCost, measured: Sequence[NetworkMeasurement]) -> EngineRates:
    """The factors of kernels of one element type that explain the latencies and energies of engines best.

    Least squares of relative errors, each factor between :data:`_LEAST` and :data:`_MOST`; what nothing has is left at 1.

    Args:
        cost: what kernels cost under a framework, and what engines' starts cost the host.
        measured: networks as engines run them, listed as the front end lists engines.

    Raises:
        MeasurementError: nothing was measured, or no power.
    """
    if not measured:
        raise MeasurementError("engines: no network was measured")
    framework = replace(cost, in_engine=True, engines=unchanged())
    seen = [_Seen.of(framework, item) for item in measured]
    latency_ms, energy_mj = (np.concatenate([getattr(one, name) for one in seen]) for name in ("latency_ms", "energy_mj"))
    columns = np.concatenate([one.time_columns() for one in seen])
    rates = EngineRates()
    for _ in range(_ROUNDS):
        beside_ms = np.concatenate([one.latency_at(rates) - one.time_columns() @ _factors(rates, _TIMES) for one in seen])
        rates = replace(rates, **_fitted(_TIMES, columns, latency_ms - beside_ms, latency_ms))
    drawn = np.concatenate([one.power_columns(rates) for one in seen])
    rest_mj = np.concatenate([one.rest_mj() for one in seen])
    return replace(rates, **_fitted(_POWERS, drawn, energy_mj - rest_mj, energy_mj))


def unchanged() -> Engines:
    """Engines in which kernels take what they do under a framework without the bias of products, and nothing is uncertain."""
    return Engines({"": EngineRates()}, UNSCALED, NO_SHARES, NO_SHARES, 0.0, 0.0, None)


def _factors(rates: EngineRates, names: Sequence[str]) -> NDArray[np.float64]:
    return np.array([getattr(rates, name) for name in names], np.float64)


def _fitted(
    names: Sequence[str], columns: NDArray[np.float64], goal: NDArray[np.float64], scale: NDArray[np.float64]
) -> dict[str, float]:
    """What of each column makes up the goal; errors count as shares of the scale."""
    from scipy.optimize import lsq_linear

    there = [place for place, column in enumerate(columns.T) if column.any()]
    named = [names[place] for place in there]
    least = [0.0 if name == "layouts" else _LEAST for name in named]
    found = lsq_linear(columns[:, there] / scale[:, None], goal / scale, (least, _MOST)).x
    return {name: round(float(factor), 4) for name, factor in zip(named, found, strict=True)}


@dataclass(frozen=True, eq=False)
class _Seen:
    """One network at the n configurations where it was measured.

    Attributes:
        sorts: of each of its k distinct kernels.
        order: which kernel each launch is, (launches,).
        gpu_ms, dynamic_mw: of each kernel under the framework, (k, n).
        floor_ms: of a launch, (n,).
        images_ms: what each kernel's images take to move, (k, n).
        issued_ms: when the host has issued each launch, and in the last row all, (launches + 1, n).
        once_ms: what an inference costs the host besides, (n,).
        idle_mw, host_mw: idle power, and the host's above it while it issues, (n,).
        latency_ms, energy_mj: as measured, (n,).
    """

    sorts: tuple[Sort, ...]
    order: NDArray[np.intp]
    gpu_ms: NDArray[np.float64]
    dynamic_mw: NDArray[np.float64]
    floor_ms: NDArray[np.float64]
    images_ms: NDArray[np.float64]
    issued_ms: NDArray[np.float64]
    once_ms: NDArray[np.float64]
    idle_mw: NDArray[np.float64]
    host_mw: NDArray[np.float64]
    latency_ms: NDArray[np.float64]
    energy_mj: NDArray[np.float64]

    @classmethod
    def of(cls, cost: BoardCost, item: NetworkMeasurement) -> _Seen:
        """A measurement beside what models of a framework's kernels say.

        Raises:
            MeasurementError: power was not measured.
        """
        if item.energy_mj is None:
            raise MeasurementError(f"engines: power of network {item.network.name} was not measured")
        costs, at = kernel_costs(item.network, cost), item.index
        _, gpu_mhz, emc_mhz = clocks_mhz(at, cost.grid)
        cpu, _, emc = np.unravel_index(at, cost.grid.shape)
        host = host_times(item.network, cost, _ENGINE, used_memory(costs, cost))
        return cls(
            sorts=tuple(map(sort_of, costs.kernels)),
            order=costs.order,
            gpu_ms=costs.gpu_ms.reshape(len(costs.kernels), -1)[:, at].astype(np.float64),
            dynamic_mw=costs.dynamic_mw.reshape(len(costs.kernels), -1)[:, at].astype(np.float64),
            floor_ms=cost.floor.ms(gpu_mhz),
            images_ms=np.array([images_ms(kernel, emc_mhz, cost.chip) for kernel in costs.kernels]),
            issued_ms=host.issued_ms[:, cpu, emc],
            once_ms=host.once_ms[cpu, emc],
            idle_mw=cost.idle_mw.ravel()[at].astype(np.float64),
            host_mw=cost.host_active_mw[cpu].astype(np.float64),
            latency_ms=item.latency_ms,
            energy_mj=item.energy_mj,
        )

    @property
    def launches(self) -> NDArray[np.int64]:
        """How often each kernel is launched, (k,)."""
        return np.bincount(self.order, minlength=len(self.sorts))

    def times_ms(self, rates: EngineRates) -> NDArray[np.float64]:
        """Of each kernel in an engine of such rates, (k, n)."""
        kernels = zip(self.gpu_ms, self.images_ms, self.sorts, strict=True)
        return np.array([time_in_engine(own_ms, self.floor_ms, images, sort, rates) for own_ms, images, sort in kernels])

    def time_columns(self) -> NDArray[np.float64]:
        """What each factor of time is multiplied with, all launches together, (n, factors)."""
        copied = self._are("copy")
        least = np.where(copied, 0.0, np.minimum(self.gpu_ms, self.floor_ms))
        beyond = self.gpu_ms - least
        factored = (beyond * self._are(sort) for sort in ("window", "product", "other", "copy"))
        parts = (least, *factored, -self.images_ms)
        return np.stack([self.launches @ part for part in parts], axis=1)

    def power_columns(self, rates: EngineRates) -> NDArray[np.float64]:
        """Energy above idle of products and of other kernels in engines, by their power under the framework, in mJ, (n, 2)."""
        each_mj = self.launches[:, None] * self.times_ms(rates) * self.dynamic_mw / 1e3
        product = self._are("product") | self._are("window")
        return np.stack([(each_mj * product).sum(axis=0), (each_mj * ~product).sum(axis=0)], axis=1)

    def _are(self, sort: Sort) -> NDArray[np.bool_]:
        """Which kernels are of a sort, (k, 1)."""
        return np.array([own == sort for own in self.sorts])[:, None]

    def latency_at(self, rates: EngineRates) -> NDArray[np.float64]:
        """The latency in an engine of such rates, (n,)."""
        gpu_ms = self.times_ms(rates)[:, :, None, None]
        return timeline.play(self.issued_ms[:, :, None], gpu_ms, self.order).latency_ms[:, 0, 0] + self.once_ms

    def rest_mj(self) -> NDArray[np.float64]:
        """The measured energy without that of kernels above idle: idle for as long as it took, and the host, in mJ, (n,)."""
        return np.asarray((self.idle_mw * self.latency_ms + self.host_mw * (self.issued_ms[-1] + self.once_ms)) / 1e3)
