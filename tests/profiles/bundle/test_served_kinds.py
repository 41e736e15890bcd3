# SPDX-License-Identifier: Apache-2.0
"""What shipped profiles say of pointwise kernels of all kinds and types, of which they were trained on some."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from jetdvfs.kernels.cost.guesses import trust_in
from jetdvfs.kernels.cost.model import kernel_costs
from jetdvfs.kernels.kinds import ELEMENTWISE, KINDS, flops, served_by
from jetdvfs.kernels.network import DTYPE_BYTES, KernelInvocation, Network, numel
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.twin.silicon.chip import Clocks
from jetdvfs.profiles.twin.silicon.silicon import Silicon

_FAR = 0.35
_SHAPES = ((1, 64, 64, 64), (1, 256, 32, 32), (1, 197, 768), (1, 128, 128, 128))
_OPERANDS = {"upsample_bilinear2d": 1, "upsample_bicubic2d": 1, "addcmul": 3}


def pointwise(kind: str, dtype: str, shape: tuple[int, ...], operands: int) -> KernelInvocation:
    inputs = (shape,) * operands
    moved = (operands + 1) * numel(shape) * DTYPE_BYTES[dtype]
    return KernelInvocation(kind, "", inputs, shape, dtype, {}, flops(kind, inputs, shape, {}), moved)


@pytest.mark.parametrize("name", ["agx-xavier-sim", "agx-orin-64gb-sim", "nano-sim", "tx2-sim"])
def test_pointwise_kernels_are_predicted_well_or_said_to_be_guessed(name: str) -> None:
    bundle = load_bundle(name)
    silicon = Silicon(None, bundle.manifest.board)
    operands = {kind: _OPERANDS.get(kind, KINDS[kind].operands) for kind in sorted(served_by(ELEMENTWISE))}
    calls = [
        pointwise(kind, dtype, shape, operands[kind])
        for kind, dtype, shape in product(operands, ("float32", "float16", "int8"), _SHAPES)
        if operands[kind] and not KINDS[kind].profiled
    ]
    costs = kernel_costs(Network("pointwise", (), tuple(calls)), bundle.cost)
    grid = bundle.cost.grid
    cpu, gpu, emc = (np.array([size - 1, size // 2]) for size in grid.shape)
    places = [grid.configuration((int(c), int(g), int(e))) for c, g, e in zip(cpu, gpu, emc, strict=True)]
    true_ms = 1e3 * silicon.kernels(calls, Clocks.of(places), cold=True).seconds
    predicted_ms = costs.gpu_ms[costs.order][:, cpu, gpu, emc]
    off = np.abs(np.log(predicted_ms / true_ms)).mean(axis=1)
    trust = [trust_in(call, bundle.cost) for call in calls]
    guessed = np.array([bool(each.guessed) for each in trust])
    assert 0.2 < guessed.mean() < 0.9
    assert {"mish", "upsample_bicubic2d"} <= {call.kind for call, told in zip(calls, guessed, strict=True) if told}
    assert (off < _FAR)[~guessed].mean() > 0.98
    sigma = np.array([np.hypot(each.sigma.time, each.more.time) for each in trust])
    assert (off < 2 * sigma)[guessed].mean() > 0.8
