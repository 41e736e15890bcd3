# SPDX-License-Identifier: Apache-2.0
"""A small, sound profile bundle whose models are known, for tests of what reads bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jetdvfs.kernels.cost.features import feature_names
from jetdvfs.kernels.cost.host import HostModel
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle.files import BoardArrays
from jetdvfs.profiles.bundle.manifest import KindEntry, Manifest, RegionEntry
from jetdvfs.profiles.lab.train.kernel_models import compacted
from jetdvfs.profiles.lab.train.making import write_bundle

BOARD = load_board("agx-xavier")
FEATURES = feature_names("relu")


def stump(features: int, split: int, threshold: float, left: float, right: float) -> bytes:
    """A model of one tree with one split, in treelite's serialised form."""
    pytest.importorskip("treelite", reason="treelite is the exchange format of bundles")
    from treelite.model_builder import Metadata, ModelBuilder, PostProcessorFunc, TreeAnnotation

    builder: Any = ModelBuilder(
        threshold_type="float32",
        leaf_output_type="float32",
        metadata=Metadata(
            num_feature=features,
            task_type="kRegressor",
            average_tree_output=False,
            num_target=1,
            num_class=[1],
            leaf_vector_shape=(1, 1),
        ),
        tree_annotation=TreeAnnotation(num_tree=1, target_id=[0], class_id=[0]),
        postprocessor=PostProcessorFunc(name="identity"),
        base_scores=[0.0],
    )
    builder.start_tree()
    builder.start_node(0)
    builder.numerical_test(split, threshold, default_left=True, opname="<", left_child_key=1, right_child_key=2)
    builder.end_node()
    for key, value in ((1, left), (2, right)):
        builder.start_node(key)
        builder.leaf(value)
        builder.end_node()
    builder.end_tree()
    return bytes(builder.commit().serialize_bytes())


def make_bundle(
    folder: Path,
    *,
    time: bytes | None = None,
    region: RegionEntry | None = None,
    leakage_mw: float | None = None,
    compact: bool = False,
) -> Manifest:
    """A sound bundle with one kind, whose kernels take e times the roofline below 500 MHz of GPU clock, else twice e.

    Its models are in treelite's form, or compact as those of shipped profiles, which daemons read without treelite.
    """
    n = len(FEATURES)
    manifest = Manifest(
        name=folder.name,
        board=BOARD.name,
        grid=BOARD.grid,
        rails=BOARD.energy_rails,
        simulated=True,
        silicon_version="test-1",
        nodes=(0, 1),
        temperature_c=45.0,
        kinds={"relu": KindEntry(FEATURES, ("float32",), 0.1, 0.2, 10, {}, region)},
        sigma_latency=0.05,
        sigma_energy=0.06,
        command="jetdvfs-lab train",
        leakage_fold_c=None if leakage_mw is None else 38.0,
    )
    models = {"relu": (time or stump(n, n - 2, 500.0, 1.0, 2.0), stump(n, n - 1, 500.0, 5.0, 6.0))}
    if compact:
        from treelite import Model

        time_model, power_model = (compacted(Model.deserialize_bytes(model)) for model in models["relu"])
        models = {"relu": (time_model, power_model)}
    arrays = BoardArrays(
        idle_mw=np.full(BOARD.grid.shape, 4000, np.float32),
        host_active_mw=np.full(BOARD.grid.shape[0], 500, np.float32),
        leakage_mw=None if leakage_mw is None else np.full(BOARD.grid.shape, leakage_mw, np.float32),
    )
    return write_bundle(folder, manifest, models, HostModel({"relu": (1.0, 2000.0, 3.0, 0.5)}, (2.0, 4000.0, 0.0, 0.0)), arrays)
