# SPDX-License-Identifier: Apache-2.0
"""Rates per operator and kind of work, fitted to whole networks.

Latency is a sum over launches, operations and bytes of each operator, divided by device rates. Energy is such a sum, for idle
power and leakage, plus all operators' work times powers of the device rates, since voltage rises with clocks. Memory is
weights, inputs, a share per launch, and the peak of live tensors and layout copies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from .....kernels.graph import Node, PerformanceGraph
from ....errors import RecordError
from ..record import MeasuredQuery, Query
from . import estimator
from .encodings import OPERATORS, OUTPUTS, operator_of, tiles
from .estimator import ProgressCallback, silent
from .kernel_level import ScaledEstimator

Matrix = NDArray[np.float64]

_LARGEST_WINDOW = 5  # of a convolution; larger ones are rare and fall to it
_ACTIVATIONS = ("relu", "hardtanh")
#: The operators that have rates of their own: convolutions by their window, since libraries have other kernels for each;
#: activations together, since all of them stream a tensor and some occur in one family alone.
PARTS = (
    *(name for name in OPERATORS if name not in ("conv2d", *_ACTIVATIONS)),
    *(f"conv2d {size}" for size in range(2, _LARGEST_WINDOW + 1)), "grouped_conv", "anything else",
)  # fmt: skip
_AT = {name: number for number, name in enumerate(PARTS)}
#: Units of work: launches, operations, bytes. Operations only of operators whose operations do not follow their bytes.
_WORK = ("launches", "flops", "input_bytes", "output_bytes", "weight_bytes")
_WITH_FLOPS = {name for name in PARTS if any(word in name for word in ("conv", "matmul", "attention", "pool"))}
#: Which of the device's figures each takes its time by.
_RATE_OF = (0, 1, 2, 2, 2)
# Of the rates. Voltages would say more than squares, which run wild on boards that were not learnt from.
_POWERS = (0, 1)
#: Convolutions and products, by part: with no stride and with one. For a library's own layouts each may copy its inputs
#: and outputs and its weights, before it runs.
_COPYING = tuple(
    name + stride
    for name in dict.fromkeys(
        "conv2d" if name.startswith("conv2d") else name for name in PARTS if "conv" in name or name == "matmul"
    )
    for stride in ("", " strided")
)
_SHARES = np.linspace(0, 3, 31)
"""Copied shares of bytes that a fit tries."""
_WHOLE = ("weights", "inputs", "always", "launches")
# Ridge, relative to a column's mean square: columns that few networks separate share evenly. Best of 1e-2 to 1e-6 on
# held-out families of an H200's networks.
_RIDGE = 1e-4
_ROUNDS, _LEAST_GAIN = 4, 2e-4
_MIB = 1 << 20


def part_of(node: Node) -> str:
    name = operator_of(node)
    if name == "conv2d":
        return "grouped_conv" if node.groups > 1 else f"conv2d {min(max(node.kernel), _LARGEST_WINDOW)}"
    return "activation" if name in _ACTIVATIONS else name or PARTS[-1]


class _NetworkWork(Struct, frozen=True, eq=False):
    """A network's work.

    Attributes:
        parts: (launches,) index in :data:`PARTS`.
        each: (launches, work) in 1e9, launches in 1e3: rates in GFLOP/s and GB/s give ms; ``work`` is the sum by part.
        whole: (4,) MiB of weights and inputs, 1, launches.
        live, copies, copying: (launches,) live MiB, MiB that it may copy, and index in :data:`_COPYING`, or 0.
    """

    parts: NDArray[np.int64]
    each: Matrix
    work: Matrix
    whole: Matrix
    live: Matrix
    copies: Matrix
    copying: NDArray[np.int64]


def _counted(graph: PerformanceGraph, whole_tiles: bool) -> _NetworkWork:
    names = [part_of(node) for node in graph.nodes]
    parts, work = np.array([_AT[name] for name in names]), np.zeros((len(PARTS), len(_WORK)))
    each = [
        (1e3, _operations(name, node, whole_tiles), node.input_bytes, node.output_bytes, node.weight_bytes)
        for name, node in zip(names, graph.nodes, strict=True)
    ]
    np.add.at(work, parts, each)
    copies, copying = np.zeros(len(graph.nodes)), np.zeros(len(graph.nodes), np.int64)
    for number, (name, node) in enumerate(zip(names, graph.nodes, strict=True)):
        named = ("conv2d" if name.startswith("conv2d") else name) + (" strided" if max(node.stride) > 1 else "")
        if named in _COPYING:
            copies[number] = node.input_bytes + node.output_bytes + node.weight_bytes
            copying[number] = _COPYING.index(named)
    memory = graph.memory
    whole = np.array([memory.weight_bytes / _MIB, memory.input_bytes / _MIB, 1.0, len(graph.nodes)])
    return _NetworkWork(
        parts, np.array(each) / 1e6, work / 1e6, whole, np.array(graph.live_bytes) / _MIB, copies / _MIB, copying
    )


def _operations(name: str, node: Node, whole_tiles: bool) -> float:
    if not whole_tiles or ("conv" not in name and name != "matmul"):
        return node.flops if name in _WITH_FLOPS else 0
    depth, count = tiles(node)
    return max(node.flops, 2 * depth * count * OUTPUTS**2)


class RateEstimator(ScaledEstimator):
    """An :class:`~jetdvfs.profiles.lab.networks.predictors.estimator.Estimator`; unseen operators take the common rates."""

    def __init__(self) -> None:
        super().__init__()
        self._rates: dict[str, Matrix] = {}
        self._largest = np.zeros((len(PARTS), len(_WORK)))
        self._whole_tiles = False  # as a GPU's libraries compute, where that fits better

    @property
    def parameters(self) -> int:
        return super().parameters + sum(int((rates > 0).sum()) for rates in self._rates.values())

    def fit(self, samples: Sequence[MeasuredQuery], on_progress: ProgressCallback = silent) -> None:
        errors, values = {}, estimator.table_of(samples)[1]
        for whole in (False, True):
            self._whole_tiles = whole
            self._fit(samples, on_progress)
            errors[whole] = np.abs(self.predict(samples) / values - 1).mean()
        if errors[False] <= errors[True]:
            self._whole_tiles = False
            self._fit(samples, on_progress)

    def _fit(self, samples: Sequence[MeasuredQuery], on_progress: ProgressCallback) -> None:
        metrics, values = estimator.table_of(samples)
        counted = _of_graphs(samples, self._whole_tiles)
        devices = np.array([sample.device for sample in samples])
        self._largest = np.zeros_like(self._largest)
        for own in counted:
            np.maximum.at(self._largest, own.parts, own.each)
        for number, metric in enumerate(metrics):
            on_progress(number, len(metrics), metric)
            fit = {"mib": _fit_memory, "mj": _fit_energy}.get(metric.rpartition("_")[2], _fit_time)
            self._rates[metric] = fit(counted, devices, values[:, number])
        super().fit(samples, on_progress)

    def familiar(self, queries: Sequence[Query], metric: str) -> Matrix:
        """(queries,) Part of it in launches as small as learnt ones."""
        found = np.empty(len(queries))
        for number, (query, own) in enumerate(zip(queries, _of_graphs(queries, self._whole_tiles), strict=True)):
            parts = (own.each * self._rates[metric][own.parts] / np.array(query.device)[list(_RATE_OF)]).sum(1)
            found[number] = parts[(own.each <= self._largest[own.parts]).all(1)].sum() / max(parts.sum(), 1e-30)
        return found

    def _bare(self, queries: Sequence[Query], metrics: Sequence[str]) -> Matrix:
        counted, found = _of_graphs(queries, self._whole_tiles), np.empty((len(queries), len(metrics)))
        for number, (query, own) in enumerate(zip(queries, counted, strict=True)):
            for column, metric in enumerate(metrics):
                rates = self._rates[metric]
                if metric.endswith("_mib"):
                    found[number, column] = _memory(own, rates)
                else:
                    terms, device = _terms(own, rates), np.array(query.device)[list(_RATE_OF)]
                    powers = np.array((-1, *_POWERS)[: len(terms)], np.float64)
                    found[number, column] = (terms * device ** powers[:, None]).sum()
        return found


def _terms(own: _NetworkWork, rates: Matrix) -> Matrix:
    """(1, work) divisors by device rates; for energy with a row per power to multiply with."""
    bare = (own.work * rates[: len(PARTS)]).sum(0)
    return np.concatenate([bare[None], own.work.sum(0) * rates[len(PARTS) :]])


def _of_graphs(queries: Sequence[Query], whole_tiles: bool) -> list[_NetworkWork]:
    kept = {id(query.graph): query.graph for query in queries}
    counted = {number: _counted(graph, whole_tiles) for number, graph in kept.items()}
    return [counted[id(query.graph)] for query in queries]


def _fit_time(counted: Sequence[_NetworkWork], devices: Matrix, values: Matrix) -> Matrix:
    return _fit_work(_times(counted, devices), values)


def _fit_energy(counted: Sequence[_NetworkWork], devices: Matrix, values: Matrix) -> Matrix:
    """(parts + powers, work) factors of time, then of all work times powers of rates."""
    times, rates = _times(counted, devices), devices[:, None, list(_RATE_OF)]
    work = np.stack([own.work.sum(0) for own in counted])[:, None]
    return _fit_work(np.concatenate([times, *(work * rates**power for power in _POWERS)], axis=1), values)


def _times(counted: Sequence[_NetworkWork], devices: Matrix) -> Matrix:
    """(samples, parts, work) ms at the device's rates."""
    return np.asarray(np.stack([own.work for own in counted]) / devices[:, None, list(_RATE_OF)])


def _fit_work(columns: Matrix, values: Matrix) -> Matrix:
    rates = _least(columns.reshape(len(columns), -1), values).reshape(columns.shape[1:])
    missing = ~columns[:, : len(PARTS)].any(axis=(0, 2))
    if missing.any():
        together = np.concatenate([columns[:, : len(PARTS)].sum(1, keepdims=True), columns[:, len(PARTS) :]], axis=1)
        common = _least(together.reshape(len(columns), -1), values)
        rates[: len(PARTS)][missing] = common[: len(_WORK)]
    return rates


def _fit_memory(counted: Sequence[_NetworkWork], devices: Matrix, values: Matrix) -> Matrix:
    """(4 + 1 + copying,) factors of permanent memory and of the peak, and copied shares, which are searched as they move it."""
    whole = np.stack([own.whole for own in counted])
    starts = np.cumsum([0, *(len(own.live) for own in counted[:-1])])
    live, copies, copying = (np.concatenate([getattr(own, name) for own in counted]) for name in ("live", "copies", "copying"))

    def moments(shares: Matrix) -> Matrix:
        return np.asarray(np.maximum.reduceat(live + copies * shares[copying], starts))

    def off(factors: Matrix, shares: Matrix) -> float:
        found = whole @ factors[:-1] + factors[-1] * moments(shares)
        return float(np.abs(np.log(np.maximum(found, 1e-9) / values)).mean())

    factors = np.array([1.0, 1.0, 0.0, 0.0, 1.0])
    shares = min((np.full(len(_COPYING), share) for share in _SHARES), key=lambda shares: off(factors, shares))
    least = off(factors, shares)
    for _ in range(_ROUNDS):
        before = least
        fitted = _least(np.column_stack([whole, moments(shares)]), values)
        factors = min(factors, fitted, key=lambda factors: off(factors, shares))
        least = off(factors, shares)
        for number in range(len(_COPYING)):
            for share in _SHARES:
                tried = np.where(np.arange(len(shares)) == number, share, shares)
                if (found := off(factors, tried)) < least - _LEAST_GAIN:
                    least, shares = found, tried
        if least > before - _LEAST_GAIN:
            break
    return np.concatenate([factors, shares])


def _memory(own: _NetworkWork, found: Matrix) -> float:
    kept, greatest, shares = found[: len(_WHOLE)], found[len(_WHOLE)], found[len(_WHOLE) + 1 :]
    return float(own.whole @ kept + greatest * (own.live + own.copies * shares[own.copying]).max())


def _least(columns: Matrix, values: Matrix) -> Matrix:
    """Non-negative least squares of relative errors; 0 for empty columns. Raises RecordError without SciPy."""
    try:
        from scipy.optimize import nnls
    except ImportError as error:
        raise RecordError(f"rates are fitted by SciPy, which is not installed here ({error})") from error
    relative = columns / values[:, None]
    scale = np.sqrt((relative**2).mean(0))
    there = scale > 0
    scaled = relative[:, there] / scale[there]
    above = np.sqrt(_RIDGE * len(scaled)) * np.eye(scaled.shape[1])
    wanted = np.concatenate([np.ones(len(scaled)), np.zeros(len(above))])
    # The triangular factor has the same least squares as all rows, and is much smaller.
    q, r = np.linalg.qr(np.concatenate([scaled, above]))
    found = np.zeros(columns.shape[1])
    found[there] = nnls(r, q.T @ wanted, maxiter=100 * r.shape[1])[0] / scale[there]
    return found
