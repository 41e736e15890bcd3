# SPDX-License-Identifier: Apache-2.0
"""Host cost of issuing a network's calls: the framework's dispatcher, the library and the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..grid import FrequencyGrid
from ..kinds import KINDS, stand_in
from ..network import Call, HostOp

ONCE, EAGER = "inference", "eager"
"""Names of the host's time per inference, of any execution and of eager execution alone."""

_HALF = ("float16", "bfloat16")

Coefficients: TypeAlias = tuple[float, float, float, float]

NO_TIME: Coefficients = (0.0, 0.0, 0.0, 0.0)


def issue_key(call: Call) -> tuple[str, int]:
    """Key of a call's issue time: its name in a host model, and the number of tensors it gathers, each prepared separately.

    The name is a kernel's kind or a host-only call's name, with its library path (``conv2d.depthwise``), ``biased`` for a bias,
    often a separate launch, and ``half`` for two-byte types, for which libraries make other launches.
    """
    if isinstance(call, HostOp):
        return call.name, 0
    row = KINDS.get(call.kind)
    gathers = row is not None and row.gathers
    way = row.way(call.params) if row is not None and row.way is not None else ""
    biased, half = "biased" if call.params.get("bias") else "", "half" if call.dtype in _HALF else ""
    return ".".join(filter(None, (call.kind, way, biased, half))), len(call.inputs) if gathers else 0


class HostModel(Struct, frozen=True):
    """Host time of a call: ``a + b / cpu_mhz + (c + d * cpu_mhz) / emc_mhz`` microseconds.

    The last term is cache misses: slow cores hide part of each behind their own cycles.

    Attributes:
        calls: (a, b, c, d) by names of :func:`issue_key`, ``"inference"`` and ``"eager"`` (once), ``"graph"``, ``"engine"`` (a
            start of a network), ``"engine.launch"`` (each kernel in it; ``"graph.launch.conv2d"``: all GPU events of one).
            A missing name falls back to its part before the last dot, or to a longer name.
        per_tensor: of each gathered tensor, in addition.
    """

    calls: Mapping[str, Coefficients]
    default: Coefficients
    per_tensor: Coefficients = NO_TIME

    def scaled(self, factor: float) -> HostModel:
        def times(one: Coefficients) -> Coefficients:
            return one[0] * factor, one[1] * factor, one[2] * factor, one[3] * factor

        return HostModel({name: times(one) for name, one in self.calls.items()}, times(self.default), times(self.per_tensor))

    def with_us(self, times_us: Mapping[str, float]) -> HostModel:
        """The same, with these times by name, equal at all clocks."""
        calls = {name: (time_us, 0.0, 0.0, 0.0) for name, time_us in times_us.items()}
        return HostModel({**self.calls, **calls}, self.default, self.per_tensor)

    def falling(self, grid: FrequencyGrid) -> HostModel:
        """The same, with no call slower at a higher CPU clock of this grid."""
        cpu_levels, _, emc_levels = grid.levels_mhz()
        most = float(emc_levels[0]) / float(cpu_levels[-1]) ** 2

        def held(one: Coefficients) -> Coefficients:
            a, b, c, d = one
            return a, b, c, min(d, most * b)

        return HostModel({name: held(one) for name, one in self.calls.items()}, held(self.default), held(self.per_tensor))

    def coefficients(self, name: str) -> Coefficients:
        """(a, b, c, d) of a call by name, without gathered tensors; a fused kernel has its origin's."""
        names = [name]
        while "." in names[-1]:
            names.append(names[-1].rpartition(".")[0])
        names.append(stand_in(names[-1]))
        known = (key for wanted in names for key in (wanted, *self._ways(wanted)) if key in self.calls)
        return self.calls.get(next(known, ""), self.default)

    def _ways(self, name: str) -> list[str]:
        return sorted(key for key in self.calls if key.startswith(f"{name}."))

    def issue_us(
        self, calls: Sequence[Call], cpu_mhz: NDArray[np.float32], emc_mhz: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Issue time of each call in microseconds, shape ``(calls, n_cpu, n_emc)``."""
        return _over_clocks(self._table(calls), cpu_mhz, emc_mhz)

    def elapsed_us(
        self, calls: Sequence[Call], after: Sequence[int], cpu_mhz: NDArray[np.float32], emc_mhz: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Time from the first call to the end of each ``after`` call, in microseconds, shape ``(after, n_cpu, n_emc)``."""
        # Sums of coefficients are the coefficients of sums.
        return _over_clocks(self._table(calls).cumsum(axis=0)[list(after)], cpu_mhz, emc_mhz)

    def once_us(self, cpu_mhz: NDArray[np.float32], emc_mhz: NDArray[np.float32], execution: str) -> NDArray[np.float64]:
        """Cost per inference in microseconds, shape ``(n_cpu, n_emc)``; 0 if unknown."""
        names = (ONCE, EAGER) if execution == EAGER else (ONCE,)
        return np.asarray(
            _over_clocks(np.array([self.calls.get(name, NO_TIME) for name in names]), cpu_mhz, emc_mhz).sum(axis=0)
        )

    def knows(self, start: str) -> bool:
        return start in self.calls

    def start_us(self, start: str, cpu_mhz: NDArray[np.float32], emc_mhz: NDArray[np.float32]) -> NDArray[np.float64]:
        """Time to start a whole network in microseconds, shape ``(n_cpu, n_emc)``; if unmeasured, that of an unknown call."""
        return np.asarray(_over_clocks(np.array([self.calls.get(start, self.default)]), cpu_mhz, emc_mhz)[0])

    def handed_us(
        self, start: str, kernels: Sequence[Call], cpu_mhz: NDArray[np.float32], emc_mhz: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Its further time until each kernel, then all, are handed over, in us, ``(kernels + 1, n_cpu, n_emc)``."""
        names = [f"{handing(start)}.{issue_key(kernel)[0]}" for kernel in kernels]
        known = {name: self._handing(name, start) for name in set(names)}
        return _over_clocks(np.array([*(known[name] for name in names), NO_TIME]).cumsum(axis=0), cpu_mhz, emc_mhz)

    def _handing(self, name: str, start: str) -> Coefficients:
        while name not in self.calls and name != start:
            name = name.rpartition(".")[0]
        return NO_TIME if name == start else self.calls[name]

    def _table(self, calls: Sequence[Call]) -> NDArray[np.float64]:
        rows: dict[tuple[str, int], NDArray[np.float64]] = {}
        keys = [issue_key(call) for call in calls]
        for key in keys:
            if key not in rows:
                name, tensors = key
                rows[key] = np.asarray(self.coefficients(name)) + tensors * np.asarray(self.per_tensor)
        return np.array([rows[key] for key in keys]).reshape(-1, 4)


def handing(start: str) -> str:
    return f"{start}.launch"


def _over_clocks(
    coefficients: NDArray[np.float64], cpu_mhz: NDArray[np.float32], emc_mhz: NDArray[np.float32]
) -> NDArray[np.float64]:
    a, b, c, d = coefficients.T[:, :, None, None]
    cpu, emc = cpu_mhz.astype(np.float64)[:, None], emc_mhz.astype(np.float64)[None, :]
    return np.asarray(a + b / cpu + (c + d * cpu) / emc)
