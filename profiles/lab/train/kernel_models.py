# SPDX-License-Identifier: Apache-2.0
"""Kernel models: gradient-boosted trees per kind, for log(time / roofline bound) and log(power above idle).

Validation holds out boards, as MIRAGE (SEC '21, section 4.3), and kernels, since unseen networks have new ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from ....kernels.cost.features import FREQUENCY_FEATURES, MODELLED_KINDS, feature_names, feature_rows
from ....kernels.cost.products import WORK
from ....kernels.cost.roofline import LaunchFloor, bound_at_ms
from ....kernels.kinds import ELEMENTWISE, fused_of, served_by
from ....kernels.network import KernelInvocation
from ....kernels.trees.compact import HEADER, MAGIC, Header, number_type
from ....kernels.trees.ensemble import TreeEnsemble
from ....kernels.trees.forest import forest_of, levels
from ....kernels.trees.node_table import FREQUENCIES
from ...adapt.measurements import MeasurementRows, Measurements
from ...device import MeasuredDevice
from ...errors import MeasurementError
from .host_fit import clocks_mhz, fit_floor, fit_gap_us, fit_timing_us


def compacted(model: Any, axes: int = len(FREQUENCIES)) -> bytes:
    """Compact bytes of a ``treelite.Model`` for :func:`jetdvfs.kernels.trees.compact.read_compact`. Raises EnsembleError."""
    n_features, base_score, forest = forest_of(model, axes)
    order = np.concatenate([forest.first[:0], *levels(forest)])
    leaf, value = forest.leaf[order], forest.value[order].astype("<f4")
    split = np.stack([forest.feature[order][~leaf], value[~leaf].view("<u4")])
    splits, split_number = np.unique(split, axis=1, return_inverse=True)
    leaves, leaf_number = np.unique(value[leaf].view("<u4"), return_inverse=True)
    header = Header(n_features, len(forest.sizes), len(leaf), splits.shape[1], len(leaves), base_score)
    return b"".join(
        [
            MAGIC,
            HEADER.pack(*header),
            np.packbits(leaf).tobytes(),
            np.packbits(forest.default_left[order][~leaf]).tobytes(),
            splits[0].astype("<u2").tobytes(),
            splits[1].astype("<u4").tobytes(),
            leaves.tobytes(),
            split_number.ravel().astype(number_type(header.splits)).tobytes(),
            leaf_number.ravel().astype(number_type(header.leaves)).tobytes(),
        ]
    )


TARGETS: Mapping[str, str] = {"time": "kernel_ms", "power": "kernel_mw"}
"""Models of a kind, and their training tables."""

_NEXT_TO_NOTHING = 20_000  # FLOPs and bytes together
# Of a workstation's GPU: unseen products of an H200 are predicted better so. Layers of an AGX Orin are not.
_TILE = 128
_LEAST_OF_TIMED = 0.25  # least share of a time after subtraction of timing cost
_LEAF_STEP, _AT_RATE, _OF_RATE = 1 / 1024, 0.1, 0.1  # leaves go with the rate; of slow learners there are many
_FEW_POWERS = 20  # of a kind: those of all kinds are then learned together, by work
_LEAST_ROWS = 1_000  # in a part on a cluster: below, the workers wait for each other more than they work
FEW_KERNELS = 5_000
"""Up to this count, leaves may be small and networks' kernels weigh more."""
_FAMILIAR = 1 / 3  # of the weight: with half of it, kernels of other networks were predicted worse, most of all convolutions
# Power above idle that cannot be told from none is taken as this: sensors have steps of 150 mW, and idle power varies.
_LEAST_MW, _LEAST_OF_IDLE = 100.0, 0.02


class Recipe(Struct, frozen=True):
    """Hyperparameters of one model; validation chooses the number of trees."""

    max_depth: int
    learning_rate: float
    min_child_weight: float = 5.0
    subsample: float = 0.8
    colsample_bytree: float = 0.8
    reg_lambda: float = 1.0
    rounds: int = 0
    reg_alpha: float = 0.0
    colsample_bynode: float = 1.0


class TrainingOptions(Struct, frozen=True):
    """Training options.

    Attributes:
        recipes: candidates per kind, or per kind and target (``conv2d time``); key ``""`` for the rest.
        patience: rounds without improvement that end a validation run.
    """

    recipes: Mapping[str, tuple[Recipe, ...]]
    most_rounds: int = 600
    patience: int = 25
    threads: int = 1
    seed: int = 0
    cluster: Any = None


class Table(Struct, frozen=True):
    """Training set of n rows and p features, with groups for validation."""

    features: NDArray[np.float32]
    label: NDArray[np.float64]
    weight: NDArray[np.float64]
    node: NDArray[np.int64]
    kernel: NDArray[np.int64]

    def where(self, mask: NDArray[np.bool_]) -> Table:
        return Table(self.features[mask], self.label[mask], self.weight[mask], self.node[mask], self.kernel[mask])


class TrainedModel(Struct, frozen=True):
    """One model as treelite bytes; ``sigma`` is of log(measured / predicted) on held-out data."""

    treelite: bytes
    recipe: Recipe
    sigma: float
    samples: int


class TrainedKind(Struct, frozen=True):
    """Models of a kernel kind; no power if not measured."""

    kind: str
    time: TrainedModel
    power: TrainedModel | None

    def of(self, target: str) -> TrainedModel | None:
        return self.time if target == "time" else self.power


def table_of(
    measurements: Measurements,
    board: MeasuredDevice,
    kind: str,
    target: str,
    familiar: Collection[Any],
    nodes: Collection[int] | None = None,
    without: Collection[Any] = (),
) -> Table:
    """Training set of a kind.

    Args:
        kind: kernel kind, or the family of pointwise kinds.
        target: ``time`` or ``power``.
        familiar: signatures of the networks' kernels, with a third of the weight; among few kernels halfway to their share of
            rows, if larger.
        without: signatures of kernels to omit.
    """
    kept = kernels_of(measurements, kind, without)
    rows = measurements.tables[TARGETS[target]]
    mask = np.isin(rows.what, kept)
    if nodes is not None:
        mask &= np.isin(rows.node, list(nodes))
    rows = rows.where(mask)
    if target == "time":
        rows = in_stream(measurements, board, rows)
    if not len(rows):
        raise MeasurementError(f"{kind}: no {target} was measured")
    position = {what: index for index, what in enumerate(kept)}
    invocations = [measurements.invocations[what] for what in kept]
    of_row = np.array([position[int(what)] for what in rows.what])
    features = feature_rows(kind, invocations)[of_row]
    clocks = clocks_mhz(rows.configuration, board.grid)
    features[:, -3:] = np.stack(clocks, axis=1)
    if target == "time":
        bounds = bounds_at_ms(invocations, of_row, clocks, board, floor_of(measurements, board))
        label = np.log(rows.value / bounds)
    else:
        label = np.log(np.maximum(rows.value, _least_mw(measurements)))
    of_network = np.array([invocation.signature in familiar for invocation in invocations])[of_row]
    share = float(of_network.mean())
    few = len(measurements.invocations) <= FEW_KERNELS
    whole = max(_FAMILIAR, (_FAMILIAR + share) / 2) if few else _FAMILIAR
    weight = np.where(of_network, whole / share, (1 - whole) / (1 - share)) if 0 < share < 1 else np.ones(len(rows))
    return Table(features, label, weight, rows.node, of_row)


def _least_mw(measurements: Measurements) -> float:
    idle_mw = measurements.tables["idle_mw"].value
    return max(_LEAST_MW, _LEAST_OF_IDLE * float(np.median(idle_mw))) if len(idle_mw) else _LEAST_MW


def kernels_of(measurements: Measurements, kind: str, without: Collection[Any] = ()) -> list[int]:
    """Numbers of a kind's training kernels; ``Table.kernel`` indexes this list."""
    kinds = {kind, *served_by(kind), *(made.name for made in fused_of(kind))}
    numbers = sorted(number for each in kinds for number in measurements.numbers_by_kind.get(each, ()))
    return [number for number in numbers if measurements.invocations[number].signature not in without]


def floor_of(measurements: Measurements, board: MeasuredDevice) -> LaunchFloor:
    rows, idle = measurements.tables[TARGETS["time"]], np.flatnonzero(measurements.work < _NEXT_TO_NOTHING)
    rows = in_stream(measurements, board, rows.where(np.isin(rows.what, idle)))
    tile = _TILE if board.own_memory else 1
    return fit_floor(clocks_mhz(rows.configuration, board.grid)[1], 1e3 * rows.value, tile)


def in_stream(measurements: Measurements, board: MeasuredDevice, rows: MeasurementRows) -> MeasurementRows:
    """Kernel times within a network, with pauses but without timing cost."""
    timing_ms, gap_ms = stream_parts_ms(measurements, board, rows.configuration)
    own = rows.value - timing_ms
    return replace(rows, value=own + gap_ms).where(own > _LEAST_OF_TIMED * rows.value)


def stream_parts_ms(
    measurements: Measurements, board: MeasuredDevice, configuration: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Timing cost of a kernel alone, and its pause within a network, (n,) in ms."""
    cpu_mhz, gpu_mhz, _ = clocks_mhz(configuration, board.grid)
    constant_us, slope_us = fit_gap_us(measurements.tables["gap_us"], board.grid)
    timing_us, of_cpu, of_gpu = fit_timing_us(measurements.tables["timing_us"], board.grid)
    timing_ms = np.maximum(timing_us + of_cpu / cpu_mhz + of_gpu / gpu_mhz, 0.0) / 1e3
    return timing_ms, np.asarray((constant_us + slope_us / gpu_mhz) / 1e3)


def residuals_of(
    measurements: Measurements,
    board: MeasuredDevice,
    kind: str,
    target: str,
    model: TrainedModel,
    kernels: Collection[Any],
    nodes: Collection[int],
) -> NDArray[np.float64]:
    others = {measurements.invocations[number].signature for number in kernels_of(measurements, kind)} - set(kernels)
    try:
        table = table_of(measurements, board, kind, target, kernels, nodes, others)
    except MeasurementError:
        return np.zeros(0)
    predicted = np.asarray(ensemble_of(model).predict(table.features), np.float64)
    return np.asarray(table.label - predicted)


def bounds_at_ms(
    invocations: Sequence[KernelInvocation],
    of_row: NDArray[Any],
    clocks: Sequence[NDArray[np.float64]],
    board: MeasuredDevice,
    floor: LaunchFloor,
) -> NDArray[np.float64]:
    """Roofline bound in ms, (n,), of ``invocations[of_row]``, each at its clocks in MHz."""
    return bound_at_ms([invocations[number] for number in of_row], clocks[1], clocks[2], board.chip, floor)


def train_kind(
    measurements: Measurements,
    board: MeasuredDevice,
    kind: str,
    options: TrainingOptions,
    familiar: Collection[Any],
    *,
    nodes: Collection[int] | None = None,
    without: Collection[Any] = (),
    recipes: TrainedKind | None = None,
) -> TrainedKind:
    """Train a kind's models on everything, with validated recipes or given ones."""

    def table(target: str) -> Table:
        return table_of(measurements, board, kind, target, familiar, nodes, without)

    def model(target: str, rows: Table) -> TrainedModel:
        key = f"{kind} {target}" if f"{kind} {target}" in options.recipes else kind
        return train_model(rows, key, options, None if recipes is None else recipes.of(target))

    times = table("time")
    if not measurements.powered:
        return TrainedKind(kind, model("time", times), None)
    powers = _powers(measurements, board, kind, familiar, nodes, without)
    own = len(powers.label)
    if own < _FEW_POWERS:
        more = [one for one in (*MODELLED_KINDS, ELEMENTWISE) if one != kind]
        tables = [(one, _powers(measurements, board, one, familiar, nodes, without)) for one in more]
        powers = _joined(kind, [(kind, powers), *tables])
    if not len(powers.label):
        raise MeasurementError(f"{kind}: no power was measured")
    power = replace(model("power", powers), samples=own)
    return TrainedKind(kind, model("time", times), power if own else replace(power, sigma=float(powers.label.std())))


def _powers(
    measurements: Measurements,
    board: MeasuredDevice,
    kind: str,
    familiar: Collection[Any],
    nodes: Collection[int] | None,
    without: Collection[Any],
) -> Table:
    try:
        return table_of(measurements, board, kind, "power", familiar, nodes, without)
    except MeasurementError:
        none = np.zeros(0, np.int64)
        return Table(np.zeros((0, len(feature_names(kind))), np.float32), np.zeros(0), np.zeros(0), none, none)


def _joined(kind: str, tables: Sequence[tuple[str, Table]]) -> Table:
    """Rows of several kinds as those of one, of other kinds with the features of work and clocks alone."""
    names, common = feature_names(kind), (*WORK, *FREQUENCY_FEATURES)
    columns, first = [names.index(name) for name in common], 0
    features, kernels = [], []
    for other, table in tables:
        rows = np.full((len(table.label), len(names)), np.nan, np.float32)
        of_other = feature_names(other)
        rows[:, columns] = table.features[:, [of_other.index(name) for name in common]]
        features.append(table.features if other == kind else rows)
        kernels.append(table.kernel + first)
        first += int(table.kernel.max(initial=0)) + 1
    label, weight, node = (np.concatenate([getattr(one, name) for _, one in tables]) for name in ("label", "weight", "node"))
    return Table(np.concatenate(features), label, weight, node, np.concatenate(kernels))


def train_model(table: Table, key: str, options: TrainingOptions, earlier: TrainedModel | None = None) -> TrainedModel:
    if earlier is None:
        recipe, sigma = choose_recipe(table, options.recipes.get(key, options.recipes[""]), options)
    else:
        recipe, sigma = earlier.recipe, earlier.sigma
    booster = _boost(table, recipe, options, recipe.rounds)[0]
    step = min(_LEAF_STEP * max(recipe.learning_rate / _AT_RATE, 1.0) ** 2, _OF_RATE * recipe.learning_rate**2)
    return TrainedModel(treelite_bytes(booster, step), recipe, sigma, len(table.label))


def choose_recipe(table: Table, recipes: Sequence[Recipe], options: TrainingOptions) -> tuple[Recipe, float]:
    """Best recipe on unseen boards and kernels, and its error's deviation."""
    rng = np.random.default_rng(options.seed)
    kernels, nodes = np.unique(table.kernel), np.unique(table.node)
    held_kernels = rng.choice(kernels, max(len(kernels) // 5, 1), replace=False)
    held_nodes = rng.choice(nodes, max(len(nodes) // 4, 1), replace=False)
    out = np.isin(table.kernel, held_kernels)
    strange = np.isin(table.node, held_nodes)
    if len(kernels) < 2 or not (out & strange).any():
        out, strange = rng.random(len(table.label)) < 0.2, np.ones(len(table.label), np.bool_)
    rest = ~out & ~strange if (~out & ~strange).any() else ~out
    training, validation = table.where(rest), table.where(out & strange)
    best: tuple[float, Recipe] | None = None
    for recipe in recipes:
        _, rounds, error = _boost(training, recipe, options, recipe.rounds or options.most_rounds, validation)
        if best is None or error < best[0]:
            best = (error, replace(recipe, rounds=rounds))
    assert best is not None
    return best[1], best[0]


def left_out_error(table: Table, left_out: NDArray[np.bool_], recipe: Recipe, options: TrainingOptions) -> NDArray[np.float64]:
    import xgboost

    booster = _boost(table.where(~left_out), recipe, options, recipe.rounds)[0]
    held = table.where(left_out)
    predicted = booster.predict(xgboost.DMatrix(held.features, nthread=options.threads))
    return np.asarray(held.label - predicted.astype(np.float64))


def _boost(
    table: Table, recipe: Recipe, options: TrainingOptions, rounds: int, validation: Table | None = None
) -> tuple[Any, int, float]:
    parameters = boosting_parameters(recipe, options.threads, options.seed)
    if options.cluster is None:
        booster = _boosted_here(parameters, table, rounds, validation, options)
    else:
        booster = boosted_on_cluster(options.cluster, parameters, table, rounds, validation, options.patience)
    return (booster, rounds, 0.0) if validation is None else (booster, booster.best_iteration + 1, float(booster.best_score))


def _boosted_here(parameters: dict[str, Any], table: Table, rounds: int, held: Table | None, options: TrainingOptions) -> Any:
    import xgboost

    def matrix(rows: Table) -> Any:
        return xgboost.DMatrix(rows.features, rows.label, weight=rows.weight, nthread=options.threads)

    stopping = {} if held is None else {"evals": [(matrix(held), "held")], "early_stopping_rounds": options.patience}
    return xgboost.train(parameters, matrix(table), rounds, verbose_eval=False, **stopping)


def boosted_on_cluster(
    client: Any,
    parameters: Mapping[str, Any],
    training: Table,
    rounds: int,
    held: Table | None = None,
    patience: int = 0,
) -> Any:
    """Booster trained on a Dask cluster, each worker with part of the rows."""
    import dask.array
    from xgboost import dask as on_dask

    parts = max(len(client.scheduler_info(n_workers=-1)["workers"]), 1)

    def spread(rows: Table) -> Any:
        chunk = max(-(-len(rows.label) // parts), _LEAST_ROWS)
        features = dask.array.from_array(rows.features, chunks=(chunk, -1))
        label, weight = (dask.array.from_array(one, chunks=chunk) for one in (rows.label, rows.weight))
        return on_dask.DaskDMatrix(client, features, label, weight=weight)

    stopping = {} if held is None else {"evals": [(spread(held), "held")], "early_stopping_rounds": patience}
    found = on_dask.train(client, dict(parameters), spread(training), rounds, verbose_eval=False, **stopping)
    return found["booster"]


def boosting_parameters(recipe: Recipe, threads: int, seed: int) -> dict[str, Any]:
    own = {name: value for name, value in asdict(recipe).items() if name != "rounds"}
    grown = {"objective": "reg:squarederror", "tree_method": "hist", "max_bin": 256}
    return {**grown, **own, "nthread": threads, "seed": seed, "verbosity": 0}


def treelite_bytes(booster: Any, step: float) -> bytes:
    """Booster as treelite bytes; leaves are multiples of ``step`` to compress."""
    import treelite

    model = treelite.frontend.from_xgboost(booster)
    for index in range(model.num_tree):
        tree = model.get_tree_accessor(index)
        nodes = int(tree.get_field("num_nodes")[0])
        leaves = tree.get_field("leaf_value")
        tree.set_field("leaf_value", (np.rint(leaves / step) * step).astype(leaves.dtype))
        for name, kind in (("sum_hess", np.float64), ("gain", np.float64), ("data_count", np.uint64)):
            if len(tree.get_field(name)) == nodes:
                tree.set_field(name, np.zeros(nodes, kind))
                tree.set_field(f"{name}_present", np.zeros(nodes, np.uint8))
    return bytes(model.serialize_bytes())


def compact_bytes(model: TrainedModel, factor: float) -> bytes:
    """Compact bytes of a model whose predictions are multiplied by ``factor``."""
    return compacted(_scaled(model, factor))


def ensemble_of(model: TrainedModel, factor: float = 1.0) -> TreeEnsemble:
    """Ensemble of a model whose predictions are multiplied by ``factor``."""
    return TreeEnsemble.from_treelite(_scaled(model, factor))


def _scaled(model: TrainedModel, factor: float) -> Any:
    import treelite

    scaled = treelite.Model.deserialize_bytes(model.treelite)
    header = scaled.get_header_accessor()
    header.set_field("base_scores", header.get_field("base_scores") + np.log(factor))
    return scaled
