# SPDX-License-Identifier: Apache-2.0
"""Predictors by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from .....kernels.graph import PerformanceGraph
from .architectures import Anee, unseen
from .combined import RatesAndLaunches
from .encodings import PERFSEER_GROUPS
from .estimator import Estimator
from .graph_network import GraphNetwork, dippm, dnnperf, dnnperf_own, launches, seernet, seernet_multi
from .kernel_level import Roofline
from .rates import RateEstimator
from .trees import FeatureAddition, GlobalTrees

PREDICTORS: Mapping[str, Callable[[], Estimator]] = {
    "forest": lambda: GlobalTrees("rf"),
    "boosting": lambda: GlobalTrees("gb"),
    "xgboost": lambda: GlobalTrees("xgb"),
    "rates": RateEstimator,
    "roofline": Roofline,
    "xgboost-added": lambda: GlobalTrees("xgb", FeatureAddition()),
    "seernet": seernet,
    "seernet-multi": seernet_multi,
    "dnnperf": dnnperf,
    "dnnperf with self-edges (ours)": dnnperf_own,
    "dippm": dippm,
    "launches (ours)": launches,
    "rates and launches (ours)": RatesAndLaunches,
}
"""Predictors with their papers' settings."""

#: Those that need a host GPU's counters of every network.
COUNTED: Mapping[str, Callable[[], Estimator]] = {
    "forest with counters": lambda: GlobalTrees("rf", FeatureAddition(), counted=True),
    "boosting with counters": lambda: GlobalTrees("gb", FeatureAddition(), counted=True),
    "xgboost with counters": lambda: GlobalTrees("xgb", FeatureAddition(), counted=True),
}


def _with(made: GraphNetwork, **changes: Any) -> GraphNetwork:
    made.architecture = replace(made.architecture, **changes)  # type: ignore[type-var]
    return made


def _up_to(number: int) -> GraphNetwork:
    return _with(seernet(), synmm=False, gnpb=False, without=tuple(PERFSEER_GROUPS)[number + 1 :])


#: The papers' ablations, on one split at one size: PerfSeer's tables 1 and 2 and figure 6,
#: DNNPerf's table VIII, DIPPM's table 4.
ABLATIONS: Mapping[str, Callable[[], Estimator]] = {
    "seernet": seernet,
    "seernet without GNPB": lambda: _with(seernet(), gnpb=False),
    "seernet without SynMM, GNPB": lambda: _with(seernet(), synmm=False, gnpb=False),
    **{f"seernet up to {group}": partial(_up_to, number) for number, group in enumerate(PERFSEER_GROUPS)},
    "seernet-multi": seernet_multi,
    "seernet-multi without PCGrad": lambda: seernet_multi(pcgrad=False),
    "dnnperf": dnnperf,
    "dnnperf with self-edges (ours)": dnnperf_own,
    "dnnperf with GAT": lambda: _with(dnnperf(), encoder="gat"),
    "dnnperf with StandardScaler": lambda: _with(dnnperf(), scaling="zscore"),
    "dnnperf without tensor sizes, costs": lambda: _with(dnnperf(), costs=False),
    "dnnperf with edges beside nodes": lambda: _with(dnnperf(), readout="edges"),
    "dnnperf with mean readout": lambda: _with(dnnperf(), readout="mean"),
    "dippm": dippm,
    "dippm with GCN": lambda: _with(dippm(), conv="gcn"),
    "dippm with GIN": lambda: _with(dippm(), conv="gin"),
    "dippm with GAT": lambda: _with(dippm(), conv="gat"),
    "dippm with MLP": lambda: _with(dippm(), conv="mlp"),
}


def trained_as(
    make: Callable[[], Estimator], *, epochs: int | None = None, batch: int | None = None, rate: float | None = None
) -> Callable[[], Estimator]:
    def made() -> Estimator:
        one = make()
        if isinstance(one, GraphNetwork):
            own = one.options
            one.options = replace(
                own, epochs=min(epochs or own.epochs, own.epochs), batch=batch or own.batch, rate=rate or own.rate
            )
        return one

    return made


def duplicates(methods: Mapping[str, Callable[[], Estimator]], metrics: int) -> dict[str, str]:
    """Graph networks equal to an earlier one: its name by theirs."""
    found: dict[str, str] = {}
    first: dict[Any, str] = {}
    for name, make in methods.items():
        made = make()
        if isinstance(made, GraphNetwork) and first.setdefault(made.setting(metrics), name) != name:
            found[name] = first[made.setting(metrics)]
    return found


def unseen_share(estimator: Estimator, graphs: Sequence[PerformanceGraph]) -> float:
    """Mean share of operations in launches that DNNPerf's formula ignores."""
    own = estimator.architecture if isinstance(estimator, GraphNetwork) else None
    if not isinstance(own, Anee) or own.own or own.encoder != "anee":
        return 0.0
    shares = []
    for graph in graphs:
        flops = np.array([node.flops for node in graph.nodes], np.float64)
        shares.append(flops[unseen(graph, own.rounds)].sum() / max(flops.sum(), 1.0))
    return float(np.mean(shares))
