# SPDX-License-Identifier: Apache-2.0
"""Cost models of one board: its kernels, idle power, and host."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ..errors import CostModelError
from ..grid import FrequencyGrid
from ..heat import Heat
from ..kinds import KINDS, is_fused
from ..network import KernelInvocation
from ..surface import Tails
from .engines import EngineCosts, without_bias
from .host import HostModel
from .region import ModelPair, Region
from .roofline import NO_FLOOR, DeviceRates, LaunchFloor
from .totals import NO_SHARES, BottleneckShares

# Added uncertainty of a kernel whose fused epilogue its model has not seen (deviation of the logarithm, in quadrature): its
# work is free at best and costs its own traffic at worst.
STAND_IN_SIGMA = 0.15
UNSCALED = ModelPair(1.0, 1.0)
EPILOGUE = "epilogue"


class Regressor(Protocol):
    """A regression over the whole grid, such as :class:`jetdvfs.kernels.trees.ensemble.TreeEnsemble`."""

    def sweep(
        self, features: NDArray[np.float32], levels: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]], /
    ) -> NDArray[np.float32]:
        """Predictions of shape ``(n, n_cpu, n_gpu, n_emc)`` for features of shape ``(n, p)`` and levels in MHz."""


class MissingPowerModel:
    """Stand-in for a missing power model: almost zero power, so that only times are meaningful."""

    def sweep(
        self, features: NDArray[np.float32], levels: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]], /
    ) -> NDArray[np.float32]:
        return np.zeros((len(features), *map(len, levels)), np.float32)


class _Rates(Struct, frozen=True):
    flops_per_gpu_cycle: Mapping[str, float]
    bytes_per_emc_cycle: float


class KernelModel(Struct, frozen=True):
    """The models of one kernel kind.

    Attributes:
        kind: the kind, or ``"elementwise"`` for pointwise kinds without their own model.
        time: predicts log(GPU ms / roofline bound, including the board's floor).
        power: predicts log(mW above idle on the board's energy rails meanwhile).
        time_sigma, power_sigma: standard deviation of log(measured / predicted) of one kernel.
        dtypes: trained element types; the rest counts as unmodelled.
        features: input names, the clocks last; empty: all features of its kind.
    """

    kind: str
    time: Regressor
    power: Regressor
    time_sigma: float
    power_sigma: float
    dtypes: tuple[str, ...] = ("float32",)
    features: tuple[str, ...] = ()
    region: Region | None = None


class BoardCost(Struct, frozen=True, eq=False, dict=True):
    """The cost models of one board over its grid; raises CostModelError.

    Attributes:
        idle_mw: power of the energy rails while nothing runs, shape of the grid.
        host_active_mw: their power above that while the host issues work, one per CPU level.
        leakage_mw: temperature-dependent part of the idle power, shape of the grid.
        sigma_latency, sigma_energy: standard deviation of log(measured / predicted) common to a whole network or board.
        latency_shares, energy_shares: the same for host, computation and memory traffic.
        floor: time of an almost empty launch: part of the bound of the time models.
        waiting: relative slowdown of the host's calls while kernels use the full memory bandwidth.
        host_traffic: time that the host's calls occupy the memory, as a share of their own, at the highest clocks.
        own_scale: scale of the kernels' own deviations in latency and energy.
        tails: networks' errors relative to their deviations; None for log-normal ones.
        observed: corrected by observations of whole networks.
        gpu_share: part of the GPU that the power mode leaves on, None if unknown; the models are of all of it.
    """

    grid: FrequencyGrid
    chip: DeviceRates
    kernels: Mapping[str, KernelModel]
    host: HostModel
    idle_mw: NDArray[np.float32]
    host_active_mw: NDArray[np.float32]
    sigma_latency: float
    sigma_energy: float
    latency_shares: BottleneckShares = NO_SHARES
    energy_shares: BottleneckShares = NO_SHARES
    floor: LaunchFloor = NO_FLOOR
    waiting: float = 0.0
    host_traffic: float = 0.0
    leakage_mw: NDArray[np.float32] | None = None
    heat: Heat | None = None
    own_scale: ModelPair = UNSCALED
    tails: Tails | None = None
    engines: EngineCosts | None = None
    in_engine: bool = False
    observed: bool = False
    gpu_share: float | None = 1.0

    def __post_init__(self) -> None:
        for name, shape in (("idle_mw", self.grid.shape), ("host_active_mw", self.grid.shape[:1])):
            if np.shape(getattr(self, name)) != shape:
                raise CostModelError(f"board cost: {name} has shape {np.shape(getattr(self, name))}, expected {shape}")

    def warmed(self, temperature_c: float) -> BoardCost:
        """The costs at another temperature of the die; raises CostModelError."""
        if self.heat is None or self.leakage_mw is None:
            raise CostModelError("temperature: idle power is known at one temperature only")
        idle_mw = self.idle_mw + np.float32(self.heat.growth(temperature_c)) * self.leakage_mw
        return replace(self, idle_mw=idle_mw, leakage_mw=None, heat=None)

    def gated(self, gpu_share: float | None) -> BoardCost:
        """The costs with a part of the GPU's units on (None: unknown), which scales its computation rates."""
        if gpu_share is not None and not 0 < gpu_share <= 1:
            raise CostModelError(f"part of the GPU that is on: {gpu_share}; expected more than 0, at most 1")
        return replace(self, chip=self.chip_times(gpu_share or 1.0), gpu_share=gpu_share)

    def chip_times(self, factor: float) -> DeviceRates:
        if factor == 1:
            return self.chip
        flops = {dtype: rate * factor for dtype, rate in self.chip.flops_per_gpu_cycle.items()}
        return _Rates(flops, self.chip.bytes_per_emc_cycle)

    def run_by(self, execution: str) -> BoardCost:
        """The costs under an execution (:data:`jetdvfs.kernels.execution.EXECUTIONS`): an engine's if one runs the network."""
        if execution != "engine" or self.in_engine:
            return self
        running, own = replace(self, in_engine=True), self.engines
        if own is None:
            return running
        return replace(running, **{name: getattr(own, name) for name in own.__struct_fields__ if name != "rates"})

    def modelled_as(self, invocation: KernelInvocation) -> KernelInvocation:
        """The kernel as the models see it: in an engine, a product without its bias, which is added in its epilogue."""
        return without_bias(invocation) if self.in_engine and self.engines is not None else invocation

    def model_for(self, invocation: KernelInvocation) -> KernelModel | None:
        """The model that serves a kernel: its kind's own, else the one in its row of :data:`jetdvfs.kernels.kinds.KINDS`.

        Untrained on fused kernels, it is less certain for them by :data:`STAND_IN_SIGMA`, as for any kernel with an
        ``epilogue``.
        """
        model = self.kind_model(invocation)
        return model if model is not None and invocation.dtype in model.dtypes else None

    def kind_model(self, invocation: KernelInvocation) -> KernelModel | None:
        model = self.kernels.get(invocation.kind)
        row = KINDS.get(invocation.kind)
        if model is None and row is not None:
            model = self._stand_ins.get(row.name) if row.fused else self.kernels.get(row.served_by)
        elif model is not None and invocation.params.get("epilogue"):
            model = self._finishing[invocation.kind]
        return model

    def uses_stand_in(self, invocation: KernelInvocation) -> bool:
        fused = invocation.kind not in self.kernels and is_fused(invocation.kind)
        return fused or bool(invocation.params.get("epilogue"))

    @cached_property
    def _stand_ins(self) -> dict[str, KernelModel]:
        return {
            row.name: model if EPILOGUE in model.features else _less_certain(model)
            for row in KINDS.values()
            if row.fused and (model := self.kernels.get(row.served_by)) is not None
        }

    @cached_property
    def _finishing(self) -> dict[str, KernelModel]:
        """Models of kernels with a larger epilogue than was measured, by kind."""
        return {kind: _less_certain(model) for kind, model in self.kernels.items()}


def _less_certain(model: KernelModel) -> KernelModel:
    return replace(
        model,
        time_sigma=math.hypot(model.time_sigma, STAND_IN_SIGMA),
        power_sigma=math.hypot(model.power_sigma, STAND_IN_SIGMA),
    )
