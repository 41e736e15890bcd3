# SPDX-License-Identifier: Apache-2.0
"""The cost models of one board: those of its kernels, and what idling and the host cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import CostModelError
from ..grid import FrequencyGrid
from ..heat import Heat
from ..kinds import KINDS, is_fused
from ..network import KernelInvocation
from ..surface import Tails
from .engines import Engines, without_bias
from .host import HostModel
from .region import Pair, Region
from .roofline import NO_FLOOR, DeviceRates, LaunchFloor
from .totals import NO_SHARES, Shares

# How much less certain a kernel is whose fused epilogue its model has not seen (standard deviation of the logarithm, added in
# quadrature): what is added to a launch's work is free at best and costs as much as its own traffic at worst.
STAND_IN_SIGMA = 0.15
UNSCALED = Pair(1.0, 1.0)
EPILOGUE = "epilogue"
"""The feature by which a model is told of what a fused kernel does on its way out."""


class Regressor(Protocol):
    """A regression over the whole grid, such as :class:`jetdvfs.kernels.trees.ensemble.TreeEnsemble`."""

    def sweep(
        self, features: NDArray[np.float32], levels: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]], /
    ) -> NDArray[np.float32]:
        """Predictions of shape ``(n, n_cpu, n_gpu, n_emc)`` for features of shape ``(n, p)`` and levels in MHz."""


class Unpowered:
    """In place of a model of power where power was not measured: next to nothing, so that only times mean something."""

    def sweep(
        self, features: NDArray[np.float32], levels: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]], /
    ) -> NDArray[np.float32]:
        """Zeros, as of :class:`Regressor`."""
        return np.zeros((len(features), *map(len, levels)), np.float32)


@dataclass(frozen=True)
class _Rates:
    """Rates as of :class:`.roofline.DeviceRates`."""

    flops_per_gpu_cycle: Mapping[str, float]
    bytes_per_emc_cycle: float


@dataclass(frozen=True)
class KernelModel:
    """The models of one kernel kind.

    Attributes:
        kind: the kind, or ``"elementwise"`` for pointwise kinds without a model of their own.
        time: predicts log(GPU ms / roofline bound, the board's floor with it).
        power: predicts log(mW above idle on the board's energy rails while the kernel runs).
        time_sigma, power_sigma: standard deviation of log(measured / predicted) of one kernel.
        dtypes: the element types it was trained on; kernels of other types count as unmodelled.
        features: what it is told, by name, the clocks last; empty: all that is known of its kind.
        region: where it was trained; None where nobody knows, and every kernel is taken to be inside.
    """

    kind: str
    time: Regressor
    power: Regressor
    time_sigma: float
    power_sigma: float
    dtypes: tuple[str, ...] = ("float32",)
    features: tuple[str, ...] = ()
    region: Region | None = None


@dataclass(frozen=True, eq=False)
class BoardCost:
    """The cost models of one board over its grid.

    Attributes:
        grid: the board's frequency configurations.
        chip: the rates its roofline bound is made of.
        kernels: kernel models by kind.
        host: the host's issue times.
        idle_mw: power of the energy rails while nothing runs, shape of the grid.
        host_active_mw: what they draw above that while the host issues work, one per CPU level.
        leakage_mw: the part of the idle power that grows with the die's temperature, shape of the grid; None where nobody
            knows.
        heat: how it does, and at which temperature the idle power was measured.
        sigma_latency, sigma_energy: standard deviation of log(measured / predicted) common to a whole network or board,
            whatever its latency and energy are spent on.
        latency_shares, energy_shares: the same for what the host, computation and memory traffic take, each by itself.
        floor: what a launch takes that does next to nothing: part of the bound that the models of time refer to.
        waiting: by how much longer the host's calls take where kernels use all of the memory's bandwidth.
        host_traffic: what the host's calls move takes the memory so large a part of the time that they take themselves, both
            at the highest clocks.
        own_scale: what kernels' own deviations make of a latency and an energy is multiplied by these.
        tails: how networks' errors exceed their deviations; None where they are taken to be log-normal.
        engines: what kernels take inside of engines, and how uncertain that is; None where nobody measured it.
        in_engine: whether they are those of an engine's kernels.
        observed: whether observations of whole networks, as the board runs them, have corrected them.
        gpu_share: the part of the GPU that the power mode leaves on; the models are of all of it.

    Raises:
        CostModelError: an array has not the grid's shape.
    """

    grid: FrequencyGrid
    chip: DeviceRates
    kernels: Mapping[str, KernelModel]
    host: HostModel
    idle_mw: NDArray[np.float32]
    host_active_mw: NDArray[np.float32]
    sigma_latency: float
    sigma_energy: float
    latency_shares: Shares = NO_SHARES
    energy_shares: Shares = NO_SHARES
    floor: LaunchFloor = NO_FLOOR
    waiting: float = 0.0
    host_traffic: float = 0.0
    leakage_mw: NDArray[np.float32] | None = None
    heat: Heat | None = None
    own_scale: Pair = UNSCALED
    tails: Tails | None = None
    engines: Engines | None = None
    in_engine: bool = False
    observed: bool = False
    gpu_share: float = 1.0

    def __post_init__(self) -> None:
        for name, shape in (("idle_mw", self.grid.shape), ("host_active_mw", self.grid.shape[:1])):
            if np.shape(getattr(self, name)) != shape:
                raise CostModelError(f"board cost: {name} has shape {np.shape(getattr(self, name))}, expected {shape}")

    def warmed(self, temperature_c: float) -> BoardCost:
        """The costs at another temperature of the die.

        Raises:
            CostModelError: idle power is known at one temperature only, or there is no such temperature.
        """
        if self.heat is None or self.leakage_mw is None:
            raise CostModelError("temperature: idle power is known at one temperature only")
        idle_mw = self.idle_mw + np.float32(self.heat.growth(temperature_c)) * self.leakage_mw
        return replace(self, idle_mw=idle_mw, leakage_mw=None, heat=None)

    def gated(self, gpu_share: float) -> BoardCost:
        """The costs with a part of the GPU's units off: rates of computation fall with it; those of the memory stay.

        Raises:
            CostModelError: the part is not between 0 and 1.
        """
        if not 0 < gpu_share <= 1:
            raise CostModelError(f"part of the GPU that is on: {gpu_share}; expected more than 0, at most 1")
        if gpu_share == 1:
            return self
        flops = {dtype: rate * gpu_share for dtype, rate in self.chip.flops_per_gpu_cycle.items()}
        return replace(self, chip=_Rates(flops, self.chip.bytes_per_emc_cycle), gpu_share=gpu_share)

    def run_by(self, execution: str) -> BoardCost:
        """The costs as an execution (:data:`jetdvfs.kernels.execution.EXECUTIONS`)
        makes them: of engines where one runs the network."""
        if execution != "engine" or self.in_engine:
            return self
        running, own = replace(self, in_engine=True), self.engines
        if own is None:
            return running
        return replace(
            running,
            sigma_latency=own.sigma_latency,
            sigma_energy=own.sigma_energy,
            latency_shares=own.latency_shares,
            energy_shares=own.energy_shares,
            own_scale=own.own_scale,
            tails=own.tails,
        )

    def modelled_as(self, invocation: KernelInvocation) -> KernelInvocation:
        """The kernel for which models are asked: in an engine, a product without the bias that it adds on its way out."""
        return without_bias(invocation) if self.in_engine and self.engines is not None else invocation

    def model_for(self, invocation: KernelInvocation) -> KernelModel | None:
        """The model that serves a kernel; None where there is none.

        It is the kind's own, else that of the kind or family by which its row says it is served
        (:data:`jetdvfs.kernels.kinds.KINDS`); for a fused kernel that one is less certain by :data:`STAND_IN_SIGMA`, unless it
        was trained on such, and so is any for a kernel that does something else on its way out (its parameter ``epilogue``).
        """
        model = self.kind_model(invocation)
        return model if model is not None and invocation.dtype in model.dtypes else None

    def kind_model(self, invocation: KernelInvocation) -> KernelModel | None:
        """The same, whatever the kernel's element type."""
        model = self.kernels.get(invocation.kind)
        row = KINDS.get(invocation.kind)
        if model is None and row is not None:
            model = self._stand_ins.get(row.name) if row.fused else self.kernels.get(row.served_by)
        elif model is not None and invocation.params.get("epilogue"):
            model = self._finishing[invocation.kind]
        return model

    def stands_in(self, invocation: KernelInvocation) -> bool:
        """Whether a kernel that does more on its way out is served by the model of those that do not."""
        fused = invocation.kind not in self.kernels and is_fused(invocation.kind)
        return fused or bool(invocation.params.get("epilogue"))

    @cached_property
    def _stand_ins(self) -> dict[str, KernelModel]:
        """The models that stand in for fused kernels, by the kind of those."""
        return {
            row.name: model if EPILOGUE in model.features else _less_certain(model)
            for row in KINDS.values()
            if row.fused and (model := self.kernels.get(row.served_by)) is not None
        }

    @cached_property
    def _finishing(self) -> dict[str, KernelModel]:
        """The models of kernels that do more on their way out than those did that were measured, by kind."""
        return {kind: _less_certain(model) for kind, model in self.kernels.items()}


def _less_certain(model: KernelModel) -> KernelModel:
    return replace(
        model,
        time_sigma=math.hypot(model.time_sigma, STAND_IN_SIGMA),
        power_sigma=math.hypot(model.power_sigma, STAND_IN_SIGMA),
    )
