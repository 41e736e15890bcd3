# SPDX-License-Identifier: Apache-2.0
"""What issuing a network's calls costs the host: the framework's dispatcher, the library and the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..kinds import KINDS, stand_in
from ..network import Call, HostOp

ONCE = "inference"
"""The name under which a host model keeps what an inference costs the host once, whatever it calls."""

Coefficients: TypeAlias = tuple[float, float, float]


def issue_key(call: Call) -> tuple[str, int]:
    """What a call's issue time depends on: its name in a host model, and how many tensors it gathers.

    The name is a kernel's kind or a host-only call's name. Depthwise convolutions do not go through the convolution library and
    have the name ``conv2d.depthwise``; those without a window, ``conv2d.pointwise``, are products there, while others may be
    several launches. Each tensor of a concatenation is prepared by itself.
    """
    if isinstance(call, HostOp):
        return call.name, 0
    row = KINDS.get(call.kind)
    if row is not None and row.gathers:
        return call.kind, len(call.inputs)
    weight = call.params.get("weight")
    if row is None or not row.depthwise_apart or not isinstance(weight, tuple):
        return call.kind, 0
    if call.params.get("groups", 1) != 1 and weight[1:2] == (1,):
        return f"{call.kind}.depthwise", 0
    return (call.kind if any(side != 1 for side in weight[2:]) else f"{call.kind}.pointwise"), 0


@dataclass(frozen=True)
class HostModel:
    """What a call costs the host: ``a + b / cpu_mhz + c / emc_mhz`` microseconds.

    Attributes:
        calls: (a, b, c) by the names of :func:`issue_key`, ``"inference"`` for what is paid once, ``"graph"`` and ``"engine"``
            for starting a network as a whole. A name with a dot that is
            not there counts as what stands before the dot.
        default: (a, b, c) of every other call.
        per_tensor: (a, b, c) of each tensor that a call gathers, besides the call itself.
    """

    calls: Mapping[str, Coefficients]
    default: Coefficients
    per_tensor: Coefficients = (0.0, 0.0, 0.0)

    def scaled(self, factor: float) -> HostModel:
        """A host on which every call takes so many times as long."""

        def times(one: Coefficients) -> Coefficients:
            return one[0] * factor, one[1] * factor, one[2] * factor

        return HostModel({name: times(one) for name, one in self.calls.items()}, times(self.default), times(self.per_tensor))

    def coefficients(self, name: str) -> Coefficients:
        """(a, b, c) of a call by name, the tensors it gathers left aside; a fused kernel's are those of what it comes from."""
        kind = name.partition(".")[0]
        return self.calls.get(name) or self.calls.get(kind) or self.calls.get(stand_in(kind)) or self.default

    def issue_us(
        self, calls: Sequence[Call], cpu_mhz: NDArray[np.float32], emc_mhz: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Issue time of each call in microseconds, shape ``(calls, n_cpu, n_emc)``."""
        return _over_clocks(self._table(calls), cpu_mhz, emc_mhz)

    def elapsed_us(
        self, calls: Sequence[Call], after: Sequence[int], cpu_mhz: NDArray[np.float32], emc_mhz: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Time from the first call to the end of some of them, in microseconds, shape ``(after, n_cpu, n_emc)``."""
        # Sums of coefficients are the coefficients of sums.
        return _over_clocks(self._table(calls).cumsum(axis=0)[list(after)], cpu_mhz, emc_mhz)

    def once_us(self, cpu_mhz: NDArray[np.float32], emc_mhz: NDArray[np.float32]) -> NDArray[np.float64]:
        """What an inference costs once, in microseconds, shape ``(n_cpu, n_emc)``; nothing if the model does not say."""
        return np.asarray(_over_clocks(np.array([self.calls.get(ONCE, (0.0, 0.0, 0.0))]), cpu_mhz, emc_mhz)[0])

    def knows(self, start: str) -> bool:
        """Whether it was measured what starting a network as a whole costs, in this way (``graph``, ``engine``)."""
        return start in self.calls

    def start_us(self, start: str, cpu_mhz: NDArray[np.float32], emc_mhz: NDArray[np.float32]) -> NDArray[np.float64]:
        """What starting a network as a whole costs, in microseconds, shape ``(n_cpu, n_emc)``; as much as a call of a name that
        is not known where nobody measured it."""
        return np.asarray(_over_clocks(np.array([self.calls.get(start, self.default)]), cpu_mhz, emc_mhz)[0])

    def _table(self, calls: Sequence[Call]) -> NDArray[np.float64]:
        """(a, b, c) of each call, shape ``(calls, 3)``."""
        rows: dict[tuple[str, int], NDArray[np.float64]] = {}
        keys = [issue_key(call) for call in calls]
        for key in keys:
            if key not in rows:
                name, tensors = key
                rows[key] = np.asarray(self.coefficients(name)) + tensors * np.asarray(self.per_tensor)
        return np.array([rows[key] for key in keys]).reshape(-1, 3)


def _over_clocks(
    coefficients: NDArray[np.float64], cpu_mhz: NDArray[np.float32], emc_mhz: NDArray[np.float32]
) -> NDArray[np.float64]:
    a, b, c = coefficients.T[:, :, None, None]
    return np.asarray(a + b / cpu_mhz.astype(np.float64)[:, None] + c / emc_mhz.astype(np.float64)[None, :])
