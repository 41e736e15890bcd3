# SPDX-License-Identifier: Apache-2.0
"""Products with fused work in their kernels, on tensor cores if possible."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ....kernels.network import KernelInvocation
from .chip import Chip, ChipDetails, EngineRuntime
from .conv import convolution
from .kinds import COSTS, flat
from .passes import CodePass, column, element
from .products import matmul

MEMBERS = {"relu": ("relu",), "add_relu": ("add", "relu")}
"""Members of fused kinds after a convolution."""
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
PRODUCTS = ("matmul", *CONVOLUTIONS)


def product_of(kind: str) -> str:
    """Plain product of a fused kind; empty for other kinds."""
    if kind in PRODUCTS:
        return kind
    name, _, members = kind.partition("_")
    return name if name in CONVOLUTIONS and members in MEMBERS else ""


def epilogue(call: KernelInvocation) -> tuple[str, ...]:
    listed = call.params.get("epilogue")
    if isinstance(listed, str):
        return tuple(filter(None, listed.split("+")))
    return MEMBERS.get(call.kind.partition("_")[2], ()) if product_of(call.kind) else ()


class Products(Struct, frozen=True):
    """Products of one chip under a framework, or under an engine."""

    chip: Chip
    detail: ChipDetails
    engine: EngineRuntime | None

    def passes(self, kind: str, calls: Sequence[KernelInvocation]) -> list[CodePass]:
        if kind == "matmul":
            return self._finished(matmul(self.chip, calls), calls, bias=0)
        images = [flat(call) if kind != "conv2d" else call for call in calls]
        tensor = np.array([call.dtype in self.detail.tensor_types or self.chip.tensor_cores for call in calls])
        chips = {cores: replace(self.chip, tensor_cores=cores) for cores in np.unique(tensor).tolist()}
        parts = [convolution(chip, images, innermost=self.engine is not None) for chip in chips.values()]
        merged = parts[0] if len(parts) == 1 else [one.merged(tensor, other) for one, other in zip(*parts, strict=True)]
        return self._finished([self._narrow(work, calls, tensor) for work in merged], calls, bias=len(merged) - 1)

    def _narrow(self, work: CodePass, calls: Sequence[KernelInvocation], tensor: NDArray[np.bool_]) -> CodePass:
        narrow = np.array([call.dtype in self.detail.narrow_types for call in calls]) & ~tensor
        if not narrow.any():
            return work
        rate = column(calls, lambda call: self.chip.rate(call.dtype).matrix)
        size = column(calls, element) / 4.0
        faster, bytes_each = np.where(narrow, 1.0 / rate, 1.0), np.where(narrow, size, 1.0)
        return replace(
            work,
            cycles=work.cycles * faster,
            operations=work.operations * faster,
            l2_bytes=work.l2_bytes * bytes_each,
            dram_bytes=work.dram_bytes * bytes_each,
            cold_bytes=work.cold_bytes * bytes_each,
        )

    def _finished(self, passes: list[CodePass], calls: Sequence[KernelInvocation], bias: int) -> list[CodePass]:
        ends = [epilogue(call) for call in calls]
        fused = np.array([bool(end) or self.engine is not None for end in ends])
        if self.engine is not None:
            rates, moved = self.engine.rate, self.engine.traffic
            rate = column(calls, lambda call: rates.get(call.dtype, rates["float32"]))
            traffic = column(calls, lambda call: moved.get(call.dtype, 1.0))
            passes = [
                replace(one, cycles=one.cycles * rate, l2_bytes=one.l2_bytes * traffic, dram_bytes=one.dram_bytes * traffic)
                for one in passes
            ]
        if not fused.any():
            return passes
        outputs = column(calls, lambda call: prod(call.output))
        work = np.array([sum(COSTS[kind] for kind in end) for end in ends]) * outputs
        others = column(calls, lambda call: sum(prod(shape) for shape in call.inputs[1:]))
        read = np.where(fused, others, 0.0) * column(calls, element)
        main = 1 if calls[0].kind == "matmul" else 2
        result = []
        for number, one in enumerate(passes):
            if number == bias:
                one = replace(one, runs=one.runs & ~fused)
            elif number == main:
                one = replace(
                    one,
                    cycles=one.cycles + work / self.chip.lanes,
                    operations=one.operations + work,
                    l2_bytes=one.l2_bytes + read,
                    dram_bytes=one.dram_bytes + read * self.chip.missing(read),
                )
            result.append(one)
        return result
