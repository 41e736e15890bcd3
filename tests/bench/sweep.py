#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much faster the sweep of tree ensembles over a frequency grid is than other ways to the same numbers.

Every figure is the best of several rounds, and in each round the ways take turns, so that a busy machine slows all of them.
Time is the processor's, of the thread that works; only where xgboost has all threads, it and the sweep beside it are taken by
the clock on the wall.
Times are per kernel invocation, that is, per prediction at every configuration of the grid.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jetdvfs.kernels.trees import ensemble as ensemble_module
from jetdvfs.kernels.trees.ensemble import TreeEnsemble
from jetdvfs.profiles.board import load_board
from jetdvfs.tests.support.profiles.boosted import XAVIER, kernel_samples, on_grid, train, treelite, xgboost

Levels = tuple[NDArray[Any], ...]

ORIN: Levels = load_board("agx-orin-64gb").grid.levels_mhz()
# Its three CPU clusters set apart: an axis for each.
CLUSTERS: Levels = (ORIN[0], ORIN[0], *ORIN)
THINNED: Levels = (*(axis[::3] for axis in CLUSTERS[:3]), *ORIN[1:])
DENSE: Levels = (
    np.linspace(115.2, 2265.6, 58).astype(np.float32),
    np.linspace(114.75, 1377.0, 35).astype(np.float32),
    np.linspace(204.0, 2133.0, 18).astype(np.float32),
)
CORES = os.cpu_count() or 1
COLUMNS = "{:>6} {:>6} {:>21} {:>6} {:>9} | {:>10} {:>8} {:>8} {:>8} {:>8} {:>10}"


def best_of(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, tuple[float, float]]:
    """Each way's shortest times in seconds, the processor's and elapsed; one call first, unmeasured, to warm up."""
    best = {}
    for name, way in ways.items():
        way()
        best[name] = (float("inf"), float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            # What takes microseconds is repeated within a round: it would see a single moment of the machine else.
            for _ in range(20 if best[name][0] < 2e-3 else 1):
                processor, elapsed = time.thread_time(), time.perf_counter()
                way()
                took = (time.thread_time() - processor, time.perf_counter() - elapsed)
                best[name] = (min(best[name][0], took[0]), min(best[name][1], took[1]))
    return best


def predict_with(booster: Any, threads: int, rows: NDArray[Any]) -> Callable[[], NDArray[Any]]:
    def way() -> NDArray[Any]:
        booster.set_param({"nthread": threads})
        return np.asarray(booster.inplace_predict(rows))

    return way


@contextlib.contextmanager
def tl2cgen_predictor(model: Any) -> Iterator[Any]:
    """treelite's compiler, with its defaults, single-threaded; None where it is not installed."""
    try:
        import tl2cgen
    except ImportError:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "model.so"
        tl2cgen.export_lib(model, toolchain="gcc", libpath=library, params={"parallel_comp": 16}, nthread=CORES, verbose=False)
        yield tl2cgen.Predictor(library, nthread=1)


def measure(booster: Any, depth: int, levels: Levels, invocations: int, *, rounds: int, others: bool = False) -> None:
    model = treelite.frontend.from_xgboost(booster)
    ensemble = TreeEnsemble.from_treelite(model, axes=len(levels))
    rows, _ = kernel_samples(invocations, seed=99, levels=levels)
    everywhere = on_grid(rows[0], levels)
    with tl2cgen_predictor(model) if others else contextlib.nullcontext() as predictor:
        ways: dict[str, Callable[[], Any]] = {
            "sweep": lambda: ensemble.sweep(rows, levels),
            "xgboost": predict_with(booster, 1, everywhere),
            "xgboost-all": predict_with(booster, CORES, everywhere),
        }
        if others:
            ways["gtil"] = lambda: treelite.gtil.predict(model, everywhere, nthread=1)
        if predictor is not None:
            import tl2cgen

            matrix = tl2cgen.DMatrix(everywhere)
            ways["tl2cgen"] = lambda: predictor.predict(matrix)
        seconds = best_of(ways, rounds)
        error = np.abs(ensemble.sweep(rows[:1], levels).ravel() - ways["xgboost"]()).max()
    own = [took / invocations for took in seconds.pop("sweep")]
    clock = {name: int(name == "xgboost-all") for name in seconds}
    ratio = {name: f"{took[clock[name]] / own[clock[name]]:.0f}x" for name, took in seconds.items()}
    print(
        COLUMNS.format(
            ensemble.n_trees,
            depth,
            " x ".join(str(len(axis)) for axis in levels),
            invocations,
            f"{error:.0e}",
            f"{own[0] * 1e6:.0f} us",
            ratio["xgboost"],
            ratio["xgboost-all"],
            ratio.get("gtil", "-"),
            ratio.get("tl2cgen", "-"),
            f"{seconds['xgboost'][0] * 1e3:.0f} ms",
        ),
        flush=True,
    )


def trained(trees: int, depth: int, samples: int, levels: Levels = XAVIER) -> Any:
    rows, target = kernel_samples(samples, seed=0, levels=levels)
    return train(rows, target, trees, max_depth=depth, eta=0.03, subsample=0.8, tree_method="hist", nthread=CORES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the two sizes that matter most")
    quick = parser.parse_args().quick
    rounds = 3
    core = "C core" if ensemble_module._core is not None else "NumPy: the C core is not built"
    print(f"Sweep on one thread ({core}) against xgboost {xgboost.__version__} on 1 and on {CORES} threads,")
    print(f"treelite {treelite.__version__} GTIL and tl2cgen on 1 thread each. Ratio: their time / time of the sweep.\n")
    print(
        COLUMNS.format(
            *["trees", "depth", "grid", "rows", "error", "sweep/row", "xgb-1", "xgb-all", "gtil", "tl2cgen", "xgb-1/row"]
        )
    )
    small, large = trained(300, 8, 20_000), trained(1500 if quick else 3000, 10, 40_000)
    measure(small, 8, XAVIER, 32, rounds=rounds, others=True)
    measure(large[:1500], 10, XAVIER, 32, rounds=rounds)
    if quick:
        return
    print("\nInvocations")
    for invocations in (1, 8, 64, 700):
        measure(large[:1500], 10, XAVIER, invocations, rounds=rounds)
    print("\nTrees")
    for trees in (100, 300, 1000, 3000):
        measure(large[:trees], 10, XAVIER, 32, rounds=rounds)
    print("\nDepth")
    for depth in (5, 6, 7, 9, 11):
        measure(trained(300, depth, 20_000), depth, XAVIER, 32, rounds=rounds)
    print("\nGrid: AGX Orin's, AGX Xavier's ten times denser, and AGX Orin's with an axis per CPU cluster, thinned and whole")
    for levels in (ORIN, DENSE):
        measure(trained(300, 8, 20_000, levels), 8, levels, 32, rounds=rounds)
    clusters = trained(300, 8, 20_000, CLUSTERS)
    measure(clusters, 8, THINNED, 8, rounds=1)
    measure(clusters, 8, CLUSTERS, 1, rounds=1)


if __name__ == "__main__":
    main()
