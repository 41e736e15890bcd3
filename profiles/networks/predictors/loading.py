# SPDX-License-Identifier: Apache-2.0
"""Every predictor there is by name, and reading one that was saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...errors import RecordError
from . import estimator
from .estimator import Estimator
from .graph_network import GraphNetwork, dippm, dnnperf, seernet, seernet_multi
from .trees import Addition, GlobalTrees

PREDICTORS: Mapping[str, Callable[[], Estimator]] = {
    "forest": lambda: GlobalTrees("rf"),
    "boosting": lambda: GlobalTrees("gb"),
    "xgboost": lambda: GlobalTrees("xgb"),
    "xgboost-added": lambda: GlobalTrees("xgb", Addition()),
    "seernet": seernet,
    "seernet-multi": seernet_multi,
    "dnnperf": dnnperf,
    "dippm": dippm,
}
"""With the settings of their papers."""

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
