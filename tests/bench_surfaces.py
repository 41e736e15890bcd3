# SPDX-License-Identifier: Apache-2.0
"""How long the surfaces of the ten reference networks take, and where the time goes.

    python tests/bench_surfaces.py [--profile NAME|DIR] [--trees 1500 --depth 10] [--repeats 5]

With --profile (by default, the first bundle installed or shipped), its models; with --trees and --depth, models of that size,
trained on invented times of random kernels and kept in build/bench-surfaces. Decomposition and loading are not counted, as a
daemon does them once. Time is the processor's, so that others on the machine count little. Beside the milliseconds stand ratios
of the same run: how much of the time the tree sweeps take, and how many times the work that cannot be avoided after them (an
exponential of every figure swept) the rest takes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jetdvfs.kernels.cost import METHODS, BoardCost, HostModel, KernelModel, surface
from jetdvfs.kernels.ensemble import TreeEnsemble
from jetdvfs.kernels.features import ELEMENTWISE, MODELLED_KINDS, feature_rows
from jetdvfs.kernels.network import Network
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle import find_bundles, load_bundle
from jetdvfs.profiles.reference import reference_names, reference_network
from jetdvfs.profiles.sampling import Sampler

KEPT = Path(__file__).parents[1] / "build" / "bench-surfaces"
ROWS = {"conv2d": 40_000}
ROWS_OTHERWISE = 10_000


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


def trained_kind(kind: str, networks: Sequence[Network], trees: int, depth: int) -> tuple[TreeEnsemble, TreeEnsemble]:
    """Two models of that size for a kind, trained on invented figures of random kernels at random clocks."""
    paths = [KEPT / f"{trees}-{depth}" / f"{kind}.{what}.trees" for what in ("time", "power")]
    if not all(path.exists() for path in paths):
        import treelite
        import xgboost

        paths[0].parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(0)
        count = ROWS.get(kind, ROWS_OTHERWISE)
        invocations = Sampler(networks).draw("add" if kind == ELEMENTWISE else kind, count // 16, real_share=0.1)
        rows = np.repeat(feature_rows(kind, invocations), 16, axis=0)
        rows[:, -3:] = np.stack([rng.choice(axis, len(rows)) for axis in load_board("agx-xavier").grid.levels_mhz()], axis=1)
        waves = np.sin(np.nan_to_num(rows) @ rng.normal(0, 0.02, (rows.shape[1], 8))).sum(axis=1)
        dependences = (200 / rows[:, -2] + 100 / rows[:, -1], rows[:, -2] / 400 + rows[:, -1] / 900)
        for path, dependence in zip(paths, dependences, strict=True):
            label = 0.3 * waves + dependence + rng.normal(0, 0.2, len(rows))
            parameters = {"max_depth": depth, "learning_rate": 0.05, "min_child_weight": 2, "nthread": 1, "subsample": 0.8}
            booster = xgboost.train(parameters, xgboost.DMatrix(rows, label, nthread=1), trees)
            TreeEnsemble.from_treelite(treelite.frontend.from_xgboost(booster)).save(path)
    time_model, power_model = map(TreeEnsemble.load, paths)
    return time_model, power_model


def trained_board(networks: Sequence[Network], trees: int, depth: int) -> BoardCost:
    """AGX Xavier's grid and chip with models of that size; what the models do not give is plausible, no more."""
    board = load_board("agx-xavier")
    cpu, gpu, emc = np.meshgrid(*board.grid.levels_mhz(), indexing="ij")
    kernels = {}
    for kind in (*MODELLED_KINDS, ELEMENTWISE):
        kernels[kind] = KernelModel(kind, *trained_kind(kind, networks, trees, depth), 0.1, 0.1)
    return BoardCost(
        grid=board.grid,
        chip=board.chip,
        kernels=kernels,
        host=HostModel({"inference": (50.0, 20_000.0, 0.0)}, (4.0, 12_000.0, 2_000.0)),
        idle_mw=np.float32(2500 + cpu / 5 + gpu / 2 + emc / 3),
        host_active_mw=np.float32(board.grid.levels_mhz()[0] / 2),
        sigma_latency=0.05,
        sigma_energy=0.05,
    )


def timed(cost: BoardCost) -> tuple[BoardCost, list[Timed]]:
    """The same cost models, with sweeps that are timed."""
    counters: list[Timed] = []
    kernels = {}
    for kind, model in cost.kernels.items():
        counters += [Timed(model.time), Timed(model.power)]
        kernels[kind] = replace(model, time=counters[-2], power=counters[-1])
    return replace(cost, kernels=kernels), counters


def best_of(repeats: int, work: Callable[[], object]) -> float:
    """The least seconds of several runs."""
    seconds = []
    for _ in range(repeats):
        started = time.thread_time()
        work()
        seconds.append(time.thread_time() - started)
    return min(seconds)


def report(title: str, networks: Iterable[Network], cost: BoardCost, repeats: int) -> None:
    print(f"{title}; milliseconds of one processor, the best of {repeats}")
    print(f"{'network':20} launches  kernels   sweeps  timeline      sum   sweeps/all   rest/exponentials")
    total = np.zeros(4)
    for network in networks:
        surface(network, cost)  # features are cached and node tables paged in from here on, as in a daemon
        seconds = np.array(_seconds(network, cost, repeats))
        total += seconds
        kernels = len({launch.signature for launch in network.launches})
        print(_line(f"{network.name:20} {len(network.launches):8} {kernels:8}", seconds))
    print(_line(f"{'all':38}", total), end="\n\n")


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
    parser.add_argument("--trees", type=int)
    parser.add_argument("--depth", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    networks = [reference_network(name) for name in reference_names()]
    profile = arguments.profile or next(iter(find_bundles()), None)
    if profile and not (arguments.trees and not arguments.profile):
        report(f"profile {profile}", networks, load_bundle(profile).cost, arguments.repeats)
    if arguments.trees:
        cost = trained_board(networks, arguments.trees, arguments.depth)
        report(f"{arguments.trees} trees of depth {arguments.depth} per model", networks, cost, arguments.repeats)


if __name__ == "__main__":
    main()
