# SPDX-License-Identifier: Apache-2.0
"""Times of kernels in unmeasured element types, from a measured type.

A kernel's time scales with its roofline bound relative to the measured type's: fewer bits are never slower, except for
unpacking. Packed weights are multiplied in half precision, after unpacking; both overlap with their transfer as in tokens
measured on real boards (`jetdvfs-lab compare tokens`): third powers add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ..network import DTYPE_BYTES, PACKED_TYPES, KernelInvocation, element_bytes, numel, tensor_bytes
from .roofline import DeviceRates, LaunchFloor, terms_ms

_HALVES = ("float16", "bfloat16")
EIGHT_BITS = frozenset(("int8", "uint8", "qint8", "quint8"))
OVERLAP = 3.0
"""Power to which partly overlapping times add up."""

#: Instructions per weight of a product, by element type: loads, unpacking, products of four bytes and scales, counted in
#: llama.cpp's kernels for one column (``vecdotq.cuh``). A saturating difference of four bytes, one per four weights in Q6_K,
#: counts as the eight that GPUs make of it. Edge-LLM's kernels are not public: as Q4_K.
INSTRUCTIONS: Mapping[str, float] = {"q8_0": 2.1, "iq4_xs": 2.8, "q4_K": 3.6, "q5_K": 4.8, "q6_K": 6.75, "int4": 3.6}
_USUAL_INSTRUCTIONS, _OF_EIGHT_BITS = 3.6, 2.1


def measured_type(dtype: str, measured: Sequence[str]) -> str | None:
    """The measured type that determines another's time; None if none has as many bits."""
    if dtype in _HALVES:
        wider: Sequence[str] = (*_HALVES, "float32")
    elif dtype in EIGHT_BITS or dtype in PACKED_TYPES:
        wider = ("int8", *_HALVES, "float32") if dtype in EIGHT_BITS else (*_HALVES, "float32")
    else:
        return None
    return next((each for each in wider if each in measured and each != dtype), None)


def in_type(call: KernelInvocation, dtype: str) -> KernelInvocation:
    """The same work in another element type; for a packed type only the weights change, otherwise all traffic."""
    if call.dtype in PACKED_TYPES:
        weights = _weights(call)
        moved = call.bytes - tensor_bytes(weights, call.dtype) + weights * DTYPE_BYTES[dtype]
    else:
        moved = round(call.bytes * DTYPE_BYTES[dtype] / element_bytes(call.dtype))
    return replace(call, dtype=dtype, bytes=max(moved, 1))


def narrowed(
    call: KernelInvocation,
    wide: KernelInvocation,
    wide_ms: NDArray[np.float32],
    clocks_mhz: tuple[NDArray[Any], NDArray[Any]],
    chip: DeviceRates,
    floor: LaunchFloor,
) -> NDArray[np.float64]:
    """Time of a kernel in ms, from ``wide_ms``, ``(n_cpu, n_gpu, n_emc)``, of the same work in a wider type."""
    gpu, emc = np.asarray(clocks_mhz[0], np.float64)[:, None], np.asarray(clocks_mhz[1], np.float64)[None, :]
    packed = call.dtype in PACKED_TYPES
    narrow = packed or call.dtype in EIGHT_BITS
    calls = [call, wide, in_type(call, "float16") if narrow else call]
    compute_ms, memory_ms = terms_ms(calls, gpu[None], emc[None], chip, floor.tile)
    # Packed weights, and integers on a chip without a rate for them, are multiplied in half precision.
    own_ms = compute_ms[2] if packed else np.minimum(compute_ms[0], compute_ms[2])
    least_ms = np.maximum(own_ms, memory_ms[0]) + floor.ms(gpu)
    times = np.asarray(wide_ms, np.float64) * np.minimum(
        least_ms / (np.maximum(compute_ms[1], memory_ms[1]) + floor.ms(gpu)), 1.0
    )
    if not packed:
        return np.asarray(times)
    instructions = INSTRUCTIONS.get(call.dtype, _OF_EIGHT_BITS if element_bytes(call.dtype) >= 1 else _USUAL_INSTRUCTIONS)
    lanes = chip.flops_per_gpu_cycle["float32"] / 2
    unpacking_ms = instructions * _weights(call) / (lanes * gpu * 1e3)
    return np.asarray((times**OVERLAP + unpacking_ms**OVERLAP) ** (1 / OVERLAP))


def _weights(call: KernelInvocation) -> int:
    weight = call.params.get("weight")
    if isinstance(weight, tuple):
        return numel(weight)
    sizes = [value for name in ("k", "n", "experts") if isinstance(value := call.params.get(name, 1), int)]
    return numel(sizes) if "k" in call.params else 0
