# SPDX-License-Identifier: Apache-2.0
"""Models of latency and power with rates as unknowns: the logarithm of each and its derivatives."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Array = NDArray[np.float64]

LATENCY_UNKNOWNS = ("compute", "memory", "host", "all", "constant", "overlap")
NOTHING = -60.0

# Prior constant, as a part of the latency at the top clocks.
CONSTANT = 0.05
# Overlap of terms by a norm, the k-th root of the sum of k-th powers; k = 1 is their sum. If unknown, k - 1 is about 1.5: 2 to
# 4 fit networks on a TX2 within 1%. A predicted network's host and GPU overlap by the timeline.
_USUAL_OVERLAP = 1.5
_PLAYED_OVERLAP = 8.0
# A constant below its prediction leaves at least this part of the latency.
_LEAST_LEFT = 0.2
# Largest exponent of e that leaves room for sums in single precision.
_SINGLE = 80.0


class LatencyModel(Struct, frozen=True, eq=False, dict=True):
    """Latency at n places: ``predicted * all * norm(rates * terms) / norm(terms)``, and a constant.

    Attributes:
        terms: logarithms of the compute, memory and host terms in ms, shape ``(3, n)``.
        predicted: logarithm of the predicted latency, ``(n,)``; None if it is the terms' norm of unknown exponent.
        top: logarithm of the latency at the top clocks, which scales the constant.
        load: True if the overall rate is the GPU's load, such as larger images, which leaves the host's time.
    """

    terms: Array
    predicted: Array | None
    top: float
    load: bool = False

    def __call__(self, unknowns: Array) -> tuple[Array, Array]:
        norm, slopes = self._norm(unknowns)
        played = norm if self.load else norm + unknowns[3]
        constant = CONSTANT * np.exp(unknowns[4] + self.top)
        if self.predicted is not None:
            played += self._beyond
            more = constant - CONSTANT * np.exp(self.top)  # which includes its prediction
        else:
            more = constant = constant * np.exp(unknowns[3])
        moving = np.exp(played)
        whole = np.maximum(moving + more, _LEAST_LEFT * moving)
        part = moving / whole
        derivatives = np.empty((len(whole), len(LATENCY_UNKNOWNS)))
        derivatives[:, :3] = (part * slopes[:3]).T
        derivatives[:, 3] = 1.0 if self.predicted is None else part * (slopes[0] + slopes[1]) if self.load else part
        derivatives[:, 4] = constant / whole
        derivatives[:, 5] = part * slopes[3]
        return np.log(whole), derivatives

    def drawn(self, unknowns: Array) -> Array:
        """Values, without derivatives, for several draws of the unknowns ``(draws, p)``: ``(draws, n)``.

        Only for an unknown exponent of the norm.
        """
        logs = self.terms + unknowns[:, :3, None]
        exponent = _exponent(unknowns[:, 5])[:, None]
        largest = logs.max(axis=1)
        total = np.exp(exponent[:, None] * (logs - largest[:, None])).sum(axis=1)
        moving = np.exp(largest + np.log(total) / exponent)
        values: Array = np.log(moving + CONSTANT * np.exp(unknowns[:, 4:5] + self.top)) + unknowns[:, 3:4]
        return values

    def busy(self, unknowns: Array, latency: Array) -> Array:
        """Share of the latency (given as a logarithm) in which host, GPU and memory are busy, ``(3, n)``."""
        compute, memory, host = self.terms + self._rates(unknowns) + (0.0 if self.load else unknowns[3])
        gpu, _ = _norm(np.stack([compute, memory]), 1.0 if self.predicted is not None else _exponent(unknowns[5]))
        busy: Array = np.exp(np.minimum(np.stack([host, gpu, memory]) - latency, 0.0))
        return busy

    @cached_property
    def _beyond(self) -> Array:
        assert self.predicted is not None
        beyond: Array = self.predicted - self._norm(np.zeros(len(LATENCY_UNKNOWNS)))[0]
        return beyond

    def _rates(self, unknowns: Array) -> Array:
        rates = unknowns[:3, None].copy()
        if self.load:
            rates[:2] += unknowns[3]
        return rates

    def _norm(self, unknowns: Array) -> tuple[Array, Array]:
        """Logarithm of the norm, and its derivatives by the three rates and the overlap, ``(4, n)``."""
        logs = self.terms + self._rates(unknowns)
        if self.predicted is None:
            exponent = _exponent(unknowns[5])
            norm, parts = _norm(logs, exponent)
            return norm, np.vstack([parts, ((parts * logs).sum(axis=0) - norm) * (1 - 1 / exponent)])
        gpu, split = _norm(logs[:2], 1.0)
        norm, parts = _norm(np.stack([gpu, logs[2]]), _PLAYED_OVERLAP)
        return norm, np.vstack([split * parts[0], parts[1], np.zeros(len(norm))])


class ClockedLatency(Struct, frozen=True, eq=False):
    """Latency over a whole grid with each term following one clock, for unpredicted programs.

    Attributes:
        cpu, gpu, emc: logarithms of the host, compute and memory terms in ms, at each level of the clock.
        top: as in :class:`LatencyModel`.
    """

    cpu: Array
    gpu: Array
    emc: Array
    top: float

    def drawn(self, unknowns: Array) -> NDArray[np.float32]:
        """:meth:`LatencyModel.drawn` over the grid, to seven digits, in a tenth of the time."""
        exponent = _exponent(unknowns[:, 5:6])
        compute, memory, host = (
            term + unknowns[:, rate : rate + 1] for rate, term in enumerate((self.gpu, self.emc, self.cpu))
        )
        # In units of the top clocks' frame time, the least of all cells.
        least = np.maximum(np.maximum(compute.min(axis=1), memory.min(axis=1)), host.min(axis=1))[:, None]
        powers = [exponent * (logs - least) for logs in (host, compute, memory)]
        kind = np.float32 if max(float(one.max()) for one in powers) < _SINGLE else np.float64
        cpu, gpu, emc = (np.exp(one).astype(kind) for one in powers)
        total = (cpu[:, :, None, None] + gpu[:, None, :, None] + emc[:, None, None, :]).reshape(len(unknowns), -1)
        np.log(total, out=total)
        total /= exponent.astype(kind)
        values: NDArray[np.float32] = total.astype(np.float32, copy=False)
        np.exp(values, out=values)
        values += (CONSTANT * np.exp(unknowns[:, 4:5] + self.top - least)).astype(np.float32)
        np.log(values, out=values)
        values += (least + unknowns[:, 3:4]).astype(np.float32)
        return values


class PowerModel(Struct, frozen=True, eq=False):
    """Power at n places: a sum of parts, each with a rate and a power law of its clock.

    Its unknowns are the parts' rates, the increase of each clock's exponent, and an overall rate.

    Attributes:
        parts: logarithms of the expected power of each in mW, ``(parts, n)``.
        clocks: logarithms of the clocks over their tops, ``(clocks, n)``.
        clock_of: clock of each part, -1 if its growth is known.
    """

    parts: Array
    clocks: Array
    clock_of: tuple[int, ...]

    def __call__(self, unknowns: Array) -> tuple[Array, Array]:
        count = len(self.parts)
        logs = self._logs(unknowns)
        whole, shares = _norm(logs, 1.0)
        derivatives = np.zeros((len(whole), len(unknowns)))
        derivatives[:, :count] = shares.T
        derivatives[:, -1] = 1.0
        for part, clock in enumerate(self.clock_of):
            if clock >= 0:
                derivatives[:, count + clock] += shares[part] * self.clocks[clock]
        return whole, derivatives

    def of(self, chosen: list[int], unknowns: Array) -> Array:
        drawn: Array = _norm(self._logs(unknowns)[chosen], 1.0)[0]
        return drawn

    def _logs(self, unknowns: Array) -> Array:
        logs: Array = self.parts + unknowns[: len(self.parts), None] + unknowns[-1]
        for part, clock in enumerate(self.clock_of):
            if clock >= 0:
                logs[part] += unknowns[len(self.parts) + clock] * self.clocks[clock]
        return logs


def _exponent(overlap: Any) -> Any:
    return 1.0 + _USUAL_OVERLAP * np.exp(overlap)


def _norm(logs: Array, exponent: float) -> tuple[Array, Array]:
    """Logarithm of ``(sum exp(k logs))^(1/k)`` over the first axis, and each one's part of that sum."""
    largest = logs.max(axis=0)
    powers = np.exp(exponent * (logs - largest))
    total = powers.sum(axis=0)
    return largest + np.log(total) / exponent, powers / total
