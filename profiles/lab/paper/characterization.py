# SPDX-License-Identifier: Apache-2.0
"""Workload study as in MIRAGE (SEC '21, section 3.2): kernel kinds by their share of inference time.

T is end-to-end inference time; T_K, summed time of launches of selected kinds, each timed alone; T_K', that of the rest. A
selected kind is *significant*, among the largest that together make 95% of some network's kernel time, and *common*, launched
by 40% of the networks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from msgspec import Struct, field

from ....kernels.boundary import Boundary
from ....kernels.cost.board import BoardCost
from ....kernels.cost.explain import explain
from ....kernels.grid import FrequencyConfiguration
from ....kernels.network import KernelInvocation, Network
from ....kernels.units import Method
from ...board import BoardDescription
from ...twin.silicon.chip import Clocks
from ...twin.silicon.silicon import Silicon, execute

SIGNIFICANT = 0.95
COMMON = 0.4
NODES = 13
"""Boards in the paper."""


class NetworkRun(Struct, frozen=True):
    """One inference of a network at one configuration.

    Attributes:
        launches: kernel launches; ``distinct`` of them differ.
        kernel_ms: GPU time of its launches, by kind, each timed alone.
        host_ms: host work.
        busy_ms: GPU time within the inference, with weights from memory.
        unmodelled: kinds bounded by the roofline.
        guessed_share: share of GPU time in guessed kernels, 0 to 1.
        boundary: end of an incomplete launch list.
    """

    network: str
    launches: int
    distinct: int
    time_ms: float
    kernel_ms: Mapping[str, float]
    host_ms: float
    power_mw: float
    busy_ms: float
    unmodelled: tuple[str, ...] = field(default=())
    guessed_share: float = 0.0
    boundary: Boundary | None = None

    @property
    def label(self) -> str:
        return f"{self.network} (up to {self.boundary.operator})" if self.boundary else self.network

    def share(self, kind: str) -> float:
        return self.kernel_ms.get(kind, 0.0) / self.time_ms

    @property
    def all_ms(self) -> float:
        """T_K + T_K': above T because of timing costs, below it if the GPU waits."""
        return sum(self.kernel_ms.values())

    def selected_ms(self, selected: Iterable[str]) -> float:
        return sum(self.kernel_ms.get(kind, 0.0) for kind in selected)

    def others_ms(self, selected: Iterable[str]) -> float:
        return self.selected_ms(set(self.kernel_ms) - set(selected))

    def significant(self) -> tuple[str, ...]:
        """Fewest kinds that make :data:`SIGNIFICANT` of its kernel time, the largest first."""
        kinds: list[str] = []
        for kind in sorted(self.kernel_ms, key=lambda kind: -self.kernel_ms[kind]):
            if self.selected_ms(kinds) >= SIGNIFICANT * self.all_ms:
                break
            kinds.append(kind)
        return tuple(kinds)

    def to_json(self, selected: Sequence[str]) -> dict[str, Any]:
        return {
            "network": self.network,
            "unique_kernels": len(self.kernel_ms),
            "launches": self.launches,
            "distinct_invocations": self.distinct,
            "t_ms": self.time_ms,
            "t_k_ms": self.selected_ms(selected),
            "t_k_rest_ms": self.others_ms(selected),
            "host_ms": self.host_ms,
            "power_mw": self.power_mw,
            "kernel_ms": dict(self.kernel_ms),
            "shares": {kind: self.share(kind) for kind in self.kernel_ms},
            "unmodelled": list(self.unmodelled),
            "guessed_share": self.guessed_share,
            **({"boundary": self.boundary.to_json()} if self.boundary else {}),
        }


class KindFigures(Struct, frozen=True):
    """One kind over all networks of a study.

    Attributes:
        mean_share: of inference time, over networks that launch it.
        networks: number that launch it; ``significant`` need it for 95% of kernel time.
    """

    kind: str
    mean_share: float
    networks: int
    significant: int
    selected: bool


def select(runs: Sequence[NetworkRun]) -> tuple[KindFigures, ...]:
    """Kinds by the two criteria, the largest mean share first."""
    needed = Counter(kind for run in runs for kind in run.significant())
    figures = []
    for kind in dict.fromkeys(kind for run in runs for kind in run.kernel_ms):
        shares = [run.share(kind) for run in runs if kind in run.kernel_ms]
        selected = needed[kind] > 0 and len(shares) >= COMMON * len(runs)
        figures.append(KindFigures(kind, fmean(shares), len(shares), needed[kind], selected))
    return tuple(sorted(figures, key=lambda figure: -figure.mean_share))


def measured(
    network: Network, board: BoardDescription, configuration: FrequencyConfiguration | None = None, nodes: int = NODES
) -> NetworkRun:
    """Medians over ``nodes`` simulated boards, without noise. Raises TwinError."""
    clocks = Clocks.of([configuration or board.grid.top])
    counts = Counter(launch.signature for launch in network.launches)
    distinct = {launch.signature: launch for launch in network.launches}
    rows = []
    for node in range(nodes):
        silicon = Silicon(node, board)
        run = execute(network, silicon, clocks)
        seconds = silicon.kernels(list(distinct.values()), clocks).seconds[:, 0] + silicon.timing_s(clocks)
        of_kind = _by_kind(distinct.values(), [1e3 * float(s) * counts[key] for s, key in zip(seconds, distinct, strict=True)])
        latency_s = float(run.latency_s[0])
        power_mw = sum(float(run.rail_energy_j[rail][0]) for rail in board.energy_rails) / latency_s * 1e3
        rows.append(
            (latency_s * 1e3, float(run.host_busy_s[0]) * 1e3, power_mw, float(run.gpu_busy_s[0]) * 1e3, *of_kind.values())
        )
    time_ms, host_ms, power_mw, busy_ms, *kernel_ms = np.median(np.array(rows), axis=0).tolist()
    return NetworkRun(
        network=network.name,
        launches=len(network.launches),
        distinct=len(distinct),
        time_ms=time_ms,
        kernel_ms=dict(zip(of_kind, kernel_ms, strict=True)),
        host_ms=host_ms,
        power_mw=power_mw,
        busy_ms=busy_ms,
        boundary=network.boundary,
    )


def predicted(
    network: Network, cost: BoardCost, configuration: FrequencyConfiguration, method: Method = "timeline"
) -> NetworkRun:
    """The same values predicted by a profile. Raises CostModelError, GridError."""
    whole = explain(network, cost, configuration, method)
    return NetworkRun(
        network=network.name,
        launches=len(network.launches),
        distinct=len(whole.kernels),
        time_ms=whole.prediction.latency_ms,
        kernel_ms=_by_kind((part.kernel for part in whole.kernels), [part.gpu_ms for part in whole.kernels]),
        host_ms=whole.host_ms,
        power_mw=whole.prediction.power_mw,
        busy_ms=whole.gpu_ms,
        guessed_share=whole.prediction.guessed_share,
        unmodelled=tuple(dict.fromkeys(part.kernel.kind for part in whole.kernels if not part.modelled)),
        boundary=network.boundary,
    )


def _by_kind(kernels: Iterable[KernelInvocation], times_ms: Sequence[float]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for kernel, ms in zip(kernels, times_ms, strict=True):
        sums[kernel.kind] = sums.get(kernel.kind, 0.0) + ms
    return sums
