# SPDX-License-Identifier: Apache-2.0
"""Real kernels (sitar-lab/NeuSight): our recipe compared with the plain one, on a random fifth held out.

The plain recipe learns log time from raw sizes, as MIRAGE did; a forest of convolutions, from those and counts (Jung et al.,
table 1). Ours learns the distance from a kernel's bound, with the launch time of the smallest pointwise kernels as its floor.

Products have two extra features: wave occupancy of multiprocessors, and position in the table, since the harness's overhead
drifts: the last convolutions take four to six times as long as the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from .....kernels.cost.features import columns, feature_names
from .....kernels.kinds import ELEMENTWISE, served_by
from .....kernels.network import KernelInvocation, numel
from ....adapt.measurements import MeasurementRows, Measurements
from ....adapt.network_errors import mean_error_percent
from ....errors import ComparisonDataError, MeasurementError
from ....twin.measured.mapping import load_mapping
from ...measure.tables import import_table
from ...networks.predictors.trees import grown
from ...paper.difficulty import trained
from ...train.held_out import measured_kinds
from ...train.kernel_models import Recipe, Table, TrainingOptions, ensemble_of, kernels_of, table_of, train_model
from ..desktop import MAPPING
from ..fit import find_file

TABLES: Mapping[str, str] = {"linear": "matmul", "bmm": "matmul", "add": "add", "relu": "relu", "conv": "conv2d"}
"""Kind of each table's kernels."""
GOALS: Mapping[tuple[str, str], float] = {
    ("v100", "linear"): 4.5, ("v100", "bmm"): 4.5, ("v100", "add"): 0.5, ("v100", "relu"): 0.5, ("v100", "conv"): 12.0,
}  # fmt: skip
"""Goal for the mean error, in percent."""
MULTIPROCESSORS: Mapping[str, int] = {"p4": 20, "p100": 56, "v100": 80, "t4": 40, "a100": 108}
"""By GPU (NVIDIA's data sheets)."""
_TILES = ((32, 32), (64, 32), (32, 64), (64, 64), (128, 32), (32, 128), (128, 64), (64, 128), (128, 128))
_HELD_OUT = 0.2
_LEAST_KERNELS = 20
_PLAIN_ROUNDS, _PLAIN_DEPTH, _PLAIN_RATE = 600, 8, 0.1
_MOST_ROUNDS, _PATIENCE = 5000, 60
_AVERAGED = {"bmm": 3}
_RECIPES = {
    "bmm": (Recipe(6, 0.03, 2.0, 0.6, 0.9), Recipe(7, 0.02, 2.0, 0.6, 0.9)),
    "matmul": (Recipe(7, 0.02, 2.0, 0.8, 0.6),),
    "conv2d": (Recipe(7, 0.05, 2.0, 0.8, 0.6), Recipe(7, 0.1)),
    "": (Recipe(5, 0.02, 2.0, 0.8, 0.6),),
}


class TableDevice(Struct, frozen=True):
    """One table and GPU, with mean absolute percentage errors on held-out kernels."""

    table: str
    gpu: str
    kind: str
    kernels: int
    plain_percent: float
    own_percent: float
    goal_percent: float | None
    forest_percent: float | None = None

    @property
    def passed(self) -> bool:
        return self.own_percent <= min(self.plain_percent, self.goal_percent or np.inf)


def pairs(
    folder: Path, threads: int, seed: int = 0, progress: Callable[[int, int, str], None] = lambda done, total, text: None
) -> Iterator[TableDevice]:
    """Every pair of a table and a GPU. Raises ComparisonDataError."""
    mapping = load_mapping(MAPPING)
    try:
        records = {name: import_table(find_file(folder, f"{name}.csv.gz"), mapping) for name in TABLES}
    except MeasurementError as error:
        raise ComparisonDataError(str(error)) from error
    of_each = [(name, gpu) for name in TABLES for gpu in sorted(records[name])]
    for number, (name, gpu) in enumerate(of_each):
        progress(number, len(of_each), f"{name} on {gpu}")
        record, pointwise = records[name][gpu], records["relu"][gpu]
        training = record if name == "relu" else _together(record, pointwise)
        yield _pair(name, TABLES[name], record, training, _options(threads, seed))
    progress(len(of_each), len(of_each), "done")


def pairs_of(
    name: str,
    record: Measurements,
    others: Sequence[Measurements],
    threads: int,
    seed: int = 0,
    progress: Callable[[int, int, str], None] = lambda done, total, text: None,
) -> Iterator[TableDevice]:
    """Pairs of one table and device, by kind. Raises MeasurementError with too few kernels.

    Args:
        name: file name of the table, without endings.
        others: the device's other tables; pointwise ones give the floor of a launch.
    """
    kinds = [kind for kind in _own_kinds(record) if len(kernels_of(record, kind)) >= _LEAST_KERNELS]
    if not kinds:
        raise MeasurementError(f"fewer than {_LEAST_KERNELS} kernels of every kind; a fifth of them is to be held out")
    device = record.described.name
    for number, kind in enumerate(kinds):
        progress(number, len(kinds), f"{kind} on {device}")
        pointwise = [other for other in others if _is_pointwise(other) and not kernels_of(other, kind)]
        yield _pair(name, kind, record, reduce(_together, pointwise, record), _options(threads, seed))
    progress(len(kinds), len(kinds), "done")


def _own_kinds(record: Measurements) -> list[str]:
    kinds = measured_kinds(record)
    own = {kernel.kind for kernel in record.invocations}
    return [kind for kind in kinds if kind != ELEMENTWISE or own & served_by(ELEMENTWISE) - set(kinds)]


def _is_pointwise(record: Measurements) -> bool:
    return {kernel.kind for kernel in record.invocations} <= served_by(ELEMENTWISE)


def _options(threads: int, seed: int) -> TrainingOptions:
    return TrainingOptions(_RECIPES, most_rounds=_MOST_ROUNDS, patience=_PATIENCE, threads=threads, seed=seed)


def _pair(name: str, kind: str, record: Measurements, training: Measurements, options: TrainingOptions) -> TableDevice:
    gpu = record.described.name
    table = table_of(training, record.described, kind, "time", ())
    table = replace(table, features=np.column_stack([*_of_products(table, kind, gpu), table.features]))
    held = np.random.default_rng(options.seed).random(table.kernel.max() + 1)[table.kernel] < _HELD_OUT
    key = name if name in _RECIPES else kind
    models = [train_model(table.where(~held), key, options)]
    for seed in range(1, _AVERAGED.get(name, 1)):
        models.append(train_model(table.where(~held), key, replace(options, seed=options.seed + seed), models[0]))
    predicted = np.mean([ensemble_of(model).predict(table.features[held]) for model in models], axis=0, dtype=np.float64)
    own = mean_error_percent(np.exp(predicted), np.exp(table.label[held]))
    times = record.tables["kernel_ms"]
    times = times.where(np.isin(times.what, kernels_of(record, kind)))
    sizes = np.array([_sizes(record, what) for what in times.what], np.float32)
    types = sorted({kernel.dtype for kernel in record.invocations})
    others = np.column_stack([table.features[:, -3:], [types.index(record.invocations[what].dtype) for what in times.what]])
    sizes = np.column_stack([sizes, others[:, np.ptp(others, axis=0) > 0]]).astype(np.float32)
    settings = (_PLAIN_ROUNDS, options.threads, options.seed)
    plain = trained(sizes[~held], times.value[~held], *settings, learning_rate=_PLAIN_RATE, depth=_PLAIN_DEPTH)
    off = mean_error_percent(plain(sizes[held]), times.value[held])
    forest = None
    if kind == "conv2d":
        counts = np.array([_counts(record.invocations[what]) for what in times.what])
        layers = np.column_stack([sizes, counts]).astype(np.float32)
        found = grown("rf", layers[~held], np.log(times.value[~held]), options.seed).inplace_predict(layers[held])
        forest = mean_error_percent(np.exp(found, dtype=np.float64), times.value[held])
    return TableDevice(name, gpu, kind, len(table.label), off, own, GOALS.get((gpu, name)), forest)


def _of_products(table: Table, kind: str, gpu: str) -> Iterator[NDArray[np.float32]]:
    """Features of products, (n,) each: position in the table, and log wave quantisation per tile (NVIDIA, "Matrix
    Multiplication Background").
    """
    names = feature_names(kind)
    if "log2_m" not in names:
        return
    yield table.kernel.astype(np.float32)
    own = table.features[:, columns(kind, ("log2_m", "log2_n", "batch", *names[-3:]))[:3]].astype(np.float64)
    m, n = np.rint(2 ** own[:, 0]), np.rint(2 ** own[:, 1])
    products = own[:, 2] if kind == "matmul" else 1.0  # of a convolution, images are rows of one product
    for height, width in _TILES if gpu in MULTIPROCESSORS else ():
        tiles = products * np.ceil(m / height) * np.ceil(n / width)
        places = np.ceil(tiles / MULTIPROCESSORS[gpu]) * MULTIPROCESSORS[gpu] * height * width
        yield np.log2(places / (products * m * n)).astype(np.float32)


def _together(record: Measurements, other: Measurements) -> Measurements:
    first, more = record.tables["kernel_ms"], other.tables["kernel_ms"]
    shifted = replace(more, what=more.what + len(record.invocations))
    tables = {**record.tables, "kernel_ms": MeasurementRows.joined([first, shifted])}
    return replace(record, invocations=(*record.invocations, *other.invocations), tables=tables)


def _counts(kernel: KernelInvocation) -> tuple[int, ...]:
    weight = kernel.params["weight"]
    return numel(kernel.inputs[0]), numel(kernel.output), kernel.flops, numel(weight) if isinstance(weight, tuple) else 0


def _sizes(record: Measurements, what: int) -> list[float]:
    kernel = record.invocations[what]
    sizes = [float(size) for shape in (*kernel.inputs[:1], kernel.output) for size in shape]
    for value in kernel.params.values():
        sizes += map(float, value) if isinstance(value, tuple) else [float(value or 0)]
    return sizes
