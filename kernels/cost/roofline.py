# SPDX-License-Identifier: Apache-2.0
"""The roofline bound: the least time of a kernel on a chip of given rates (Williams et al., CACM 52(4), 2009).

``max(flops / (flops per cycle x GPU clock), bytes / (bytes per cycle x memory clock))``, each byte moved once, after the time
of an almost empty launch, and a product's tiles whole (:class:`LaunchFloor`). Kernel models predict the distance from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from ..kinds import KINDS
from ..network import PACKED_TYPES, KernelInvocation, numel, tensor_bytes

#: Real numbers in 8 bits or fewer are multiplied as 8-bit integers, or in half precision, which bounds no tighter.
_RATED_AS = {"qint8": "int8", "quint8": "int8", **dict.fromkeys(PACKED_TYPES, "int8")}
_CYCLES_PER_MS = 1e3  # of a 1 MHz clock
CACHED_BYTES = 8 << 20
"""Assumed last-level cache of an undescribed chip; those of Jetsons up to Orin have 0.25 to 4 MiB."""
_WINOGRAD = 2.25


class LaunchFloor(Struct, frozen=True, omit_defaults=True):
    """Least work of a launch, from the campaign.

    Attributes:
        us, gpu_cycles: time of an almost empty launch, their sum.
        tile: rows and columns of a product's tiles (NVIDIA, "Matrix Multiplication Background").
    """

    us: float = 0.0
    gpu_cycles: float = 0.0
    tile: int = 1

    def ms(self, gpu_mhz: ArrayLike) -> NDArray[np.float64]:
        return np.asarray(self.us / 1e3 + self.gpu_cycles / (np.asarray(gpu_mhz, np.float64) * _CYCLES_PER_MS))


NO_FLOOR = LaunchFloor()


class DeviceRates(Protocol):
    """Datasheet rates of a chip: operations per GPU cycle by element type, DRAM bytes per memory-clock cycle."""

    @property
    def flops_per_gpu_cycle(self) -> Mapping[str, float]: ...

    @property
    def bytes_per_emc_cycle(self) -> float: ...


def terms_ms(
    invocations: Sequence[KernelInvocation], gpu_mhz: ArrayLike, emc_mhz: ArrayLike, chip: DeviceRates, tile: int = 1
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Least time in ms of each invocation's operations, and of its transfers, at its own clocks.

    Args:
        invocations: n kernel invocations. Types without a rate count at the float32 rate.
        gpu_mhz, emc_mhz: clocks in MHz that broadcast against ``(n, ...)``.
        chip: rates; ``tf32`` is for convolutions in single precision, which libraries run on tensor cores if present.
    """
    rates = chip.flops_per_gpu_cycle
    gpu, emc = np.asarray(gpu_mhz, np.float64), np.asarray(emc_mhz, np.float64)
    column = (len(invocations),) + (1,) * max(gpu.ndim - 1, emc.ndim - 1, 0)
    own = [rates.get(_rated_as(call), rates["float32"]) for call in invocations]
    work = [call.flops * _whole_tiles(call, tile) if tile > 1 else call.flops for call in invocations]
    cycles = np.array([flops / rate for flops, rate in zip(work, own, strict=True)]).reshape(column)
    # One byte at least: a bound of zero would have no logarithm.
    transfers = np.array([max(call.bytes, 1) / chip.bytes_per_emc_cycle for call in invocations]).reshape(column)
    return cycles / (gpu * _CYCLES_PER_MS), transfers / (emc * _CYCLES_PER_MS)


def _whole_tiles(call: KernelInvocation, tile: int) -> float:
    """Outputs of a matrix product's whole tiles, relative to its own."""
    rows, columns = call.params.get("m"), call.params.get("n")
    product = call.kind in KINDS and KINDS[call.kind].features == "matmul"
    if not (product and isinstance(rows, int) and isinstance(columns, int) and rows * columns > 0):
        return 1.0
    return math.ceil(rows / tile) * math.ceil(columns / tile) * tile**2 / (rows * columns)


def least_latency_ms(
    invocations: Sequence[KernelInvocation], launches: NDArray[Any], gpu_mhz: ArrayLike, emc_mhz: ArrayLike, chip: DeviceRates
) -> NDArray[np.float64]:
    """Time in ms that no execution of a network can undercut, at each pair of clocks, which broadcast.

    Weaker than :func:`bound_ms`: no launch has a fixed time, single precision counts at TF32's rate, dense 3x3 convolutions of
    stride 1 may use fewer multiplications (Winograd's F(2x2, 3x3): 2.25 times; Lavin and Gray, CVPR 2016), and a cache of
    :data:`CACHED_BYTES` may hold activations between kernels and weights between frames. A weight that equal kernels may share
    counts once.
    """
    rates = chip.flops_per_gpu_cycle
    gpu, emc = np.asarray(gpu_mhz, np.float64), np.asarray(emc_mhz, np.float64)
    total = np.zeros(np.broadcast_shapes(gpu.shape, emc.shape))
    activations = [activation_bytes(call) for call in invocations]
    weights = [call.bytes - moved for call, moved in zip(invocations, activations, strict=True)]
    loaded = max(sum(weights) - CACHED_BYTES, 0) / max(sum(weights), 1)
    for call, count, moved, weight in zip(invocations, launches, activations, weights, strict=True):
        rated = "tf32" if call.dtype == "float32" else _RATED_AS.get(call.dtype, call.dtype)
        flops = call.flops / (_WINOGRAD if _may_be_winograd(call) else 1.0)
        compute_ms = flops / (max(rates.get(rated, 0.0), rates["float32"]) * gpu * _CYCLES_PER_MS)
        transferred = loaded * weight + max(moved - 2 * CACHED_BYTES, 0)
        memory_ms = transferred / (chip.bytes_per_emc_cycle * emc * _CYCLES_PER_MS)
        total = total + float(count) * np.maximum(compute_ms, memory_ms)
    return total


def activation_bytes(call: KernelInvocation) -> int:
    """Bytes of inputs and output among ``call.bytes``; the rest are weights."""
    return min(tensor_bytes(sum(numel(shape) for shape in (*call.inputs, call.output)), call.dtype), call.bytes)


def _may_be_winograd(call: KernelInvocation) -> bool:
    weight, groups = call.params.get("weight"), call.params.get("groups", 1)
    dense = call.kind == "conv2d" and isinstance(weight, tuple) and weight[2:] == (3, 3) and groups == 1
    return dense and all(_is_one(call.params.get(name, 1)) for name in ("stride", "dilation"))


def _is_one(value: Any) -> bool:
    return all(item == 1 for item in value) if isinstance(value, (list, tuple)) else bool(value == 1)


def _rated_as(call: KernelInvocation) -> str:
    if call.dtype == "float32" and call.kind.startswith("conv"):
        return "tf32"
    return _RATED_AS.get(call.dtype, call.dtype)


def bound_at_ms(
    invocations: Sequence[KernelInvocation],
    gpu_mhz: ArrayLike,
    emc_mhz: ArrayLike,
    chip: DeviceRates,
    floor: LaunchFloor = NO_FLOOR,
) -> NDArray[np.float64]:
    """Bound in ms of each invocation at its own clocks: the larger of :func:`terms_ms`, plus the floor."""
    terms = terms_ms(invocations, gpu_mhz, emc_mhz, chip, floor.tile)
    bound: NDArray[np.float64] = np.maximum(*terms) + floor.ms(gpu_mhz)
    return bound


def bound_ms(
    invocations: Sequence[KernelInvocation],
    grid_levels: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    chip: DeviceRates,
    floor: LaunchFloor = NO_FLOOR,
) -> NDArray[np.float64]:
    """Bound in ms of each invocation over a whole grid, in MHz: a read-only array of shape ``(n, n_cpu, n_gpu, n_emc)``."""
    cpu, gpu, emc = (np.asarray(axis, np.float64) for axis in grid_levels)
    bound = bound_at_ms(invocations, gpu[None, None, :, None], emc[None, None, None, :], chip, floor)
    return np.broadcast_to(bound, (len(invocations), len(cpu), len(gpu), len(emc)))
