# SPDX-License-Identifier: Apache-2.0
"""Tables and figures of MIRAGE (SEC '21) that a record allows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct

from ....kernels.grid import FrequencyGrid
from ...adapt.measurements import Measurements
from ...errors import MeasurementError
from ..train.assembly import train_all
from ..train.held_out import measured_kinds
from ..train.kernel_models import FEW_KERNELS, Recipe, TrainedKind, TrainingOptions
from ..train.tuned_recipes import TunedRecipes
from .accuracy import PredictionComparison
from .network_on_boards import NetworkOnBoards, observed
from .overhead import Overhead, overheads
from .rotation import Rotation, rotate
from .single_network_models import MultiBoardGain, left_out_boards, one_against_many
from .variability import BoardSpread, LatencyGrid, means_of_others, over_grid, spreads

Progress = Callable[[int, int, str], None]
Found = TypeVar("Found")

ROTATED = ("table-4", "table-5", "table-6", "table-7", "figure-4", "figure-5")
TRAINED = ("table-2", "figure-6", "figure-7")
PARTS = (
    "table-2", "table-4", "table-5", "table-6", "table-7", "table-8",
    "figure-1", "figure-2", "figure-3", "figure-4", "figure-5", "figure-6", "figure-7",
)  # fmt: skip
"""Tables and figures by the paper's numbers."""
_POWER = ("table-5", "table-7")
_FEW_ROUNDS, _FAST = 150, 0.15  # a few trees that learn fast do for few kernels
_MANY_ROUNDS, _SLOW = 500, 0.05


def options_for(record: Measurements, threads: int, seed: int, tuned: TunedRecipes | None = None) -> TrainingOptions:
    few = len(record.invocations) <= FEW_KERNELS
    rounds, rate, least = (_FEW_ROUNDS, _FAST, 1.0) if few else (_MANY_ROUNDS, _SLOW, 5.0)
    deep = dict.fromkeys(("conv2d", "matmul"), (Recipe(8, rate, min_child_weight=least),))
    recipes = {**deep, "": (Recipe(6, rate, min_child_weight=least),), **(tuned.recipes() if tuned else {})}
    return TrainingOptions(recipes, rounds, threads=threads, seed=seed)


class Study(Struct, frozen=True):
    """Tables and figures of a record; None if not requested or ``missing``."""

    board: str
    silicon_version: str
    nodes: tuple[int, ...]
    samples: Mapping[str, int]
    grid: FrequencyGrid
    missing: Mapping[str, str]
    tuned: TunedRecipes | None
    trained: Mapping[str, TrainedKind] | None
    rotation: Rotation | None
    others: Mapping[tuple[str, str], PredictionComparison]
    specialised: Mapping[str, Mapping[str, PredictionComparison]] | None
    one_against_many: Sequence[MultiBoardGain] | None
    spreads: Sequence[BoardSpread] | None
    over_grid: Sequence[LatencyGrid] | None
    observed: Sequence[NetworkOnBoards] | None
    overheads: Sequence[Overhead] | None


def study(
    record: Measurements,
    wanted: Collection[str],
    left_out: Sequence[int],
    options: TrainingOptions,
    progress: Progress,
    tuned: TunedRecipes | None = None,
) -> Study:
    """Make some :data:`PARTS` of a record; impossible ones are listed as missing."""
    missing: dict[str, str] = {}

    def tried(parts: Collection[str], make: Callable[[], Found]) -> Found | None:
        asked = [part for part in parts if part in wanted and part not in missing]
        if not asked:
            return None
        try:
            return make()
        except MeasurementError as error:
            missing.update(dict.fromkeys(asked, str(error)))
            return None

    rotation = tried(ROTATED, lambda: rotate(record, left_out, options, progress))
    if not record.powered:
        missing.update({part: "power was not measured" for part in _POWER if part in wanted and part not in missing})

    def trained() -> Mapping[str, TrainedKind]:
        kinds = measured_kinds(record)
        return train_all(record, record.described, record.networks, kinds, options, progress)

    models = rotation.trained if rotation else tried(TRAINED, trained)
    kinds = [record.invocations[what].kind for what in record.tables["kernel_ms"].what]
    return Study(
        board=record.board,
        silicon_version=record.silicon_version,
        nodes=record.nodes,
        samples={kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        grid=record.described.grid,
        tuned=tuned,
        trained=models,
        rotation=rotation,
        others=means_of_others(record, rotation.left_out) if rotation else {},
        specialised=tried(("figure-5",), lambda: left_out_boards(record, left_out, progress, options.seed)),
        one_against_many=tried(
            ("table-8",), lambda: one_against_many(record, some_of(record.nodes, 2), progress, options.seed)
        ),
        spreads=tried(("figure-2", "figure-3"), lambda: spreads(record)),
        over_grid=tried(("figure-1",), lambda: over_grid(record)),
        observed=tried(("figure-4",), lambda: observed(record)),
        overheads=tried(("figure-6", "figure-7"), lambda: overheads(record, models or {}, options.seed)),
        missing=missing,
    )


def some_of(nodes: Sequence[int], count: int) -> tuple[int, ...]:
    if count >= len(nodes):
        return tuple(nodes)
    return tuple(nodes[int(at)] for at in np.floor((np.arange(count) + 0.5) * len(nodes) / count))
