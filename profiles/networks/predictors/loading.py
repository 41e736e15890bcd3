# SPDX-License-Identifier: Apache-2.0
"""Every predictor there is by name, and reading one that was saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import RecordError
from . import estimator
from .estimator import Estimator
from .graph_network import GraphNetwork, dippm, dnnperf, seernet, seernet_multi
from .kernel_level import Roofline
from .trees import Addition, GlobalTrees

PREDICTORS: Mapping[str, Callable[[], Estimator]] = {
    "forest": lambda: GlobalTrees("rf"),
    "boosting": lambda: GlobalTrees("gb"),
    "xgboost": lambda: GlobalTrees("xgb"),
    "roofline": Roofline,
    "xgboost-added": lambda: GlobalTrees("xgb", Addition()),
    "seernet": seernet,
    "seernet-multi": seernet_multi,
    "dnnperf": dnnperf,
    "dippm": dippm,
}
"""With the settings of their papers."""

#: What the papers leave out or put in the place of something, on one split at one size: PerfSeer's table 2 and figure 6,
#: DNNPerf's table VIII, DIPPM's table 4.
ABLATIONS: Mapping[str, Callable[[], Estimator]] = {
    "seernet": seernet,
    "seernet without GNPB": lambda: _with(seernet(), gnpb=False),
    "seernet without SynMM, GNPB": lambda: _with(seernet(), synmm=False, gnpb=False),
    "seernet-multi": seernet_multi,
    "seernet-multi without PCGrad": lambda: seernet_multi(pcgrad=False),
    "dnnperf": dnnperf,
    "dnnperf with GAT": lambda: _with(dnnperf(), encoder="gat"),
    "dnnperf with mean readout": lambda: _with(dnnperf(), readout="mean"),
    "dippm": dippm,
    **{f"dippm with {conv.upper()}": (lambda conv=conv: _with(dippm(), conv=conv)) for conv in ("gcn", "gin", "gat", "mlp")},
}


def _with(made: GraphNetwork, **changes: Any) -> GraphNetwork:
    """A predictor with another architecture's settings."""
    made.architecture = replace(made.architecture, **changes)  # type: ignore[type-var]
    return made


def with_epochs(make: Callable[[], Estimator], epochs: int | None) -> Callable[[], Estimator]:
    """The same predictor, but trained for at most so many epochs; trees know of none."""

    def made() -> Estimator:
        one = make()
        if epochs is not None and isinstance(one, GraphNetwork):
            one.options = replace(one.options, epochs=min(epochs, one.options.epochs))
        return one

    return made


_KINDS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Estimator]] = {
    "graph": GraphNetwork.restored,
    "trees": GlobalTrees.restored,
}


def load(path: Path) -> Estimator:
    """Read a predictor that was saved.

    Raises:
        RecordError: it cannot be read as one.
    """
    about, arrays = estimator.read(path)
    kind = about.get("kind")
    if kind not in _KINDS:
        raise RecordError(f"{path}: a predictor of kind {kind!r:.40}; valid: {', '.join(_KINDS)}")
    try:
        return _KINDS[kind](about, arrays)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from error
