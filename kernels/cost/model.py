# SPDX-License-Identifier: Apache-2.0
"""Surface of a network on a board, from kernel models and host times.

Kernel models predict a kernel's power and its distance from the roofline bound; each distinct kernel is swept over the grid
once. A network is then either a timeline of host and GPU or, as in MIRAGE (SEC '21, section 4), a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain, groupby
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ..errors import CostModelError
from ..execution import NO_OVERHEAD, Execution, FrameOverhead, check_execution
from ..fusion import products_of
from ..network import KernelInvocation, Network
from ..surface import Surface, Terms
from ..units import METHODS, Method
from .board import BoardCost, KernelModel, Regressor
from .engines import run_in_engine
from .execution import HostTimes, execution_note, host_times, memory_use
from .features import columns, feature_rows
from .guesses import Trust, guessed_share, guesses, trust_in, unmodelled_kinds
from .narrower import in_type, measured_type, narrowed
from .region import hold_batches
from .roofline import bound_ms, least_latency_ms, terms_ms
from .totals import UncertaintyGroup, add_up, common_variance, together_variance

__all__ = ["KernelCosts", "Timeline", "kernel_costs", "surface"]

# Boards of one kind always differ somewhat.
LEAST_SIGMA = 0.03


def terms(
    launches: NDArray[np.intp],
    gpu_ms: NDArray[np.float32],
    memory_share: NDArray[np.float32],
    host_ms: NDArray[np.float64],
    cost: BoardCost,
    own_sigma: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> Terms:
    """The latency terms of a network.

    Args:
        launches: of each distinct kernel.
        gpu_ms: its time over the grid, and ``memory_share``, the part of it due to traffic.
        host_ms: time to issue everything, broadcast over the grid.
        own_sigma: further uncertainty of latency and energy over the grid.
    """
    times = launches.astype(np.float32)
    whole_ms = np.einsum("k,kcge->cge", times, gpu_ms)
    memory_ms = np.einsum("k,kcge,kge->cge", times, gpu_ms, memory_share[:, 0])
    latency, energy = (float(sigma.mean()) for sigma in own_sigma)
    shares, power = cost.latency_shares, cost.energy_shares
    return Terms(
        compute_ms=np.maximum(whole_ms - memory_ms, np.float32(0)),
        memory_ms=memory_ms,
        host_ms=np.broadcast_to(host_ms, whole_ms.shape).astype(np.float32),
        compute_sigma=max(shares.compute, LEAST_SIGMA),
        memory_sigma=max(shares.memory, LEAST_SIGMA),
        host_sigma=max(shares.host, LEAST_SIGMA),
        all_sigma=max(latency, LEAST_SIGMA),
        idle_sigma=max(power.host, energy, LEAST_SIGMA),
        dynamic_sigma=max(power.compute, energy, LEAST_SIGMA),
    )


class Timeline(Struct, frozen=True, eq=False):
    """Timeline of an inference, over a grid.

    Attributes:
        latency_ms: from the first call to the end of host and GPU, shape ``(n_cpu, n_gpu, n_emc)``.
        critical: first launch from which the GPU never waits for the host; the number of launches if the host finishes last.
    """

    latency_ms: NDArray[np.floating[Any]]
    critical: NDArray[np.int32]


def play(host_ms: NDArray[np.float64], gpu_ms: NDArray[np.floating[Any]], order: NDArray[np.intp]) -> Timeline:
    """Play the recurrence, in the type of ``gpu_ms``: in float32 a thousand launches lose a few millionths of the latency.

    Args:
        host_ms: time until launch i is issued, and in the last row all calls, shape ``(launches + 1, n_cpu, n_emc)``.
        gpu_ms: GPU time of each distinct kernel, shape ``(kernels, n_cpu, n_gpu, n_emc)``.
        order: kernel of each launch, shape ``(launches,)``.
    """
    kernels, cpu, gpu, emc = gpu_ms.shape
    # The host's time has no GPU axis: with that axis first, the inner loops run over CPU x EMC without a break.
    durations = np.ascontiguousarray(gpu_ms.transpose(0, 2, 1, 3)).reshape(kernels, gpu, cpu * emc)
    issued = np.ascontiguousarray(host_ms, durations.dtype).reshape(len(order) + 1, cpu * emc)
    done = np.zeros((gpu, cpu * emc), durations.dtype)
    critical = np.zeros((gpu, cpu * emc), np.int32)
    waited = np.empty(done.shape, bool)
    for launch, kernel in enumerate(order):
        np.less(done, issued[launch], out=waited)
        np.maximum(done, issued[launch], out=done)
        np.copyto(critical, launch, where=waited)
        np.add(done, durations[kernel], out=done)
    np.less(done, issued[-1], out=waited)
    np.maximum(done, issued[-1], out=done)
    np.copyto(critical, len(order), where=waited)
    shape = (gpu, cpu, emc)
    return Timeline(
        np.ascontiguousarray(done.reshape(shape).transpose(1, 0, 2)),
        np.ascontiguousarray(critical.reshape(shape).transpose(1, 0, 2)),
    )


# Assumed share of the roofline bound that a kernel without a model reaches, and its least GPU cycles.
UNMODELLED_EFFICIENCY = 0.5
UNMODELLED_CYCLES = 4000.0

_LARGEST_LOG = np.float32(80)  # its exponential, times a bound, is still a float32


Each: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


class KernelCosts(Struct, frozen=True, eq=False):
    """Costs of a network's k distinct kernels over the grid.

    Attributes:
        kernels: grouped by model, then by uncertainty, in order of first launch.
        order: kernel of each launch, shape ``(launches,)``.
        models: each run of kernels with its model, or None.
        trust: reliability of each kernel's figures.
        gpu_ms, dynamic_mw: GPU time, and power above idle meanwhile, shape ``(k, n_cpu, n_gpu, n_emc)``.
    """

    kernels: tuple[KernelInvocation, ...]
    order: NDArray[np.intp]
    models: tuple[tuple[KernelModel | None, slice], ...]
    trust: tuple[Trust, ...]
    gpu_ms: NDArray[np.float32]
    dynamic_mw: NDArray[np.float32]


def kernel_costs(network: Network, cost: BoardCost, each: Each = map) -> KernelCosts:
    """Time and power of each distinct kernel of a network at every configuration.

    ``each`` maps over the models, the most frequent first; their sweeps are independent and release Python's lock.

    Raises:
        CostModelError: nothing is launched, a kernel does not fit its kind's features, or a prediction is not finite.

    Examples:
        >>> cost = jetdvfs.load_profile("agx-xavier-sim").bundle.cost
        >>> costs = kernel_costs(jetdvfs.decompose("model.pt", "1x3x224x224"), cost)
        >>> len(costs.kernels)
        28
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
    trust = {kernel.signature: trust_in(kernel, cost) for kernel in distinct.values()}
    for _, own in served.values():
        own.sort(key=lambda kernel: trust[kernel.signature][:2])
    kernels = tuple(chain.from_iterable(own for _, own in served.values()))
    position = {kernel.signature: row for row, kernel in enumerate(kernels)}
    ends = accumulate(len(own) for _, own in served.values())
    costs = KernelCosts(
        kernels=kernels,
        order=np.array([position[launch.signature] for launch in launches], np.intp),
        models=tuple((model, slice(end - len(own), end)) for (model, own), end in zip(served.values(), ends, strict=True)),
        trust=tuple(trust[kernel.signature] for kernel in kernels),
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
    if cost.gpu_share is not None and cost.gpu_share < 1:
        # The same work takes the same energy above idle.
        levels = cost.grid.levels_mhz()
        chips = (cost.chip_times(1 / cost.gpu_share), cost.chip)
        whole, part = (bound_ms(costs.kernels, levels, chip, cost.floor)[:, :1] for chip in chips)
        np.multiply(costs.dynamic_mw, np.float32(whole / part), out=costs.dynamic_mw)
    if cost.in_engine and cost.engines is not None:
        clocks_mhz = cost.grid.levels_mhz()[1:]
        run_in_engine(costs.kernels, costs.gpu_ms, costs.dynamic_mw, cost.engines, cost.floor, cost.chip, clocks_mhz)
        _fall_with_clocks(costs.gpu_ms)
    return costs


def surface(
    network: Network,
    cost: BoardCost,
    method: Method = "timeline",
    each: Each = map,
    *,
    execution: str | None = None,
    frame_overhead: FrameOverhead = NO_OVERHEAD,
    gpu_share: float | None = 1.0,
) -> Surface:
    """Latency, power and energy of one inference at every configuration of the board.

    Args:
        method: ``timeline`` charges idle power for all time, the host's active power for its issue time, and each kernel's
            power above idle for its GPU time. ``sum`` adds kernel times and energies, as in MIRAGE, without host costs.
        execution: by default that of the launches' list.
        frame_overhead: frame overhead; ignored with ``sum``.
        gpu_share: part of the GPU that is on, None if unknown (:meth:`.board.BoardCost.gated`).

    Raises:
        CostModelError: as :func:`kernel_costs`; or an unknown method, execution or part.

    Examples:
        >>> cost = jetdvfs.load_profile("agx-xavier-sim").bundle.cost
        >>> predicted = surface(jetdvfs.decompose("model.pt", "1x3x224x224"), cost)
        >>> predicted.latency_ms.shape
        (29, 14, 9)
    """
    if method not in METHODS:
        raise CostModelError(f"method {method!r}; valid: {', '.join(METHODS)}")
    way = check_execution(execution, network)
    cost = cost.gated(gpu_share).run_by(way)
    return assemble(network, cost, kernel_costs(network, cost, each), method, way, frame_overhead)


def assemble(
    network: Network,
    cost: BoardCost,
    costs: KernelCosts,
    method: Method,
    execution: Execution,
    frame_overhead: FrameOverhead = NO_OVERHEAD,
) -> Surface:
    idle_mw = cost.idle_mw.astype(np.float64)
    launches = np.bincount(costs.order)
    host_variance = np.zeros(())
    if method == "timeline":
        host = host_times(network, cost, execution, used_memory(costs, cost), frame_overhead)
        costs = on_host(costs, host)
        played = play(host.issued_ms, costs.gpu_ms, costs.order)
        latency_ms = played.latency_ms.astype(np.float64) + host.once_ms[:, None, :]
        critical = played.critical
        issuing_ms = (host.issued_ms[-1] + host.once_ms)[:, None, :]
        host_mj = cost.host_active_mw.astype(np.float64)[:, None, None] * issuing_ms / 1e3
        host_variance = host.variance[:, None, :]
    else:
        latency_ms = np.einsum("k,kcge->cge", launches.astype(np.float32), costs.gpu_ms).astype(np.float64)
        critical = np.zeros(cost.grid.shape, np.int32)
        host_mj = np.zeros(cost.grid.shape)
        issuing_ms = np.zeros((1, 1, 1))
    memory_share = _memory_share(costs, cost)
    totals = add_up(costs.gpu_ms, costs.dynamic_mw, memory_share, tuple(_groups(costs)), costs.order, critical, idle_mw)
    energy_mj = idle_mw * latency_ms / 1e3 + host_mj + totals.dynamic_mj
    waited_ms = np.maximum(latency_ms - totals.path_ms, 0)
    own_latency, own_energy = cost.own_scale.time**2 * totals.latency_variance, cost.own_scale.power**2 * totals.energy_variance
    latency_variance = own_latency + host_variance
    latency_variance = latency_variance + common_variance(cost.latency_shares, waited_ms, totals.path_ms, totals.memory_ms)
    energy_variance = own_energy + host_variance * (idle_mw / 1e3) ** 2
    energy_variance = energy_variance + common_variance(
        cost.energy_shares, idle_mw * waited_ms / 1e3 + host_mj, totals.energy_mj, totals.memory_mj
    )
    latency_guessed = together_variance(totals.together_ms, latency_ms)
    energy_guessed = together_variance(totals.together_mj, energy_mj) + together_variance(totals.together_power_mj, energy_mj)
    own_sigma = (
        np.sqrt(own_latency / latency_ms**2 + latency_guessed + cost.sigma_latency**2),
        np.sqrt(own_energy / energy_mj**2 + energy_guessed + cost.sigma_energy**2),
    )
    return Surface(
        grid=cost.grid,
        latency_ms=latency_ms,
        power_mw=energy_mj / latency_ms * 1e3,
        energy_mj=energy_mj,
        idle_mw=idle_mw,
        latency_sigma=np.sqrt(latency_variance / latency_ms**2 + latency_guessed + cost.sigma_latency**2),
        energy_sigma=np.sqrt(energy_variance / energy_mj**2 + energy_guessed + cost.sigma_energy**2),
        method=method,
        guessed_share=guessed_share(launches, costs.gpu_ms, costs.trust),
        guessed=guesses(costs.kernels, launches, costs.gpu_ms, costs.trust),
        unmodelled=unmodelled_kinds(network, cost.model_for),
        boundary=network.boundary,
        leakage_mw=np.zeros(()) if cost.leakage_mw is None else cost.leakage_mw.astype(np.float64),
        least_ms=_least_ms(costs, launches, cost),
        heat=cost.heat,
        tails=cost.tails,
        execution=execution,
        execution_note=execution_note(network, cost, execution) if method == "timeline" or cost.gpu_share != 1 else "",
        terms=terms(launches, costs.gpu_ms, memory_share, issuing_ms, cost, own_sigma),
    )


def _sweeps(model: KernelModel, costs: KernelCosts, run: slice, cost: BoardCost) -> tuple[Callable[[], None], ...]:
    levels = cost.grid.levels_mhz()
    kernels = costs.kernels[run]
    features = feature_rows(model.kind, [cost.modelled_as(kernel) for kernel in kernels])
    if model.region is not None:
        hold_batches(model.kind, features, model.region)
    if model.features:
        features = np.ascontiguousarray(features[:, columns(model.kind, model.features)])

    def swept(regressor: Regressor, out: NDArray[np.float32]) -> None:
        logarithm = regressor.sweep(features, levels)
        if not logarithm.max() < _LARGEST_LOG:
            raise CostModelError(f"the {model.kind} model predicts times or powers that are not finite numbers")
        np.exp(logarithm, out=out)

    def time() -> None:
        swept(model.time, costs.gpu_ms[run])
        gpu_ms = costs.gpu_ms[run]
        gpu_ms *= np.float32(bound_ms(kernels, levels, cost.chip, cost.floor)[:, :1])  # the same at every CPU clock
        _fall_with_clocks(gpu_ms)

    def power() -> None:
        swept(model.power, costs.dynamic_mw[run])

    return time, power


def _fall_with_clocks(gpu_ms: NDArray[np.float32]) -> None:
    """Let no time rise with a clock, in place: trees trained on few kernels may predict that.

    Each becomes the geometric mean of the least at lower clocks and the greatest at higher ones.
    """
    axes = (1, 2, 3)
    backwards = (slice(None), *[slice(None, None, -1)] * len(axes))
    above = gpu_ms[backwards].copy()
    for axis in axes:  # level by level: a third of the time of ufunc.accumulate along short axes
        below, beyond = np.moveaxis(gpu_ms, axis, 0), np.moveaxis(above, axis, 0)
        for level in range(1, len(below)):
            np.minimum(below[level], below[level - 1], out=below[level])
            np.maximum(beyond[level], beyond[level - 1], out=beyond[level])
    gpu_ms *= above[backwards]
    np.sqrt(gpu_ms, out=gpu_ms)


def _length(run: slice) -> int:
    return int(run.stop - run.start)


def _bound_unmodelled(costs: KernelCosts, run: slice, cost: BoardCost) -> None:
    levels = cost.grid.levels_mhz()
    bound = np.float32(bound_ms(costs.kernels[run], levels, cost.chip, cost.floor)[:, :1])
    modelled = np.ones(len(costs.kernels), bool)
    modelled[run] = False
    costs.gpu_ms[run] = np.maximum(bound / UNMODELLED_EFFICIENCY, UNMODELLED_CYCLES / (1e3 * levels[1][:, None]))
    costs.dynamic_mw[run] = _usual_dynamic_mw(costs.gpu_ms[modelled], costs.dynamic_mw[modelled], cost)
    for row in range(run.start, run.stop):
        _as_measured(costs, row, cost)
        _as_products(costs, row, cost)


def _as_measured(costs: KernelCosts, row: int, cost: BoardCost) -> None:
    kernel = costs.kernels[row]
    model = cost.kind_model(kernel)
    measured = measured_type(kernel.dtype, model.dtypes) if model is not None else None
    if model is None or measured is None:
        return
    wide = in_type(kernel, measured)
    of_one = replace(costs, kernels=(wide,), gpu_ms=costs.gpu_ms[row : row + 1], dynamic_mw=costs.dynamic_mw[row : row + 1])
    for sweep in _sweeps(model, of_one, slice(0, 1), cost):
        sweep()
    clocks_mhz = cost.grid.levels_mhz()[1:]
    costs.gpu_ms[row] = narrowed(kernel, wide, costs.gpu_ms[row], clocks_mhz, cost.chip, cost.floor)
    _fall_with_clocks(costs.gpu_ms[row : row + 1])


def _as_products(costs: KernelCosts, row: int, cost: BoardCost) -> None:
    """Cost of a recurrent layer: its products, one after another."""
    products = products_of(costs.kernels[row])
    if not products or not all(cost.model_for(product) for product, _ in products):
        return
    alone = kernel_costs(Network("", (), tuple(product for product, _ in products)), replace(cost, in_engine=False))
    gpu_ms = np.array([times for _, times in products], np.float32)[:, None, None, None] * alone.gpu_ms[alone.order]
    costs.gpu_ms[row] = gpu_ms.sum(axis=0)
    costs.dynamic_mw[row] = (gpu_ms * alone.dynamic_mw[alone.order]).sum(axis=0) / costs.gpu_ms[row]


def used_memory(costs: KernelCosts, cost: BoardCost) -> NDArray[np.float64]:
    """Share of the memory's bandwidth that the kernels use, ``(n_cpu, n_emc)``."""
    if not len(costs.order):
        return np.zeros((cost.grid.shape[0], cost.grid.shape[2]))
    _, gpu_mhz, emc_mhz = cost.grid.levels_mhz()
    memory_ms = terms_ms(costs.kernels, gpu_mhz[None, None, :, None], emc_mhz[None, None, None, :], cost.chip)[1]
    return memory_use(np.bincount(costs.order), costs.gpu_ms, memory_ms)


def on_host(costs: KernelCosts, host: HostTimes) -> KernelCosts:
    """A network's kernels while host calls use the memory too: each waits, at idle power, in proportion to its traffic."""
    if not np.any(host.taken_ms):
        return costs
    moved = np.array([max(kernel.bytes, 1) for kernel in costs.kernels], np.float64)
    part = moved / (np.bincount(costs.order) @ moved)
    taken_ms = np.einsum("k,ce->kce", part, host.taken_ms).astype(np.float32)
    gpu_ms = costs.gpu_ms + taken_ms[:, :, None, :]
    return replace(costs, gpu_ms=gpu_ms, dynamic_mw=costs.dynamic_mw * (costs.gpu_ms / gpu_ms))


def _least_ms(costs: KernelCosts, launches: NDArray[np.intp], cost: BoardCost) -> NDArray[np.float64]:
    _, gpu_mhz, emc_mhz = cost.grid.levels_mhz()
    least_ms = least_latency_ms(costs.kernels, launches, gpu_mhz[:, None], emc_mhz[None, :], cost.chip)
    return np.broadcast_to(least_ms, cost.grid.shape)


def _memory_share(costs: KernelCosts, cost: BoardCost) -> NDArray[np.float32]:
    _, gpu_mhz, emc_mhz = cost.grid.levels_mhz()
    clocks_mhz = gpu_mhz[None, None, :, None], emc_mhz[None, None, None, :]
    compute_ms, memory_ms = terms_ms(costs.kernels, *clocks_mhz, cost.chip, cost.floor.tile)
    return np.asarray(memory_ms / (compute_ms + memory_ms), np.float32)


def _groups(costs: KernelCosts) -> Iterator[UncertaintyGroup]:
    start = 0
    for (sigma, more), run in groupby(costs.trust, key=lambda trust: trust[:2]):
        end = start + len(list(run))
        yield UncertaintyGroup(slice(start, end), *sigma, *more)
        start = end


def _usual_dynamic_mw(gpu_ms: NDArray[np.float32], dynamic_mw: NDArray[np.float32], cost: BoardCost) -> NDArray[np.float32]:
    """Power above idle of the network's other kernels, averaged over their time; with none modelled, as much again as idle."""
    if not len(gpu_ms):
        return np.asarray(cost.idle_mw, np.float32)
    return np.asarray((gpu_ms * dynamic_mw).sum(axis=0) / gpu_ms.sum(axis=0), np.float32)
