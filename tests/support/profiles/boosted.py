# SPDX-License-Identifier: Apache-2.0
"""XGBoost models of kernel-like data, for the tests and benchmarks of tree ensembles."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

xgboost = pytest.importorskip("xgboost", reason="xgboost is the oracle of tree ensembles")
treelite = pytest.importorskip("treelite", reason="tree ensembles are exchanged through treelite")

CPU_MHZ = np.linspace(115.2, 2265.6, 29).astype(np.float32)
GPU_MHZ = np.linspace(114.75, 1377.0, 14).astype(np.float32)
EMC_MHZ = np.array([204, 408, 665.6, 800, 1065.6, 1331.2, 1600, 1866, 2133], np.float32)
XAVIER = (CPU_MHZ, GPU_MHZ, EMC_MHZ)


def kernel_samples(
    n: int, seed: int, levels: tuple[NDArray[np.float32], ...] = XAVIER
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Features as of convolutions at random configurations, and a log time that depends on all of them.

    The levels are those of one or more CPU clusters, the GPU and the memory.
    """
    rng = np.random.default_rng(seed)
    batch = rng.choice([1, 2, 4, 8, 16], n)
    channels = rng.choice([3, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024], (2, n))
    size, kernel, stride = rng.integers(4, 225, n), rng.choice([1, 3, 5, 7], n), rng.choice([1, 2], n)
    outputs = batch * channels[1] * (size / stride) ** 2
    flops = 2.0 * outputs * channels[0] * kernel**2
    moved = 4.0 * (batch * channels[0] * size**2 + outputs + channels[0] * channels[1] * kernel**2)
    *clusters, gpu, emc = (rng.choice(axis, n) for axis in levels)
    work = [batch, *channels, size, kernel, stride, flops, moved, flops / moved, outputs]
    rows = np.stack([*work, *clusters, gpu, emc], axis=1)
    cpu = np.mean(clusters, axis=0)
    time = np.maximum(flops / (gpu * 2e6) * (1 + 0.3 * np.sin(channels[1] / 50)), moved / (emc * 3e4))
    target = np.log(time * (1 + 0.2 * (kernel == 1)) + 30 / cpu + 0.02) + rng.normal(0, 0.05, n)
    return rows.astype(np.float32), target.astype(np.float32)


def train(rows: NDArray[np.float32], target: NDArray[Any], rounds: int, **parameters: Any) -> Any:
    return xgboost.train({"nthread": 1, **parameters}, xgboost.DMatrix(rows, target, nthread=1), rounds)


def on_grid(row: NDArray[np.float32], levels: tuple[NDArray[np.float32], ...]) -> NDArray[np.float32]:
    """One row per configuration, with the frequencies filled in."""
    configurations = np.stack(np.meshgrid(*levels, indexing="ij"), axis=-1).reshape(-1, len(levels))
    rows = np.tile(row, (len(configurations), 1))
    rows[:, -len(levels) :] = configurations
    return rows


def thresholds(booster: Any, feature: int) -> list[np.float32]:
    """The thresholds of a model's splits on one feature."""
    found = []

    def visit(node: dict[str, Any]) -> None:
        if "children" in node:
            if node["split"] == f"f{feature}":
                found.append(np.float32(node["split_condition"]))
            for child in node["children"]:
                visit(child)

    for text in booster.get_dump(dump_format="json"):
        visit(json.loads(text))
    return found


@st.composite
def trained(draw: st.DrawFn, axes: int = 3) -> tuple[Any, np.random.Generator, int, list[NDArray[Any]]]:
    """An XGBoost model of random data, and the levels it saw on each of its frequency axes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_features = axes + draw(st.integers(0, 4))
    seen = [np.sort(rng.uniform(100, 2000, draw(st.integers(1, 8)))).astype(np.float32) for _ in range(axes)]
    rows = rng.normal(0, 1, (draw(st.integers(5, 300)), n_features)).astype(np.float32)
    rows = np.where(rng.random(rows.shape) < draw(st.sampled_from([0.0, 0.3, 0.9])), np.float32(np.nan), rows)
    for axis, levels in enumerate(seen, start=n_features - axes):
        rows[:, axis] = rng.choice(levels, len(rows))
    used = rng.random(n_features) < 0.7  # the others are in no split, mostly
    target = np.nan_to_num(rows)[:, used].sum(axis=1) / 100 + rng.normal(0, 1, len(rows))
    parameters: dict[str, Any] = {
        "tree_method": draw(st.sampled_from(["hist", "exact", "approx"])),
        "max_depth": draw(st.integers(1, 9)),
        "gamma": draw(st.sampled_from([0.0, 0.5, 1e9])),  # 1e9: every tree is one leaf
        "num_parallel_tree": draw(st.sampled_from([1, 3])),
    }
    if parameters["tree_method"] == "hist" and draw(st.booleans()):
        parameters |= {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": draw(st.integers(2, 40))}
    if draw(st.booleans()):
        # Releases of XGBoost and treelite differ in whether they read numbers next to zero.
        parameters["base_score"] = draw(st.integers(-50_000, 50_000)) / 1e3
    return train(rows, target, draw(st.integers(0, 12)), **parameters), rng, n_features, seen
