# SPDX-License-Identifier: Apache-2.0
"""Time and power of kernels inside an engine, relative to models trained under a framework.

A launch's fixed time has one factor, the rest of a kernel's time another per element type. Images stay in the layout of tensor
cores: the copies into and out of it are subtracted, as a multiple of the time to move a convolution's images. Copies between
layers follow published engines (:mod:`jetdvfs.kernels.engine.ported_layer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from ..kinds import KINDS
from ..network import KernelInvocation, numel, tensor_bytes
from ..surface import Tails
from .region import ModelPair
from .roofline import DeviceRates, LaunchFloor
from .totals import BottleneckShares

Sort: TypeAlias = Literal["window", "product", "other", "copy"]
_CONVOLUTION_FEATURES = frozenset(["conv2d", "conv_nd"])
_PRODUCT_FEATURES = _CONVOLUTION_FEATURES | {"matmul", "attention"}
_COPIES = frozenset(["clone"])
_LEAST_LEFT = 0.25  # of a convolution, at least, after copies are subtracted


class EngineRates(Struct, frozen=True):
    """Factors from a framework to an engine, for time and power of kernels of one element type; raises ValueError.

    Attributes:
        floor: of the time of an almost empty launch.
        windows: of the further time of dense convolutions with a window.
        products, others: the same of other convolutions, matrix products and attention; and of other kernels.
        copies: of all the time of copies.
        layouts: multiple of dense convolutions' image time that is subtracted from them.
        product_power, other_power: of power above idle.
    """

    floor: float = 1.0
    windows: float = 1.0
    products: float = 1.0
    others: float = 1.0
    copies: float = 1.0
    layouts: float = 0.0
    product_power: float = 1.0
    other_power: float = 1.0

    def __post_init__(self) -> None:
        factors = [value for name, value in asdict(self).items() if name != "layouts"]
        if not (all(0 < factor < np.inf for factor in factors) and 0 <= self.layouts < np.inf):
            raise ValueError(f"expected factors that are positive, and layouts that are not negative, got {self}")


class EngineCosts(Struct, frozen=True):
    """Engine costs of a board: rates by element type, the narrowest last, which serves missing types.

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
        return self.rates.get(dtype) or list(self.rates.values())[-1]


def sort_of(kernel: KernelInvocation) -> Sort:
    if kernel.kind in _COPIES:
        return "copy"
    if _features(kernel) not in _PRODUCT_FEATURES:
        return "other"
    weight = kernel.params.get("weight")
    return "window" if _is_dense(kernel) and isinstance(weight, tuple) and numel(weight[2:]) > 1 else "product"


def without_bias(kernel: KernelInvocation) -> KernelInvocation:
    return replace(kernel, params={**kernel.params, "bias": False}) if kernel.params.get("bias") else kernel


def images_ms(kernel: KernelInvocation, emc_mhz: NDArray[Any], chip: DeviceRates) -> NDArray[np.float64]:
    """Time to move a dense convolution's input and output images once at each memory clock; 0 for other kernels."""
    elements = numel(kernel.inputs[0]) + numel(kernel.output) if _is_dense(kernel) else 0
    moved = tensor_bytes(elements, kernel.dtype)
    return np.asarray(moved / chip.bytes_per_emc_cycle / (np.asarray(emc_mhz, np.float64) * 1e3))


def time_in_engine(
    gpu_ms: NDArray[Any], floor_ms: NDArray[Any], images: NDArray[Any], sort: Sort, rates: EngineRates
) -> NDArray[Any]:
    """Time of one kernel in an engine, from its time and fixed launch time under a framework, and its :func:`images_ms`."""
    if sort == "copy":
        return np.asarray(rates.copies * gpu_ms)
    least = np.minimum(gpu_ms, floor_ms)
    beyond = {"window": rates.windows, "product": rates.products, "other": rates.others}[sort] * (gpu_ms - least)
    return np.asarray(rates.floor * least + np.maximum(beyond - rates.layouts * images, _LEAST_LEFT * beyond))


def power_in_engine(sort: Sort, rates: EngineRates) -> float:
    return rates.product_power if sort in ("window", "product") else rates.other_power


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
        images = images_ms(kernel, emc_mhz, chip).astype(np.float32)
        gpu_ms[row] = time_in_engine(gpu_ms[row], floor_ms, images, sort, rates)
        dynamic_mw[row] *= np.float32(power_in_engine(sort, rates))


def _is_dense(kernel: KernelInvocation) -> bool:
    return _features(kernel) in _CONVOLUTION_FEATURES and kernel.params.get("groups") == 1


def _features(kernel: KernelInvocation) -> str:
    row = KINDS.get(kernel.kind)
    served = row if row is None or row.features else KINDS.get(row.served_by)
    return "" if served is None else served.features
