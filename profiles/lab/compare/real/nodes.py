# SPDX-License-Identifier: Apache-2.0
"""Work of a measured layer's nodes, and its time by rates per call, operation and byte.

Nodes are torch.fx nodes of torchvision (``tests/fixtures/make_layer_nodes.py``). Rates are non-negative least squares of
relative errors: a common set scaled by clocks, then each mode's own, regularised to it.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..agx_orin import MODES

KINDS = (
    "pointwise", "conv", "depthwise", "norm", "activation", "pool", "layer_norm", "linear", "attention", "elementwise", "view",
    "copy", "host",
)  # fmt: skip
"""``view`` computes nothing on the GPU; ``host`` is Python alone: a shape, an integer, an assertion."""
_TABLE = Path(__file__).with_name("layer_nodes.json.xz")
_FP32_BYTES = 4
_MATRICES = (("pointwise",), ("conv",), ("linear", "attention"), ("depthwise",))
_BY_HAND = np.array(
    (
        0.03,  # ms of a layer, then of a call of each kind, at the highest CPU clock
        *(0.17, 0.17, 0.2, 0.12, 0.06, 0.08, 0.09, 0.12, 0.9, 0.05, 0.02, 0.02, 0.005),
        *(0.25, 0.1, 0.25, 0.1, 0.25, 0.1, 2.0, 2.0),  # ms of 1e9 operations of matrices: FP32, half of it; the whole GPU
        *(1 / 150, 1 / 150),  # ms of 1e6 bytes of activations, of weights, at the highest memory clock
    )
)
"""Prior rates, set by hand."""
_RIDGE = 1e-3
_LEAST = 0.02  # of a rate by hand: least common rate


class NodeWork(Struct, frozen=True):
    """One call for one image.

    Attributes:
        operations: of products, two per multiply-add.
        elements: read and written, without weights.
        size: of a product: channels in, channels out, pixels or tokens, kernel's side, stride.
    """

    kind: str
    operations: int = 0
    elements: int = 0
    weights: int = 0
    size: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)


class LayerWork(Struct, frozen=True):
    """Work of layers, each with its batch.

    Attributes:
        calls, operations: of each kind, shape ``(layers, kinds)``.
        elements, weights: activations read and written, and parameters, shape ``(layers,)``.
        size: of the largest product, its pixels times the batch, shape ``(layers, 5)``.
        widest: most elements read and written by one node, shape ``(layers,)``.
    """

    calls: NDArray[np.float64]
    operations: NDArray[np.float64]
    elements: NDArray[np.float64]
    weights: NDArray[np.float64]
    size: NDArray[np.float64]
    widest: NDArray[np.float64]

    def described(self) -> NDArray[np.float64]:
        convolutions = self.operations[:, [KINDS.index(kind) for kind in ("pointwise", "conv", "depthwise")]]
        products = self.operations[:, [KINDS.index(kind) for kind in ("linear", "attention")]]
        whole = (self.operations.sum(1), self.elements)
        sums = (convolutions.sum(1), convolutions[:, 2], products.sum(1), self.elements, self.weights, self.widest)
        logs = np.log1p(np.column_stack([*sums, self.size]))
        return np.column_stack([self.calls, logs, np.log1p(whole[0]) - np.log1p(whole[1])])


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, NodeWork]]:
    told = json.loads(lzma.decompress(_TABLE.read_bytes()))
    return {
        network: {
            name: NodeWork(KINDS[kind], operations, elements, weights, tuple(size))
            for name, (kind, operations, elements, weights, size) in nodes.items()
        }
        for network, nodes in told.items()
    }


def works(rows: Sequence[Mapping[str, str]]) -> LayerWork:
    """Work of each row; unknown nodes count as one convolution, and views."""
    cache: dict[tuple[str, ...], tuple[NDArray[np.float64], ...]] = {}
    found = []
    for row in rows:
        key = tuple(row[name] for name in ("model", "nodes", "batch", "flops", "total_bytes"))
        if key not in cache:
            cache[key] = _layer(row)
        found.append(cache[key])
    calls, operations, elements, weights, size, widest = (np.array(column) for column in zip(*found, strict=True))
    return LayerWork(calls, operations, elements, weights, size, widest)


def _layer(row: Mapping[str, str]) -> tuple[NDArray[np.float64], ...]:
    names, batch = row["nodes"].split("|"), int(row["batch"])
    known = _table().get(row["model"], {})
    if all(name in known for name in names):
        nodes = [known[name] for name in names]
    else:
        operations, elements = (float(row["flops"]) / batch, float(row["total_bytes"]) / _FP32_BYTES / batch)
        nodes = [NodeWork("conv", int(operations), int(elements)), *(NodeWork("view") for _ in names[1:])]
    calls, operations_of = np.zeros(len(KINDS)), np.zeros(len(KINDS))
    for node in nodes:
        calls[KINDS.index(node.kind)] += 1
        operations_of[KINDS.index(node.kind)] += node.operations * batch
    size = np.array(max(nodes, key=lambda node: node.operations).size, np.float64)
    size[2] *= batch
    elements_of = [node.elements * batch for node in nodes]
    weights = sum(node.weights for node in nodes)
    return (
        calls, operations_of, np.array(float(sum(elements_of))), np.array(float(weights)), size,
        np.array(float(max(elements_of))),
    )  # fmt: skip


def _costs(work: LayerWork, rows: Sequence[Mapping[str, str]]) -> NDArray[np.float64]:
    """Factors of the rates, each scaled by its clock, shape ``(layers, rates)``."""
    most = MODES["MAXN"]
    modes = [MODES[row["thermal_profile"]] for row in rows]
    host, gpu, memory = np.array(
        [
            (most.cpu_hz / mode.cpu_hz, most.gpu_hz * most.sm_count / (mode.gpu_hz * mode.sm_count), most.emc_hz / mode.emc_hz)
            for mode in modes
        ]
    ).T
    single = np.array([row["precision"] == "FP32" for row in rows])
    width = np.where(single, _FP32_BYTES, _FP32_BYTES / 2)
    calls = np.column_stack([np.ones(len(rows)), work.calls]) * host[:, None]
    operations = []
    for kinds in _MATRICES:
        own = work.operations[:, [KINDS.index(kind) for kind in kinds]].sum(1) * gpu / 1e9
        operations += [own * single, own * ~single]
    moved = [part * width * memory / 1e6 for part in (work.elements, work.weights)]
    return np.column_stack([calls, *operations, *moved])


def fitted_ms(
    work: LayerWork, rows: Sequence[Mapping[str, str]], measured_ms: NDArray[np.float64], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Layer times by rates, fitted to layers of non-zero weight; shape ``(layers,)``."""
    costs = _costs(work, rows)
    common = np.maximum(_rates(costs, measured_ms, weight, _BY_HAND), _LEAST * _BY_HAND)
    modes = np.array([row["thermal_profile"] for row in rows])
    found = np.zeros(len(rows))
    for mode in np.unique(modes):
        mine = modes == mode
        found[mine] = costs[mine] @ _rates(costs[mine], measured_ms[mine], weight[mine], common)
    return np.maximum(found, 1e-3)


def _rates(
    costs: NDArray[np.float64], measured_ms: NDArray[np.float64], weight: NDArray[np.float64], drawn_to: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Non-negative least squares of relative errors, regularised to ``drawn_to``."""
    from scipy.optimize import nnls

    root = np.sqrt(weight)
    relative = costs * drawn_to * (root / measured_ms)[:, None]
    ridge = np.sqrt(_RIDGE * weight.sum())
    # The triangular factor has the same least squares as all rows, and is much smaller.
    factor = np.asarray(np.linalg.qr(np.column_stack([relative, root]), mode="r"))
    left = np.vstack([factor[:, :-1], ridge * np.eye(len(drawn_to))])
    right = np.concatenate([factor[:, -1], np.full(len(drawn_to), ridge)])
    return np.asarray(nnls(left, right)[0] * drawn_to)
