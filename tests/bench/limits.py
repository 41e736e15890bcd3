# SPDX-License-Identifier: Apache-2.0
"""Where the time of a sweep goes, and how far it is from what the machine can do.

    python tests/bench/limits.py [--trees 1500 --depth 10]

Models of MIRAGE's sizes, kept by bench_surfaces, sweep 32 kernels of DenseNet-161 over the grid of an AGX Xavier. Node visits
are counted by walking the same tables in NumPy. Time is the processor's. A visit needs a node that is in no near cache, so
beside it stands what an independent random read of a table of that size takes; and beside the bytes of nodes that the rows
touch, how many times longer than reading them in order, at the bandwidth measured, the sweep takes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jetdvfs.kernels.cost.features import feature_rows
from jetdvfs.kernels.trees.ensemble import TreeEnsemble
from jetdvfs.kernels.trees.node_table import KEY_BITS, KEY_MASK, NodeTable, map_table
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.reference import reference_names, reference_network
from jetdvfs.tests.bench.surfaces import best_of, kept, trained_kind

ROWS = 32  # that the C core takes through the trees together
LINE_BYTES = 64


@dataclass(frozen=True)
class Visits:
    """What a sweep of some rows looks at: nodes, row by row and shared; cache lines; leaves, and changes of them."""

    alone: int
    shared: int
    lines: int
    leaves: int
    changes: int


def count(table: NodeTable, rows: NDArray[np.float32], levels: tuple[NDArray[np.float32], ...]) -> Visits:
    """Walk all trees for rows that go together."""
    own = np.repeat(rows[:, : table.n_features - table.n_axes], 2, axis=1)
    missing = np.isnan(own)
    own[missing] = np.tile(np.array([np.inf, -np.inf], np.float32), own.shape[1] // 2)[np.nonzero(missing)[1]]
    low, high = (np.hstack([own, *(np.full((len(rows), 2), axis[end], np.float32) for axis in levels)]) for end in (0, -1))
    at = table.roots[:-1].astype(np.int64)
    here: NDArray[np.bool_] = np.ones((len(at), len(rows)), bool)
    alone = shared = leaves = changes = 0
    lines = np.zeros(table.nodes.nbytes // LINE_BYTES + 1, bool)
    while len(at):
        alone, shared = alone + int(here.sum()), shared + len(at)
        lines[at * table.nodes.itemsize // LINE_BYTES] = True
        nodes = table.nodes[at]
        key = nodes["meta"] & KEY_MASK
        leaf = key >= 2 * table.n_features
        leaves += int(here[leaf].sum())
        changes += int(np.abs(np.diff(np.pad(here[leaf], ((0, 0), (1, 0))).astype(np.int8), axis=1)).sum())
        at, nodes, key, here = at[~leaf], nodes[~leaf], key[~leaf], here[~leaf]
        threshold = np.ascontiguousarray(nodes["bits"]).view(np.float32)[:, None]
        left, right = here & (threshold > low[:, key].T), here & ~(threshold > high[:, key].T)
        goes_left, goes_right = left.any(axis=1), right.any(axis=1)
        at = np.concatenate([at[goes_left] + 1, (at + (nodes["meta"] >> KEY_BITS))[goes_right]])
        here = np.concatenate([left[goes_left], right[goes_right]])
    return Visits(alone, shared, int(lines.sum()), leaves, changes)


def random_read_ns(size: int) -> float:
    """An independent read at a random place of a table of so many bytes."""
    table = np.zeros(size // 8, np.int64)
    places = np.random.default_rng(0).integers(0, len(table), 1 << 20)
    out = np.empty(len(places), np.int64)
    return best_of(7, lambda: table.take(places, out=out, mode="clip")) / len(places) * 1e9


def read_gb_per_s() -> float:
    """Bandwidth of reading far more than the caches hold, in order, on one thread."""
    array = np.ones(1 << 25, np.int64)
    return array.nbytes / best_of(5, array.max) / 1e9


def report(name: str, table: NodeTable, rows: NDArray[np.float32], levels: Any, bandwidth: float) -> None:
    visits = count(table, rows, levels)
    ensemble = TreeEnsemble(table)
    sweep: Callable[[], object] = lambda: ensemble.sweep(rows, levels)  # noqa: E731
    sweep()
    seconds = best_of(7, sweep, time.thread_time)
    trees = table.n_trees * len(rows)
    touched = visits.lines * LINE_BYTES
    print(
        f"{name:18} {table.nodes.nbytes / 1e6:8.1f} {visits.alone / trees:8.1f} {visits.shared / trees:8.1f} "
        f"{visits.leaves / trees:8.1f} {visits.changes / trees:8.1f} {1e6 * seconds / len(rows):8.0f} "
        f"{1e9 * seconds / visits.alone:8.2f} {1e9 * seconds / visits.shared:8.1f} "
        f"{random_read_ns(table.nodes.nbytes):8.1f} {touched / 1e6:8.1f} {seconds / (touched / bandwidth / 1e9):8.1f}x"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=1500)
    parser.add_argument("--depth", type=int, default=10)
    arguments = parser.parse_args()
    networks = [reference_network(name) for name in reference_names()]
    cost = load_bundle("agx-orin-64gb-sim").cost
    levels = load_board("agx-xavier").grid.levels_mhz()
    bandwidth = read_gb_per_s()
    print(f"{arguments.trees} trees of depth {arguments.depth}, {ROWS} kernels of densenet161, one thread", end="; ")
    print(f"{bandwidth:.1f} GB/s in order")
    print(
        f"{'':18} {'table':>8} {'visits per tree':>17} {'leaves per tree':>17} {'us per':>8} {'ns per visit':>17} "
        f"{'random':>8} {'touched':>8} {'times':>8}"
    )
    print(
        f"{'model':18} {'MB':>8} {'alone':>8} {'shared':>8} {'alone':>8} {'changes':>8} {'row':>8} {'alone':>8} {'shared':>8} "
        f"{'read ns':>8} {'MB':>8} {'bandwidth':>9}"
    )
    launches = {launch.signature: launch for launch in reference_network("densenet161").launches}
    for kind in ("conv2d", "batch_norm", "relu", "cat"):
        trained_kind(cost.kernels[kind], networks, arguments.trees, arguments.depth)
        rows = feature_rows(kind, [launch for launch in launches.values() if launch.kind == kind][:ROWS])
        for what, path in zip(("time", "power"), kept(kind, arguments.trees, arguments.depth), strict=True):
            report(f"{kind} {what}", map_table(path), rows, levels, bandwidth)


if __name__ == "__main__":
    main()
