# SPDX-License-Identifier: Apache-2.0
"""How long a correction of a surface over 3,654 configurations takes.

    python tests/bench/correction.py [--repeats 20]

With one thread, as in the daemon. Time is the processor's, so that others on the machine count little; the shortest and the
middle one of the repeats. Beside it, as a measure of the machine, how many times ten exponentials of one figure of the grid the
shortest is.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

from jetdvfs.daemon.worker.numerics import ONE_THREAD

os.environ.update(ONE_THREAD)  # as the daemon does, before NumPy is loaded

import numpy as np

from jetdvfs.kernels.correction.correct import correct
from jetdvfs.kernels.correction.flat import flat_surface
from jetdvfs.kernels.correction.observation import Observation
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.surface import Surface
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.reference import reference_network


def _ms(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    took = []
    for _ in range(repeats + 2):
        started = time.process_time()
        work()
        took.append(1e3 * (time.process_time() - started))
    return min(took[2:]), float(np.median(took[2:]))


def _observed(of: Surface, count: int) -> list[Observation]:
    random = np.random.default_rng(count)
    cells = random.permutation(of.grid.size)[:count]
    places = [of.grid.configuration([int(axis) for axis in np.unravel_index(cell, of.grid.shape)]) for cell in cells]
    return [
        Observation(
            at, of.at(at).latency_ms * 1.2 * np.exp(0.01 * random.standard_normal()), of.at(at).power_mw * 0.9, frames=30
        )
        for at in places
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    predicted = surface(reference_network("resnet18"), load_bundle("agx-xavier-sim").cost)
    figures = predicted.latency_ms.copy()
    floor, _ = _ms(lambda: [np.exp(figures) for _ in range(10)], args.repeats)
    print(f"correction over {predicted.grid.size} configurations: ms at best and usually, times ten exponentials of the grid")
    for name, start in (("predicted", predicted), ("flat", flat_surface(predicted.grid))):
        for count in (3, 10, 20, 32):
            observed = _observed(predicted, count)
            best, usual = _ms(lambda start=start, observed=observed: correct(start, observed), args.repeats)  # type: ignore[misc]
            print(f"  {name:<10} {count:>3} observations {best:6.2f} {usual:6.2f} {best / floor:6.1f}")


if __name__ == "__main__":
    main()
