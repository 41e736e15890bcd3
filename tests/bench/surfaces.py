# SPDX-License-Identifier: Apache-2.0
"""How long the surfaces of the ten reference networks take, and where the time goes.

    python tests/bench/surfaces.py [--profile NAME|DIR] [--trees 1500 --depth 10] [--repeats 5]

With the models of --profile (by default, agx-orin-64gb-sim), and with models of --trees and --depth (by
default, of MIRAGE's sizes), trained on what the profile's say of random kernels and kept in build. Decomposition and loading
are not counted in the table. Time is the processor's, so that others on the machine count little. Beside the milliseconds stand
ratios of the same run: how much of the time the tree sweeps take, and how many times the work that cannot be avoided after them
(an exponential of every figure swept) the rest takes.

Below each table stands what a daemon's workers make of it, by the clock on the wall: the ten networks one after the other, each
with its models mapped and swept by a number of threads and its surface written, as inside a worker; and the same asked
of real workers, which start, give up their rights and answer.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from jetdvfs.daemon.worker.packing import packed_network
from jetdvfs.daemon.worker.workers import Workers
from jetdvfs.kernels.cost.board import BoardCost
from jetdvfs.kernels.cost.features import feature_names, feature_rows
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.kinds import ELEMENTWISE
from jetdvfs.kernels.network import Network
from jetdvfs.kernels.trees import node_table
from jetdvfs.kernels.trees.ensemble import TreeEnsemble
from jetdvfs.kernels.trees.forest import read_treelite
from jetdvfs.kernels.units import METHODS
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle.bundle import load_bundle, read_manifest
from jetdvfs.profiles.bundle.files import stored_model
from jetdvfs.profiles.bundle.finding import resolve_bundle
from jetdvfs.profiles.bundle.tables import TableCache
from jetdvfs.profiles.bundle.writing import write_manifest
from jetdvfs.profiles.lab.measure.sampling import Sampler
from jetdvfs.profiles.reference import reference_names, reference_network
from jetdvfs.tests.support.paths import ROOT

KEPT = ROOT / "build" / "bench-surfaces"
ROWS = 20_000
TRAINED = 100


class Timed:
    """A regression that counts the time its sweeps take."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.seconds = 0.0
        self.figures = 0

    def sweep(self, *arguments: Any) -> NDArray[np.float32]:
        started = time.thread_time()
        swept: NDArray[np.float32] = self.inner.sweep(*arguments)
        self.seconds += time.thread_time() - started
        self.figures += swept.size
        return swept


def kept(kind: str, trees: int, depth: int) -> list[Path]:
    """Where the time and the power model of that size are kept; others, once the kind has other features."""
    return [KEPT / f"{trees}-{depth}" / f"{kind}-{len(feature_names(kind))}.{what}.trees" for what in ("time", "power")]


def trained_kind(taught: Any, networks: Sequence[Network], trees: int, depth: int) -> tuple[TreeEnsemble, TreeEnsemble]:
    """Two models of that size for a kind, trained on what a profile's models say of random kernels at random clocks, and noise.

    At most ``TRAINED`` trees are trained; the others are copies of them, in memory of their own.
    """
    kind = taught.kind
    paths = kept(kind, trees, depth)
    if not all(path.exists() for path in paths):
        import treelite
        import xgboost

        paths[0].parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(0)
        invocations = Sampler(networks).draw("add" if kind == ELEMENTWISE else kind, ROWS // 16, real_share=0.1)
        rows = np.repeat(feature_rows(kind, invocations), 16, axis=0)
        rows[:, -3:] = np.stack([rng.choice(axis, len(rows)) for axis in load_board("agx-xavier").grid.levels_mhz()], axis=1)
        for path, regressor in zip(paths, (taught.time, taught.power), strict=True):
            label = regressor.load().predict(rows) + rng.normal(0, 0.05, len(rows))
            parameters = {"max_depth": depth, "learning_rate": 0.05, "min_child_weight": 2, "nthread": 1, "subsample": 0.8}
            booster = xgboost.train(parameters, xgboost.DMatrix(rows, label, nthread=1), min(trees, TRAINED))
            table = read_treelite(treelite.frontend.from_xgboost(booster))
            node_table.write_table(_grown(table, trees), path)
    time_model, power_model = map(TreeEnsemble.load, paths)
    return time_model, power_model


def _grown(table: node_table.NodeTable, trees: int) -> node_table.NodeTable:
    """The ensemble with copies of its trees, up to that many; what they add up to stays about the same."""
    copies = -(-trees // table.n_trees)
    nodes = np.tile(table.nodes, copies)
    leaves = (nodes["meta"] & node_table.KEY_MASK) >= 2 * table.n_features
    nodes["bits"][leaves] = (nodes["bits"][leaves].view(np.float32) / np.float32(copies)).view(np.uint32)
    starts = (table.roots[:-1][None] + len(table.nodes) * np.arange(copies)[:, None]).ravel()
    roots = np.append(starts, len(nodes)).astype(np.uint32)[: trees + 1]
    return replace(table, nodes=np.ascontiguousarray(nodes[: roots[-1]]), roots=roots)


def _launched(networks: Sequence[Network]) -> set[str]:
    """The kinds of models that kernels like those of the networks can train."""
    return {ELEMENTWISE, *Sampler(networks).kinds}


def trained_board(cost: BoardCost, networks: Sequence[Network], trees: int, depth: int) -> BoardCost:
    """The board with models of that size in place of its own, of the kinds that the networks launch."""
    kernels = dict(cost.kernels)
    for kind in _launched(networks) & kernels.keys():
        time_model, power_model = trained_kind(kernels[kind], networks, trees, depth)
        kernels[kind] = replace(kernels[kind], time=time_model, power=power_model)
    return replace(cost, kernels=kernels)


def timed(cost: BoardCost) -> tuple[BoardCost, list[Timed]]:
    """The same cost models, with sweeps that are timed."""
    counters: list[Timed] = []
    kernels = {}
    for kind, model in cost.kernels.items():
        counters += [Timed(model.time), Timed(model.power)]
        kernels[kind] = replace(model, time=counters[-2], power=counters[-1])
    return replace(cost, kernels=kernels), counters


def best_of(repeats: int, work: Callable[[], object], clock: Callable[[], float] = time.thread_time) -> float:
    """The least seconds of several runs."""
    seconds = []
    for _ in range(repeats):
        started = clock()
        work()
        seconds.append(clock() - started)
    return min(seconds)


def report(title: str, networks: Sequence[Network], cost: BoardCost, repeats: int) -> None:
    print(f"{title}; milliseconds of one processor, the best of {repeats}")
    print(f"{'network':20} launches  kernels   sweeps  timeline      sum   sweeps/all   rest/exponentials")
    total = np.zeros(4)
    for network in networks:
        surface(network, cost)  # features are cached and node tables paged in from here on, as in a daemon
        seconds = np.array(_seconds(network, cost, repeats))
        total += seconds
        kernels = len({launch.signature for launch in network.launches})
        print(_line(f"{network.name:20} {len(network.launches):8} {kernels:8}", seconds))
    print(_line(f"{'all':38}", total))


def report_workers(networks: Sequence[Network], bundle: Path, cache: Path, repeats: int) -> None:
    """What workers take for all networks with this bundle, whose node tables are in ``cache``."""

    manifest = read_manifest(bundle)
    known = TableCache(cache).stamps(manifest.checksums.values())  # as a daemon has them checked once, when it starts

    def inside(threads: int) -> None:
        with ThreadPoolExecutor(threads) as pool:
            for network in networks:
                cost = load_bundle(bundle, tables=TableCache(cache, known), one_by_one=True).cost
                surface(network, cost, each=pool.map).save(io.BytesIO())

    async def asked() -> None:
        workers = Workers()
        payloads = [packed_network(network)[1] for network in networks]
        await asyncio.gather(
            *(workers.sweep(payload, bundle, cache, manifest.grid, "timeline", known=known) for payload in payloads)
        )

    for threads in (1, 2):
        print(f"inside a worker, on {threads} thread(s): {_took(repeats, partial(inside, threads))}")
    print(
        f"asked of workers at once, from the first request to the last answer: {_took(repeats, lambda: asyncio.run(asked()))}\n"
    )


def _took(repeats: int, work: Callable[[], object]) -> str:
    """Elapsed time, the best of several runs, and the processors' time of one: more than theirs is others' work."""
    wall = best_of(repeats, work, time.perf_counter)
    return f"{1e3 * wall:.0f} ms by the clock on the wall, {1e3 * best_of(1, work, _processors):.0f} ms of processors"


def _processors() -> float:
    """Processor time of all threads and of children that have ended, in seconds."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def large_bundle(profile: str, networks: Sequence[Network], trees: int, depth: int, folder: Path) -> tuple[Path, Path, int]:
    """A bundle with models of that size in the place of a profile's, for workers: its folder, its cache, its tables' bytes."""
    own = load_bundle(profile)
    bundle, cache = folder / "large", folder / "cache"
    (cache / "tables").mkdir(parents=True)
    bundle.mkdir()
    for path in (folder, cache):
        path.chmod(0o755)
    checksums = dict(own.manifest.checksums)
    for name in ("board.npz", "host.json"):
        (bundle / name).write_bytes((resolve_bundle(profile) / name).read_bytes())
    size, launched = 0, _launched(networks)
    for number, model in enumerate(own.cost.kernels.values()):
        if model.kind not in launched:  # none of the networks launches it: its own models stay
            for what in ("time", "power"):
                name = stored_model(checksums, model.kind, what)
                (bundle / name).write_bytes((resolve_bundle(profile) / name).read_bytes())
            continue
        for other, (what, ensemble) in enumerate(
            zip(("time", "power"), trained_kind(model, networks, trees, depth), strict=True)
        ):
            digest = f"{2 * number + other:064x}"
            checksums[stored_model(checksums, model.kind, what)] = digest  # never looked at: its table is there
            table = cache / "tables" / f"{digest}.nodes"
            ensemble.save(table)
            size += table.stat().st_size
    write_manifest(bundle, replace(own.manifest, checksums={}), checksums)
    return bundle, cache, size


def _seconds(network: Network, cost: BoardCost, repeats: int) -> tuple[float, float, float, float]:
    """What the sweeps, each method, and an exponential of each figure swept take."""
    sweeps = np.inf
    for _ in range(repeats):
        counted, counters = timed(cost)
        surface(network, counted)
        sweeps = min(sweeps, sum(counter.seconds for counter in counters))
    figures = np.random.default_rng(0).normal(0, 1, sum(counter.figures for counter in counters)).astype(np.float32)
    timeline, plain = (best_of(repeats, partial(surface, network, cost, method)) for method in METHODS)
    return sweeps, timeline, plain, best_of(repeats, partial(np.exp, figures, out=np.empty_like(figures)))


def _line(name: str, seconds: NDArray[np.float64]) -> str:
    sweeps, timeline, plain, exponentials = 1e3 * seconds
    shares = f"{sweeps / timeline:12.0%} {(timeline - sweeps) / exponentials:18.1f}"
    return f"{name} {sweeps:8.1f} {timeline:9.1f} {plain:8.1f} {shares}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile")
    parser.add_argument("--trees", type=int, default=1500)
    parser.add_argument("--depth", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    networks = [reference_network(name) for name in reference_names()]
    profile = arguments.profile or "agx-orin-64gb-sim"
    cost = load_bundle(profile).cost
    report(f"profile {profile}", networks, cost, arguments.repeats)
    with tempfile.TemporaryDirectory(prefix="jetdvfs-") as folder:
        Path(folder).chmod(0o755)
        load_bundle(profile, cache_dir=Path(folder))
        report_workers(networks, resolve_bundle(profile), Path(folder), arguments.repeats)
    title = f"{arguments.trees} trees of depth {arguments.depth} per model"
    report(title, networks, trained_board(cost, networks, arguments.trees, arguments.depth), arguments.repeats)
    with tempfile.TemporaryDirectory(prefix="jetdvfs-") as folder:
        bundle, cache, _ = large_bundle(profile, networks, arguments.trees, arguments.depth, Path(folder))
        report_workers(networks, bundle, cache, arguments.repeats)


if __name__ == "__main__":
    main()
