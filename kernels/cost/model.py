# SPDX-License-Identifier: Apache-2.0
"""What a network costs on a board: kernel models and host times, put together into its surface.

Kernel models say how far from its roofline bound a kernel runs and what it draws; each distinct kernel of a network is swept
the whole grid once. A network is then either a timeline of host and GPU or, as in MIRAGE (SEC '21, section 4), a sum.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, Literal, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import CostModelError
from ..grid import FrequencyGrid
from ..kinds import KINDS
from ..network import KernelInvocation, Network
from ..surface import Surface, UnmodelledKind
from . import timeline
from .features import feature_rows
from .host import HostModel
from .roofline import DeviceRates, bound_ms, terms_ms
from .totals import NO_SHARES, Group, Shares, add_up, common_variance

Method: TypeAlias = Literal["timeline", "sum"]
METHODS: tuple[Method, ...] = get_args(Method)

COST_VERSION = 2
"""Raised when the same models come to give another surface, so that surfaces kept on disk are made anew."""

# A kernel without a model is assumed to reach this part of its roofline bound, give or take a factor of two (one standard
# deviation), and to hold the GPU for at least this many of its cycles.
UNMODELLED_EFFICIENCY = 0.5
UNMODELLED_SIGMA = 0.7
UNMODELLED_CYCLES = 4000.0

# How much less certain a kernel is whose fused epilogue its model has not seen (standard deviation of the logarithm, added in
# quadrature): what is added to a launch's work is free at best and costs as much as its own traffic at worst.
STAND_IN_SIGMA = 0.15

_LARGEST_LOG = np.float32(80)  # its exponential, times a bound, is still a float32


Each: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""Calls a function with every item, as ``map`` does; an executor's ``map`` does so in its threads."""


class Regressor(Protocol):
    """A regression over the whole grid, such as :class:`jetdvfs.kernels.trees.ensemble.TreeEnsemble`."""

    def sweep(
        self, features: NDArray[np.float32], levels: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]], /
    ) -> NDArray[np.float32]:
        """Predictions of shape ``(n, n_cpu, n_gpu, n_emc)`` for features of shape ``(n, p)`` and levels in MHz."""


@dataclass(frozen=True)
class KernelModel:
    """The models of one kernel kind.

    Attributes:
        kind: the kind, or ``"elementwise"`` for pointwise kinds without a model of their own.
        time: predicts log(GPU ms / roofline bound).
        power: predicts log(mW above idle on the board's energy rails while the kernel runs).
        time_sigma, power_sigma: standard deviation of log(measured / predicted) of one kernel.
        dtypes: the element types it was trained on; kernels of other types count as unmodelled.
    """

    kind: str
    time: Regressor
    power: Regressor
    time_sigma: float
    power_sigma: float
    dtypes: tuple[str, ...] = ("float32",)


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
        sigma_latency, sigma_energy: standard deviation of log(measured / predicted) common to a whole network or board,
            whatever its latency and energy are spent on.
        latency_shares, energy_shares: the same for what the host, computation and memory traffic take, each by itself.

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

    def __post_init__(self) -> None:
        for name, shape in (("idle_mw", self.grid.shape), ("host_active_mw", self.grid.shape[:1])):
            if np.shape(getattr(self, name)) != shape:
                raise CostModelError(f"board cost: {name} has shape {np.shape(getattr(self, name))}, expected {shape}")

    def model_for(self, invocation: KernelInvocation) -> KernelModel | None:
        """The model that serves a kernel; None where there is none.

        It is the kind's own, else that of the kind or family by which its row says it is served
        (:data:`jetdvfs.kernels.kinds.KINDS`); for a fused kernel that one is less certain by :data:`STAND_IN_SIGMA`.
        """
        model = self.kernels.get(invocation.kind)
        row = KINDS.get(invocation.kind)
        if model is None and row is not None:
            model = self._stand_ins.get(row.name) if row.fused else self.kernels.get(row.served_by)
        return model if model is not None and invocation.dtype in model.dtypes else None

    @cached_property
    def _stand_ins(self) -> dict[str, KernelModel]:
        """The models that stand in for fused kernels, by the kind of those."""
        return {
            row.name: replace(
                model,
                time_sigma=math.hypot(model.time_sigma, STAND_IN_SIGMA),
                power_sigma=math.hypot(model.power_sigma, STAND_IN_SIGMA),
            )
            for row in KINDS.values()
            if row.fused and (model := self.kernels.get(row.served_by)) is not None
        }


@dataclass(frozen=True, eq=False)
class KernelCosts:
    """What each distinct kernel of a network costs over the grid.

    Attributes:
        kernels: the distinct kernels, k of them; those of one model stand together, in order of first launch.
        order: which of them each launch is, shape ``(launches,)``.
        models: the model of each run of kernels, None where there is none, and the run.
        gpu_ms: GPU time, shape ``(k, n_cpu, n_gpu, n_emc)``.
        dynamic_mw: power above idle while it runs, the same shape.
    """

    kernels: tuple[KernelInvocation, ...]
    order: NDArray[np.intp]
    models: tuple[tuple[KernelModel | None, slice], ...]
    gpu_ms: NDArray[np.float32]
    dynamic_mw: NDArray[np.float32]


def kernel_costs(network: Network, cost: BoardCost, each: Each = map) -> KernelCosts:
    """Time and power of each distinct kernel of a network at every configuration.

    Args:
        each: sweeps the models, one item each, those of most kernels first; sweeps of different models do not depend on each
            other and leave Python's lock.

    Raises:
        CostModelError: the network launches nothing, a kernel does not fit its kind's features, or a model predicts a value
            that is not finite.
    """
    launches = network.launches
    if not launches:
        raise CostModelError(f"network {network.name!r} launches no kernel: there is nothing to predict")
    distinct: dict[tuple[Any, ...], KernelInvocation] = {}
    for launch in launches:
        distinct.setdefault(launch.signature, launch)
    served: dict[int, tuple[KernelModel | None, list[KernelInvocation]]] = {}
    for kernel in distinct.values():
        model = cost.model_for(kernel)
        served.setdefault(id(model), (model, []))[1].append(kernel)
    kernels = tuple(chain.from_iterable(own for _, own in served.values()))
    position = {kernel.signature: row for row, kernel in enumerate(kernels)}
    ends = accumulate(len(own) for _, own in served.values())
    costs = KernelCosts(
        kernels=kernels,
        order=np.array([position[launch.signature] for launch in launches], np.intp),
        models=tuple((model, slice(end - len(own), end)) for (model, own), end in zip(served.values(), ends, strict=True)),
        gpu_ms=np.empty((len(kernels), *cost.grid.shape), np.float32),
        dynamic_mw=np.empty((len(kernels), *cost.grid.shape), np.float32),
    )
    modelled = sorted(((model, run) for model, run in costs.models if model is not None), key=lambda item: -_length(item[1]))
    sweeps = [sweep for model, run in modelled for sweep in _sweeps(model, costs, run, cost)]
    for _ in each(lambda sweep: sweep(), sweeps):
        pass
    for model, run in costs.models:
        if model is None:
            _bound_unmodelled(costs, run, cost)
    return costs


def surface(network: Network, cost: BoardCost, method: Method = "timeline", each: Each = map) -> Surface:
    """Latency, power and energy of one inference at every configuration of the board.

    Args:
        network: the network, host-only calls included.
        cost: the board's cost models.
        method: ``timeline`` plays host and GPU against each other and charges idle power for the time elapsed, the host's
            active power for the time it issues calls, and each kernel's power above idle for its GPU time. ``sum`` adds kernel
            times, and kernel power times kernel time, as in MIRAGE; the host costs nothing.
        each: as of :func:`kernel_costs`.

    Raises:
        CostModelError: as :func:`kernel_costs`; or there is no such method.
    """
    if method not in METHODS:
        raise CostModelError(f"method {method!r}; valid: {', '.join(METHODS)}")
    return assemble(network, cost, kernel_costs(network, cost, each), method)


def assemble(network: Network, cost: BoardCost, costs: KernelCosts, method: Method) -> Surface:
    """The surface of a network whose kernels' costs are known already, as :func:`surface` describes it."""
    idle_mw = cost.idle_mw.astype(np.float64)
    if method == "timeline":
        host_ms, once_ms = _host_times_ms(network, cost)
        played = timeline.play(host_ms, costs.gpu_ms, costs.order)
        latency_ms = played.latency_ms.astype(np.float64) + once_ms[:, None, :]
        critical = played.critical
        host_mj = cost.host_active_mw.astype(np.float64)[:, None, None] * (host_ms[-1] + once_ms)[:, None, :] / 1e3
    else:
        counts = np.bincount(costs.order).astype(np.float32)
        latency_ms = np.einsum("k,kcge->cge", counts, costs.gpu_ms).astype(np.float64)
        critical = np.zeros(cost.grid.shape, np.int32)
        host_mj = np.zeros(cost.grid.shape)
    totals = add_up(costs.gpu_ms, costs.dynamic_mw, _memory_share(costs, cost), _groups(costs), costs.order, critical, idle_mw)
    energy_mj = idle_mw * latency_ms / 1e3 + host_mj + totals.dynamic_mj
    waited_ms = np.maximum(latency_ms - totals.path_ms, 0)
    latency_variance = totals.latency_variance + common_variance(
        cost.latency_shares, waited_ms, totals.path_ms, totals.memory_ms
    )
    energy_variance = totals.energy_variance + common_variance(
        cost.energy_shares, idle_mw * waited_ms / 1e3 + host_mj, totals.energy_mj, totals.memory_mj
    )
    return Surface(
        grid=cost.grid,
        latency_ms=latency_ms,
        power_mw=energy_mj / latency_ms * 1e3,
        energy_mj=energy_mj,
        idle_mw=idle_mw,
        latency_sigma=np.sqrt(latency_variance / latency_ms**2 + cost.sigma_latency**2),
        energy_sigma=np.sqrt(energy_variance / energy_mj**2 + cost.sigma_energy**2),
        method=method,
        unmodelled=unmodelled_kinds(network, cost.model_for),
        boundary=network.boundary,
    )


def _sweeps(model: KernelModel, costs: KernelCosts, run: slice, cost: BoardCost) -> tuple[Callable[[], None], ...]:
    """What fills in the times, and what the powers, of the kernels that a model serves."""
    levels = cost.grid.levels_mhz()
    kernels = costs.kernels[run]
    features = feature_rows(model.kind, kernels)

    def swept(regressor: Regressor, out: NDArray[np.float32]) -> None:
        logarithm = regressor.sweep(features, levels)
        if not logarithm.max() < _LARGEST_LOG:
            raise CostModelError(f"the {model.kind} model predicts times or powers that are not finite numbers")
        np.exp(logarithm, out=out)

    def time() -> None:
        swept(model.time, costs.gpu_ms[run])
        gpu_ms = costs.gpu_ms[run]
        gpu_ms *= np.float32(bound_ms(kernels, levels, cost.chip)[:, :1])  # the same at every CPU clock

    def power() -> None:
        swept(model.power, costs.dynamic_mw[run])

    return time, power


def _length(run: slice) -> int:
    return int(run.stop - run.start)


def _bound_unmodelled(costs: KernelCosts, run: slice, cost: BoardCost) -> None:
    """Fill in kernels that no model serves: what is left of their bound, at the power that the others draw."""
    levels = cost.grid.levels_mhz()
    bound = np.float32(bound_ms(costs.kernels[run], levels, cost.chip)[:, :1])
    modelled = np.ones(len(costs.kernels), bool)
    modelled[run] = False
    costs.gpu_ms[run] = np.maximum(bound / UNMODELLED_EFFICIENCY, UNMODELLED_CYCLES / (1e3 * levels[1][:, None]))
    costs.dynamic_mw[run] = _usual_dynamic_mw(costs.gpu_ms[modelled], costs.dynamic_mw[modelled], cost)


def _host_times_ms(network: Network, cost: BoardCost) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Host time up to each launch and to the end, ``(launches + 1, n_cpu, n_emc)``; what is paid once, ``(n_cpu, n_emc)``."""
    issued = [index for index, call in enumerate(network.calls) if isinstance(call, KernelInvocation)]
    cpu_mhz, _, emc_mhz = cost.grid.levels_mhz()
    elapsed_us = cost.host.elapsed_us(network.calls, [*issued, -1], cpu_mhz, emc_mhz)
    return elapsed_us / 1e3, cost.host.once_us(cpu_mhz, emc_mhz) / 1e3


def _memory_share(costs: KernelCosts, cost: BoardCost) -> NDArray[np.float32]:
    """The part of each kernel's roofline terms that is memory traffic, ``(kernels, 1, n_gpu, n_emc)``."""
    _, gpu_mhz, emc_mhz = cost.grid.levels_mhz()
    compute_ms, memory_ms = terms_ms(costs.kernels, gpu_mhz[None, None, :, None], emc_mhz[None, None, None, :], cost.chip)
    return np.asarray(memory_ms / (compute_ms + memory_ms), np.float32)


def _groups(costs: KernelCosts) -> tuple[Group, ...]:
    return tuple(
        Group(run, UNMODELLED_SIGMA, UNMODELLED_SIGMA) if model is None else Group(run, model.time_sigma, model.power_sigma)
        for model, run in costs.models
    )


def _usual_dynamic_mw(gpu_ms: NDArray[np.float32], dynamic_mw: NDArray[np.float32], cost: BoardCost) -> NDArray[np.float32]:
    """What the network's other kernels draw above idle, averaged over their time; with none modelled, as much again as idle."""
    if not len(gpu_ms):
        return np.asarray(cost.idle_mw, np.float32)
    return np.asarray((gpu_ms * dynamic_mw).sum(axis=0) / gpu_ms.sum(axis=0), np.float32)


def unmodelled_kinds(network: Network, model_for: Callable[[KernelInvocation], object]) -> tuple[UnmodelledKind, ...]:
    """The kinds of which ``model_for`` finds no model, most frequent first, with their share of the network's work."""
    without = [launch for launch in network.launches if not model_for(launch)]
    flops = sum(launch.flops for launch in network.launches) or 1
    moved = sum(launch.bytes for launch in network.launches) or 1
    return tuple(
        UnmodelledKind(
            kind,
            launches,
            sum(launch.flops for launch in without if launch.kind == kind) / flops,
            sum(launch.bytes for launch in without if launch.kind == kind) / moved,
        )
        for kind, launches in Counter(launch.kind for launch in without).most_common()
    )
