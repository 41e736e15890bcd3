# SPDX-License-Identifier: Apache-2.0
"""What a network costs on a board: kernel models and host times, put together into its surface.

Kernel models say how far from its roofline bound a kernel runs and what it draws; each distinct kernel of a network is swept
the whole grid once. A network is then either a timeline of host and GPU or, as in MIRAGE (SEC '21, section 4), a sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from . import timeline
from .errors import CostModelError
from .features import ELEMENTWISE, ELEMENTWISE_KINDS, feature_rows
from .grid import FrequencyGrid
from .host import HostModel, issue_key
from .network import Call, KernelInvocation, Network
from .roofline import Chip, bound_ms
from .surface import Surface, UnmodelledKind

Method: TypeAlias = Literal["timeline", "sum"]
METHODS: tuple[Method, ...] = get_args(Method)

# A kernel without a model is assumed to reach this part of its roofline bound, give or take a factor of two (one standard
# deviation), and to hold the GPU for at least this many of its cycles.
UNMODELLED_EFFICIENCY = 0.5
UNMODELLED_SIGMA = 0.7
UNMODELLED_CYCLES = 4000.0


class Regressor(Protocol):
    """A regression over the whole grid, such as :class:`jetdvfs.kernels.ensemble.TreeEnsemble`."""

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
        sigma_latency, sigma_energy: standard deviation of log(measured / predicted) common to a whole network or board.

    Raises:
        CostModelError: an array has not the grid's shape.
    """

    grid: FrequencyGrid
    chip: Chip
    kernels: Mapping[str, KernelModel]
    host: HostModel
    idle_mw: NDArray[np.float32]
    host_active_mw: NDArray[np.float32]
    sigma_latency: float
    sigma_energy: float

    def __post_init__(self) -> None:
        for name, shape in (("idle_mw", self.grid.shape), ("host_active_mw", self.grid.shape[:1])):
            if np.shape(getattr(self, name)) != shape:
                raise CostModelError(f"board cost: {name} has shape {np.shape(getattr(self, name))}, expected {shape}")

    def model_for(self, invocation: KernelInvocation) -> KernelModel | None:
        """The model that serves a kernel: its kind's own, else the elementwise family's; None where there is none."""
        model = self.kernels.get(invocation.kind)
        if model is None and invocation.kind in ELEMENTWISE_KINDS:
            model = self.kernels.get(ELEMENTWISE)
        return model if model is not None and invocation.dtype in model.dtypes else None


@dataclass(frozen=True, eq=False)
class KernelCosts:
    """What each distinct kernel of a network costs over the grid.

    Attributes:
        kernels: the distinct kernels, k of them, in order of first launch.
        order: which of them each launch is, shape ``(launches,)``.
        gpu_ms: GPU time, shape ``(k, n_cpu, n_gpu, n_emc)``.
        dynamic_mw: power above idle while it runs, the same shape.
        time_sigma, power_sigma: standard deviation of log(measured / predicted), shape ``(k,)``.
        modelled: whether a model served it, shape ``(k,)``.
    """

    kernels: tuple[KernelInvocation, ...]
    order: NDArray[np.intp]
    gpu_ms: NDArray[np.float32]
    dynamic_mw: NDArray[np.float32]
    time_sigma: NDArray[np.float64]
    power_sigma: NDArray[np.float64]
    modelled: NDArray[np.bool_] = field(repr=False)


def kernel_costs(network: Network, cost: BoardCost) -> KernelCosts:
    """Time and power of each distinct kernel of a network at every configuration.

    Raises:
        CostModelError: the network launches nothing, a kernel does not fit its kind's features, or a model predicts no figure.
    """
    launches = network.launches
    if not launches:
        raise CostModelError(f"network {network.name!r} launches no kernel: there is nothing to predict")
    position: dict[object, int] = {}
    order = np.array([position.setdefault(launch.signature, len(position)) for launch in launches], np.intp)
    kernels = tuple(launches[index] for index in np.unique(order, return_index=True)[1])
    levels = cost.grid.levels_mhz()
    shape = (len(kernels), *cost.grid.shape)
    bound = np.float32(bound_ms(kernels, levels, cost.chip)[:, :1])  # the same at every CPU clock
    gpu_ms, dynamic_mw = np.empty(shape, np.float32), np.empty(shape, np.float32)
    time_sigma, power_sigma = np.full(len(kernels), UNMODELLED_SIGMA), np.full(len(kernels), UNMODELLED_SIGMA)
    modelled = np.zeros(len(kernels), bool)
    models = [cost.model_for(kernel) for kernel in kernels]
    for model in {id(model): model for model in models if model is not None}.values():
        rows = np.array([index for index, other in enumerate(models) if other is model])
        features = feature_rows(model.kind, [kernels[row] for row in rows])
        with np.errstate(over="ignore"):  # what overflows is refused below
            times = np.exp(model.time.sweep(features, levels)) * bound[rows]
            powers = np.exp(model.power.sweep(features, levels))
        if not (np.isfinite(times).all() and np.isfinite(powers).all()):
            raise CostModelError(f"the {model.kind} model predicts times or powers that are no finite figures")
        gpu_ms[rows], dynamic_mw[rows] = times, powers
        time_sigma[rows], power_sigma[rows], modelled[rows] = model.time_sigma, model.power_sigma, True
    if not modelled.all():
        least_ms = UNMODELLED_CYCLES / (1e3 * levels[1][:, None])
        gpu_ms[~modelled] = np.maximum(bound[~modelled] / UNMODELLED_EFFICIENCY, least_ms)
        dynamic_mw[~modelled] = _usual_dynamic_mw(gpu_ms[modelled], dynamic_mw[modelled], cost)
    return KernelCosts(kernels, order, gpu_ms, dynamic_mw, time_sigma, power_sigma, modelled)


def surface(network: Network, cost: BoardCost, method: Method = "timeline") -> Surface:
    """Latency, power and energy of one inference at every configuration of the board.

    Args:
        network: the network, host-only calls included.
        cost: the board's cost models.
        method: ``timeline`` plays host and GPU against each other and charges idle power for the time elapsed, the host's
            active power for the time it issues calls, and each kernel's power above idle for its GPU time. ``sum`` adds kernel
            times, and kernel power times kernel time, as in MIRAGE; the host costs nothing.

    Raises:
        CostModelError: as :func:`kernel_costs`; or there is no such method.
    """
    if method not in METHODS:
        raise CostModelError(f"method {method!r}; valid: {', '.join(METHODS)}")
    costs = kernel_costs(network, cost)
    idle_mw = np.float64(cost.idle_mw)
    if method == "timeline":
        host_ms, once_ms = _host_times_ms(network, cost)
        played = timeline.run(host_ms, costs.gpu_ms, costs.order)
        latency_ms = played.latency_ms + once_ms[:, None, :]
        critical = played.critical
        host_mj = np.float64(cost.host_active_mw)[:, None, None] * (host_ms[-1] + once_ms)[:, None, :] / 1e3
    else:
        counts = np.bincount(costs.order).astype(np.float32)
        latency_ms = np.float64(np.tensordot(counts, costs.gpu_ms, 1))
        critical = np.zeros(cost.grid.shape, np.int32)
        host_mj = np.zeros(cost.grid.shape)
    dynamic_mj, latency_variance, energy_variance = _accumulate(costs, critical, idle_mw)
    energy_mj = idle_mw * latency_ms / 1e3 + host_mj + dynamic_mj
    return Surface(
        grid=cost.grid,
        latency_ms=latency_ms,
        power_mw=energy_mj / latency_ms * 1e3,
        energy_mj=energy_mj,
        idle_mw=idle_mw,
        latency_sigma=np.sqrt(latency_variance / latency_ms**2 + cost.sigma_latency**2),
        energy_sigma=np.sqrt(energy_variance / energy_mj**2 + cost.sigma_energy**2),
        method=method,
        unmodelled=_unmodelled(network, cost),
    )


def _host_times_ms(network: Network, cost: BoardCost) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Host time up to each launch and to the end, ``(launches + 1, n_cpu, n_emc)``; what is paid once, ``(n_cpu, n_emc)``."""
    different: dict[tuple[str, int], int] = {}
    calls: list[Call] = []
    order = []
    for call in network.calls:
        key = issue_key(call)
        if key not in different:
            different[key] = len(calls)
            calls.append(call)
        order.append(different[key])
    cpu_mhz, _, emc_mhz = cost.grid.levels_mhz()
    elapsed_ms = np.cumsum(cost.host.issue_us(calls, cpu_mhz, emc_mhz)[order] / 1e3, axis=0)
    issued = [index for index, call in enumerate(network.calls) if isinstance(call, KernelInvocation)]
    return elapsed_ms[[*issued, -1]], cost.host.once_us(cpu_mhz, emc_mhz) / 1e3


def _accumulate(
    costs: KernelCosts, critical: NDArray[np.int32], idle_mw: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float32], NDArray[np.float32]]:
    """The energy of all kernels above idle in mJ; the variances of latency (ms^2) and energy (mJ^2) that their errors make.

    To first order, a kernel that runs a share s longer delays the inference by s times the time it spends on the critical path,
    and costs that delay's idle energy besides its own. Launches of one kernel err together, distinct kernels apart.
    """
    dynamic_mj = np.zeros(idle_mw.shape)
    latency_variance, energy_variance = np.zeros(idle_mw.shape, np.float32), np.zeros(idle_mw.shape, np.float32)
    idle_w = np.float32(idle_mw / 1e3)
    for kernel, (gpu_ms, dynamic_mw) in enumerate(zip(costs.gpu_ms, costs.dynamic_mw, strict=True)):
        launched = costs.order == kernel
        # How many of its launches are at or after each launch: those lie on the path where that launch is the critical one.
        remaining = np.append(launched[::-1].cumsum()[::-1], 0).astype(np.float32)
        own_mj = gpu_ms * dynamic_mw
        own_mj *= remaining[0] / np.float32(1e3)
        dynamic_mj += own_mj
        path_ms = remaining.take(critical)
        path_ms *= gpu_ms
        delayed_mj = idle_w * path_ms
        delayed_mj += own_mj
        for variance, part, sigma in (
            (latency_variance, path_ms, costs.time_sigma[kernel]),
            (energy_variance, delayed_mj, costs.time_sigma[kernel]),
            (energy_variance, own_mj, costs.power_sigma[kernel]),
        ):
            part *= np.float32(sigma)
            part *= part
            variance += part
    return dynamic_mj, latency_variance, energy_variance


def _usual_dynamic_mw(gpu_ms: NDArray[np.float32], dynamic_mw: NDArray[np.float32], cost: BoardCost) -> NDArray[np.float32]:
    """What the network's other kernels draw above idle, averaged over their time; with none modelled, as much again as idle."""
    if not len(gpu_ms):
        return np.asarray(cost.idle_mw, np.float32)
    return np.asarray((gpu_ms * dynamic_mw).sum(axis=0) / gpu_ms.sum(axis=0), np.float32)


def _unmodelled(network: Network, cost: BoardCost) -> tuple[UnmodelledKind, ...]:
    """The kinds no model serves, most frequent first, with their share of the network's work."""
    without = [launch for launch in network.launches if cost.model_for(launch) is None]
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
