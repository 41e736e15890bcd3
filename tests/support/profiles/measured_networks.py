# SPDX-License-Identifier: Apache-2.0
"""Small networks with known figures, for tests of whole-network predictors: latency by a roofline, memory by the graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jetdvfs.kernels.network import KernelInvocation, Network, ParamValue, TensorSpec
from jetdvfs.profiles.lab.networks.record import MeasuredNetwork, MeasuredQuery, RecordRow

#: Host GHz, GFLOP/s, GB/s, GiB: a fast device and a slow one.
DEVICES = ((2.0, 1000.0, 100.0, 32.0), (1.0, 250.0, 50.0, 32.0))


def chain(name: str, widths: Sequence[int], image: int = 16) -> Network:
    """Convolutions of these widths, each read by a relu; the last two relus are added up where their shapes agree."""
    calls: list[KernelInvocation] = []
    reads: list[tuple[int, ...]] = []
    read = 3
    for width in widths:
        before, after = (1, read, image, image), (1, width, image, image)
        weights = width * read * 9
        work = 2 * weights * image * image
        params: dict[str, ParamValue] = {
            "weight": (width, read, 3, 3), "bias": False, "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1,
        }  # fmt: skip
        moved = 4 * (weights + (read + width) * image * image)
        calls.append(KernelInvocation("conv2d", "", (before,), after, "float32", params, work, moved))
        reads.append((len(calls) - 2,))
        elements = width * image * image
        calls.append(KernelInvocation("relu", "", (after,), after, "float32", {}, elements, 8 * elements))
        reads.append((len(calls) - 2,))
        read = width
    if len(widths) > 1 and widths[-1] == widths[-2]:
        shape = calls[-1].output
        elements = calls[-1].flops
        calls.append(KernelInvocation("add", "", (shape, shape), shape, "float32", {}, elements, 12 * elements))
        reads.append((len(calls) - 2, len(calls) - 4))
    return Network(name, (TensorSpec((1, 3, image, image)),), tuple(calls), reads=tuple(reads))


def measured(count: int, devices: Sequence[tuple[float, ...]] = DEVICES, seed: int = 0) -> list[MeasuredNetwork]:
    """Random chains in two families, narrow and wide, each on every device."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        family = ("narrow", "wide")[number % 2]
        least, most = (4, 16) if family == "narrow" else (16, 48)
        widths = [int(width) for width in rng.integers(least, most, rng.integers(1, 6))]
        widths += widths[-1:] if rng.random() < 0.5 else []
        network = chain(f"{family}-{number}", widths, int(rng.choice([8, 16, 32])))
        rows = []
        for board, device in enumerate(devices):
            _, gflops, gbytes, _ = device
            latency_ms = sum(
                max(call.flops / gflops / 1e6, call.bytes / gbytes / 1e6) + 0.005 / device[0] for call in network.launches
            )
            peak_mib = 1 + sum(call.bytes for call in network.launches) / (1 << 20)
            rows.append(RecordRow(f"device {board}", device, {"latency_ms": latency_ms, "peak_mib": peak_mib}))
        found.append(MeasuredNetwork(network.name, family, network, tuple(rows)))
    return found


def samples(count: int, devices: Sequence[tuple[float, ...]] = DEVICES, seed: int = 0) -> list[MeasuredQuery]:
    return [
        MeasuredQuery(one.graph, row.device, name=one.name, family=one.family, board=row.board, values=row.values)
        for one in measured(count, devices, seed)
        for row in one.rows
    ]
