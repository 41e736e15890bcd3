# SPDX-License-Identifier: Apache-2.0
"""Each board of a record held out in turn: errors of models trained on the rest.

MIRAGE (SEC '21) held out two boards of thirteen (section 6.1), and one at a time for tuning (4.3). Kernel times include timing
cost; networks follow sections 6.2 and 6.3. With one board, parts of its networks and kernels are held out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ....kernels.cost.board import BoardCost
from ....kernels.cost.features import feature_rows
from ....kernels.cost.model import surface
from ....kernels.network import KernelInvocation
from ....kernels.surface import Surface
from ....kernels.units import METHODS, Method
from ...adapt.measurements import NETWORK_TABLES, MeasurementRows, Measurements
from ...device import MeasuredDevice
from ...errors import MeasurementError
from ..train.assembly import AssemblyFold, board_cost, inside_networks, train_all
from ..train.held_out import measured_kinds
from ..train.host_fit import clocks_mhz, fit_idle_mw
from ..train.kernel_models import TARGETS, TrainedKind, TrainingOptions, bounds_at_ms, ensemble_of, floor_of, stream_parts_ms
from .accuracy import PredictionComparison
from .difficulty import plain_features
from .difficulty import trained as plain_model
from .published import NAMES

_PARTS = 5
_KERNELS = ("kernel_ms", "kernel_mw", "gap_us", "timing_us")


class HeldOutPart(Struct, frozen=True):
    """Held-out part: training record, test record, and networks by position."""

    name: str
    known: Measurements
    held_out: Measurements
    networks: tuple[int, ...]
    fold: AssemblyFold | None = None


def parts_of(record: Measurements, left_out: Sequence[int]) -> list[HeldOutPart]:
    """Held-out parts of a record, by board if there are several. Raises MeasurementError."""
    if len(record.nodes) > 1:
        every = tuple(range(len(record.networks)))
        others = [set(record.nodes) - {node} for node in left_out]
        return [
            HeldOutPart(f"board {node}", on_boards(record, rest), on_boards(record, {node}), every)
            for node, rest in zip(left_out, others, strict=True)
        ]
    measured = set(map(int, record.tables["network_ms"].what))
    whole = [what for what, network in enumerate(record.networks) if network.launches and what in measured]
    if len(whole) < 2:
        raise MeasurementError(
            f"the record is of one board and {len(whole)} networks with known launches; leaving some out takes two or more"
        )
    rng = np.random.default_rng(0)
    order, count = rng.permutation(whole), min(_PARTS, len(whole))
    signatures = [{launch.signature for launch in network.launches} for network in record.networks]
    of_networks = set().union(*signatures)
    random = [what for what, kernel in enumerate(record.invocations) if kernel.signature not in of_networks]
    shuffled = rng.permutation(random)
    return [
        _without(record, tuple(map(int, order[number::count])), set(map(int, shuffled[number::count])), signatures)
        for number in range(count)
    ]


def on_boards(record: Measurements, nodes: set[int]) -> Measurements:
    return replace(record, tables={name: rows.where(np.isin(rows.node, list(nodes))) for name, rows in record.tables.items()})


def _without(
    record: Measurements, networks: tuple[int, ...], random: set[int], signatures: Sequence[Collection[object]]
) -> HeldOutPart:
    others: set[object] = set().union(*(own for what, own in enumerate(signatures) if what not in networks))
    theirs = set().union(*(signatures[what] for what in networks)) - others
    kernels = random | {what for what, kernel in enumerate(record.invocations) if kernel.signature in theirs}
    known, held_out = dict(record.tables), dict(record.tables)
    for names, left in ((_KERNELS, kernels), (NETWORK_TABLES, set(networks))):
        for name in names:
            rows = record.tables[name]
            out = np.isin(rows.what, list(left))
            known[name], held_out[name] = rows.where(~out), rows.where(out)
    left_out = tuple(record.networks[what] for what in networks)
    return HeldOutPart(
        ", ".join(network.name for network in left_out),
        replace(record, tables=known),
        replace(record, tables=held_out),
        networks,
        AssemblyFold(left_out, ()),
    )


Progress = Callable[[int, int, str], None]

_LEAST_OF_TIMED = 0.1  # of a predicted time, with timing cost
DTYPE = "float32"
"""Single precision, as in the paper."""


class KernelRows(Struct, frozen=True):
    """Kernels of one kind on held-out boards, in ms or W.

    Attributes:
        own: True for a network's kernel, False for a random one, (n,).
        plain: predictions of the paper's recipe (:mod:`.difficulty`) on the same rows.
    """

    compared: PredictionComparison
    own: NDArray[np.bool_]
    plain: PredictionComparison

    @property
    def weight(self) -> NDArray[np.float64]:
        """Weights as in the paper (section 4.2): random kernels only, if there are any."""
        return np.where(self.own, 0.0, 1.0) if (~self.own).any() else np.ones(len(self.own))

    def weighed(self, kind: str) -> NDArray[np.float64]:
        """:attr:`weight`, but half and half for convolutions, as in the paper."""
        share = float(self.own.mean())
        if kind != "conv2d" or share in (0.0, 1.0):
            return self.weight
        return np.where(self.own, 0.5 / share, 0.5 / (1.0 - share))

    @classmethod
    def joined(cls, parts: Sequence[KernelRows]) -> KernelRows:
        plain = PredictionComparison.joined([part.plain for part in parts])
        return cls(
            PredictionComparison.joined([part.compared for part in parts]), np.concatenate([part.own for part in parts]), plain
        )


class NetworkRows(Struct, frozen=True):
    """One network on held-out boards: latency in ms and energy in J, by method, at flat grid indices (n,)."""

    latency: Mapping[Method, PredictionComparison]
    energy: Mapping[Method, PredictionComparison]
    configuration: NDArray[np.int64]


class Rotation(Struct, frozen=True):
    """Result of holding out boards.

    Attributes:
        left_out: boards, one at a time; empty if one board was split into ``parts``.
        samples: mean training rows, by kind and target.
        kernels: by kind and target ("time" in ms, "power" in W).
        networks: by name, at random configurations.
        fixed: at the shared configurations, medians per configuration and board.
    """

    left_out: tuple[int, ...]
    parts: int
    samples: Mapping[tuple[str, str], float]
    kernels: Mapping[tuple[str, str], KernelRows]
    networks: Mapping[str, NetworkRows]
    fixed: Mapping[str, NetworkRows]
    trained: Mapping[str, TrainedKind]
    cost: BoardCost


def rotate(record: Measurements, left_out: Sequence[int], options: TrainingOptions, progress: Progress) -> Rotation:
    """Hold out each of these boards, train on the rest, and predict it; of one board, networks and kernels.

    The first rotation chooses hyperparameters. Raises MeasurementError.
    """
    board, kinds, parts = record.described, measured_kinds(record), parts_of(record, left_out)
    kernels: dict[tuple[str, str], list[KernelRows]] = {}
    networks: dict[str, list[NetworkRows]] = {network.name: [] for network in record.networks}
    fixed: dict[str, list[NetworkRows]] = {network.name: [] for network in record.networks}
    samples: dict[tuple[str, str], list[int]] = {}
    first: dict[str, TrainedKind] | None = None
    for number, part in enumerate(parts):

        def report(done: int, total: int, text: str, number: int = number, part: HeldOutPart = part) -> None:
            progress(number * (total + 1) + done, len(parts) * (total + 1), f"without {part.name}: {text}")

        known, fold = part.known, part.fold
        kinds = [kind for kind in kinds if first is None or kind in first]
        trained = train_all(known, board, record.networks, kinds, options, report, fold=fold, recipes=first)
        first = first or trained
        inside = inside_networks(known, board, record.networks, trained, fold)
        cost = board_cost(known, board, trained, inside=inside)
        for kind in NAMES:
            for target, found in _kernels(record, part, board, kind, trained, cost, options).items():
                kernels.setdefault((kind, target), []).append(found)
        for kind, model in trained.items():
            for target in TARGETS:
                if (own := model.of(target)) is not None:
                    samples.setdefault((kind, target), []).append(own.samples)
        for what in part.networks:
            network = record.networks[what]
            if network.launches:
                surfaces = {method: surface(network, cost, method) for method in METHODS}
                for table, places in (("network", networks), ("fixed_network", fixed)):
                    places[network.name] += _network(part.held_out, what, surfaces, table)
    progress(1, 1, "left out")
    assert first is not None
    several = len(record.nodes) > 1
    return Rotation(
        tuple(left_out) if several else (),
        0 if several else len(parts),
        {key: float(np.mean(counts)) for key, counts in samples.items()},
        {key: KernelRows.joined(rows) for key, rows in kernels.items()},
        {name: _joined(rows) for name, rows in networks.items() if rows},
        {name: _joined(rows) for name, rows in fixed.items() if rows},
        first,
        cost,
    )


def total_mw(record: Measurements, nodes: set[int], board: MeasuredDevice) -> NDArray[np.float64]:
    """Idle power of these boards over the flat grid, (n,) in mW."""
    rows = record.tables["idle_mw"]
    return np.asarray(fit_idle_mw(rows.where(np.isin(rows.node, list(nodes))), board.grid), np.float64).ravel()


def _kernels(
    record: Measurements,
    part: HeldOutPart,
    board: MeasuredDevice,
    kind: str,
    trained: Mapping[str, TrainedKind],
    cost: BoardCost,
    options: TrainingOptions,
) -> dict[str, KernelRows]:
    known, held_out = part.known, part.held_out
    of_kind = [what for what, kernel in enumerate(record.invocations) if kernel.kind == kind and kernel.dtype == DTYPE]
    if not of_kind or (model := cost.model_for(record.invocations[of_kind[0]])) is None:
        return {}
    familiar = {launch.signature for network in record.networks for launch in network.launches}
    measured = np.intersect1d(known.tables[TARGETS["time"]].what, of_kind)
    elsewhere = {record.invocations[what].signature for what in measured} - familiar
    strange = [what for what in of_kind if record.invocations[what].signature not in elsewhere]
    found: dict[str, KernelRows] = {}
    for target, table in TARGETS.items():
        one, rows = trained[model.kind].of(target), held_out.tables[table]
        rows = rows.where(np.isin(rows.what, strange))
        if one is None or not len(rows):
            continue
        unique, of_row = np.unique(rows.what, return_inverse=True)
        calls = [record.invocations[what] for what in unique]
        features, clocks = feature_rows(model.kind, calls)[of_row], clocks_mhz(rows.configuration, board.grid)
        features[:, -3:] = np.stack(clocks, axis=1)
        logarithm = np.asarray(ensemble_of(one).predict(features), np.float64)
        if target == "time":
            predicted, observed = _alone_ms(known, board, calls, of_row, clocks, rows, logarithm), rows.value
        else:
            idle = total_mw(known, set(known.nodes), board)[rows.configuration]
            own_idle = total_mw(held_out, set(held_out.nodes), board)[rows.configuration]
            predicted, observed = (idle + np.exp(logarithm)) / 1e3, (own_idle + np.maximum(rows.value, 0.0)) / 1e3
        own = np.array([call.signature in familiar for call in calls])[of_row]
        plain = _plain(record, known, of_kind, table, rows, options)
        if target == "power":
            plain /= 1e3
        found[target] = KernelRows(
            PredictionComparison(predicted, observed, rows.node),
            own,
            PredictionComparison(plain, np.asarray(observed), rows.node),
        )
    return found


def _plain(
    record: Measurements,
    known: Measurements,
    of_kind: Sequence[int],
    table: str,
    held_out: MeasurementRows,
    options: TrainingOptions,
) -> NDArray[np.float64]:
    rows = known.tables[table]
    rows = rows.where(np.isin(rows.what, of_kind))
    grid, kind = record.described.grid, record.invocations[of_kind[0]].kind

    def features(of: MeasurementRows) -> NDArray[np.float32]:
        configurations = [grid.at(cell) for cell in of.configuration]
        return plain_features(kind, [record.invocations[what] for what in of.what], configurations)

    labels = rows.value
    if table == TARGETS["power"]:
        labels = total_mw(known, set(known.nodes), record.described)[rows.configuration] + np.maximum(labels, 0.0)
    return plain_model(features(rows), labels, options.most_rounds, options.threads, options.seed)(features(held_out))


def _alone_ms(
    known: Measurements,
    board: MeasuredDevice,
    calls: Sequence[KernelInvocation],
    of_row: NDArray[Any],
    clocks: Sequence[NDArray[np.float64]],
    rows: MeasurementRows,
    logarithm: NDArray[np.float64],
) -> NDArray[np.float64]:
    in_stream = np.exp(logarithm) * bounds_at_ms(calls, of_row, clocks, board, floor_of(known, board))
    timing_ms, gap_ms = stream_parts_ms(known, board, rows.configuration)
    return np.asarray(np.maximum(in_stream - gap_ms, _LEAST_OF_TIMED * in_stream) + timing_ms)


def _network(held_out: Measurements, what: int, surfaces: Mapping[Method, Surface], table: str) -> list[NetworkRows]:
    latency, power = (
        middle(rows.where(rows.what == what)) for rows in (held_out.tables[f"{table}_ms"], held_out.tables[f"{table}_mw"])
    )
    if not len(latency):
        return []
    at, both = latency.configuration, np.array_equal(latency.configuration, power.configuration)
    observed_j = latency.value * power.value / 1e6 if both else np.zeros(0)
    latencies, energies = (
        {method: np.asarray(getattr(each, name), np.float64).ravel()[at] for method, each in surfaces.items()}
        for name in ("latency_ms", "energy_mj")
    )
    times = {method: PredictionComparison(each, latency.value, latency.node) for method, each in latencies.items()}
    used = (
        {method: PredictionComparison(each / 1e3, observed_j, latency.node) for method, each in energies.items()}
        if both
        else {}
    )
    return [NetworkRows(times, used, at)]


def middle(rows: MeasurementRows) -> MeasurementRows:
    """Median of repeated measurements, sorted by item, board and configuration."""
    if not len(rows):
        return rows
    keys = np.stack([rows.what, rows.node, rows.configuration], axis=1)
    unique, of_row = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(of_row.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(of_row.ravel()))[:-1]
    values = np.array([np.median(part) for part in np.split(rows.value[order], ends)])
    return MeasurementRows(unique[:, 0], unique[:, 1], unique[:, 2], values)


def _joined(parts: Sequence[NetworkRows]) -> NetworkRows:
    def together(name: str) -> dict[Method, PredictionComparison]:
        methods = getattr(parts[0], name)
        return {method: PredictionComparison.joined([getattr(part, name)[method] for part in parts]) for method in methods}

    return NetworkRows(together("latency"), together("energy"), np.concatenate([part.configuration for part in parts]))
