# SPDX-License-Identifier: Apache-2.0
"""Time and power of kernels inside an engine, relative to models trained under a framework.

A launch's fixed time has one factor, the rest of a kernel's time another by its sort and element type. An engine's kernels
compute faster, but its memory does not, so transfers of weights and of activations are added, each as a multiple of the time
that the memory's bandwidth gives (:func:`.roofline.terms_ms`). Copies between layers follow published engines
(:mod:`jetdvfs.kernels.engine.ported_layer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from ..kinds import KINDS
from ..network import KernelInvocation, numel
from ..surface import Tails
from .narrower import measured_type
from .region import ModelPair
from .roofline import DeviceRates, LaunchFloor, activation_bytes, terms_ms
from .totals import BottleneckShares

Sort: TypeAlias = Literal["windows", "pointwise", "groups", "products", "others", "copies"]
"""Kernels of one factor, which :class:`EngineRates` names."""
SORTS: tuple[Sort, ...] = get_args(Sort)
_CONVOLUTION_FEATURES = frozenset(["conv2d", "conv_nd"])
_PRODUCT_FEATURES = frozenset(["matmul", "attention"])
_COPIES = frozenset(["clone"])
ADDED = ("weights", "activations")


class EngineRates(Struct, frozen=True, forbid_unknown_fields=True):
    """Factors from a framework to an engine, for time and power of kernels of one element type; raises ValueError.

    Attributes:
        floor: of the time of an almost empty launch.
        windows, pointwise, groups: of the further time of convolutions with a window, with 1x1 filters, and in groups.
        products, others: the same of matrix products and attention, and of other kernels.
        copies: of all the time of copies.
        weights, activations: multiples of the time to move a kernel's weights, and its inputs and output, that are added.
        product_power, other_power: of power above idle.
    """

    floor: float = 1.0
    windows: float = 1.0
    pointwise: float = 1.0
    groups: float = 1.0
    products: float = 1.0
    others: float = 1.0
    copies: float = 1.0
    weights: float = 0.0
    activations: float = 0.0
    product_power: float = 1.0
    other_power: float = 1.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (0 <= value < np.inf if name in ADDED else 0 < value < np.inf):
                raise ValueError(f"expected factors that are positive, and added multiples that are not negative, got {self}")


class EngineCosts(Struct, frozen=True):
    """Engine costs of a board: rates by element type, also for near types.

    Further members are the uncertainty of predicted engines, as in :class:`.board.BoardCost`.
    """

    rates: Mapping[str, EngineRates]
    own_scale: ModelPair
    latency_shares: BottleneckShares
    energy_shares: BottleneckShares
    sigma_latency: float
    sigma_energy: float
    tails: Tails | None

    def rates_of(self, dtype: str) -> EngineRates:
        near = measured_type(dtype, [*self.rates]) or "float16"
        return self.rates.get(dtype) or self.rates.get(near) or list(self.rates.values())[-1]


def sort_of(kernel: KernelInvocation) -> Sort:
    if kernel.kind in _COPIES:
        return "copies"
    row = KINDS.get(kernel.kind)
    served = row if row is None or row.features else KINDS.get(row.served_by)
    features = "" if served is None else served.features
    if features not in _CONVOLUTION_FEATURES:
        return "products" if features in _PRODUCT_FEATURES else "others"
    if kernel.params.get("groups") != 1:
        return "groups"
    weight = kernel.params.get("weight")
    return "windows" if isinstance(weight, tuple) and numel(weight[2:]) > 1 else "pointwise"


def without_bias(kernel: KernelInvocation) -> KernelInvocation:
    return replace(kernel, params={**kernel.params, "bias": False}) if kernel.params.get("bias") else kernel


def transfers_ms(kernel: KernelInvocation, emc_mhz: NDArray[Any], chip: DeviceRates) -> NDArray[np.float64]:
    """Time to move a kernel's weights, and its activations, once at n memory clocks, (2, n)."""
    _, (moved_ms,) = terms_ms([kernel], emc_mhz[None], emc_mhz[None], chip)
    share = activation_bytes(kernel) / max(kernel.bytes, 1)
    return np.array([(1 - share) * moved_ms, share * moved_ms])


def time_in_engine(
    gpu_ms: NDArray[Any], floor_ms: NDArray[Any], transfers: NDArray[Any], sort: Sort, rates: EngineRates
) -> NDArray[Any]:
    """Time of one kernel in an engine, from its time and fixed launch time under a framework, and its :func:`transfers_ms`."""
    if sort == "copies":
        return np.asarray(rates.copies * gpu_ms)
    least = np.minimum(gpu_ms, floor_ms)
    moved = rates.weights * transfers[0] + rates.activations * transfers[1]
    return np.asarray(rates.floor * least + getattr(rates, sort) * (gpu_ms - least) + moved)


def power_in_engine(sort: Sort, rates: EngineRates) -> float:
    return rates.other_power if sort in ("others", "copies") else rates.product_power


def run_in_engine(
    kernels: Sequence[KernelInvocation],
    gpu_ms: NDArray[np.float32],
    dynamic_mw: NDArray[np.float32],
    engines: EngineCosts,
    floor: LaunchFloor,
    chip: DeviceRates,
    clocks_mhz: tuple[NDArray[Any], NDArray[Any]],
) -> None:
    """Convert time and power of k kernels from a framework to an engine, in place.

    Args:
        gpu_ms, dynamic_mw: over the grid, ``(k, n_cpu, n_gpu, n_emc)``.
        floor: fixed time of a launch under the framework.
        clocks_mhz: of the GPU, ``(n_gpu,)``, and the memory, ``(n_emc,)``.
    """
    gpu_mhz, emc_mhz = clocks_mhz
    floor_ms = floor.ms(gpu_mhz).astype(np.float32)[None, :, None]
    for row, kernel in enumerate(kernels):
        sort, rates = sort_of(kernel), engines.rates_of(kernel.dtype)
        transfers = transfers_ms(kernel, emc_mhz, chip).astype(np.float32)
        gpu_ms[row] = time_in_engine(gpu_ms[row], floor_ms, transfers, sort, rates)
        dynamic_mw[row] *= np.float32(power_in_engine(sort, rates))
