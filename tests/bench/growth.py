# SPDX-License-Identifier: Apache-2.0
"""Growth of time and memory with launches, configurations, leases, remembered programs and observations.

    python tests/bench/growth.py [--repeats 3] [--plot growth.png]

With one thread, as in the daemon. Time is the processor's, the shortest of the repeats; memory is the peak of Python and NumPy
above the start. The exponent is the slope of the logarithm of time over the upper half of the sizes: 1 is linear.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from msgspec.structs import replace

from jetdvfs.daemon.worker.numerics import ONE_THREAD

os.environ.update(ONE_THREAD)  # as the daemon does, before NumPy is loaded

import numpy as np

from jetdvfs.daemon.leases.joint_choice import jointly
from jetdvfs.daemon.leases.learning.observation_store import ObservationStore, ProgramKey
from jetdvfs.daemon.planning.lease_plan import GpuLoad
from jetdvfs.daemon.planning.limits import Limits
from jetdvfs.daemon.planning.plan import plan
from jetdvfs.kernels.correction.correct import correct
from jetdvfs.kernels.correction.observation import Observation
from jetdvfs.kernels.cost.board import BoardCost
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.grid import FrequencyConfiguration, FrequencyGrid
from jetdvfs.kernels.network import KernelInvocation, Network
from jetdvfs.kernels.surface import Surface
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.reference import reference_network

Work = Callable[[], object]


@dataclass(frozen=True)
class Growth:
    """Time and peak memory of one operation by size."""

    name: str
    unit: str
    sizes: tuple[int, ...]
    ms: tuple[float, ...]
    peak_mb: tuple[float, ...]

    @property
    def exponent(self) -> float:
        half = len(self.sizes) // 2
        slope, _ = np.polyfit(np.log(self.sizes[half:]), np.log(self.ms[half:]), 1)
        return float(slope)


def measured(name: str, unit: str, cases: Mapping[int, Work], repeats: int) -> Growth:
    sizes, ms, peak_mb = [], [], []
    for size, work in cases.items():
        work()
        took = []
        for _ in range(repeats):
            started = time.process_time()
            work()
            took.append(1e3 * (time.process_time() - started))
        tracemalloc.start()
        work()
        peak_mb.append(tracemalloc.get_traced_memory()[1] / 1e6)
        tracemalloc.stop()
        sizes.append(size)
        ms.append(max(min(took), 1e-3))
    return Growth(name, unit, tuple(sizes), tuple(ms), tuple(peak_mb))


def network_of(launches: int) -> Network:
    """ResNet-18 at batch 1, 2, 3, ... in sequence, up to this number of launches: many distinct kernels."""
    one = reference_network("resnet18")
    times = -(-launches // len(one.launches))
    calls = list(chain.from_iterable(reference_network("resnet18", batch).calls for batch in range(1, times + 1)))
    last = [place for place, call in enumerate(calls) if isinstance(call, KernelInvocation)][launches - 1]
    return replace(one, calls=tuple(calls[: last + 1]), reads=())


def part_of(cost: BoardCost, configurations: int) -> BoardCost:
    """The board with about this number of configurations, spread over its grid."""
    grid = cost.grid
    share = min((configurations / grid.size) ** (1 / 3), 1.0)
    axes = (grid.cpu_khz, grid.gpu_hz, grid.emc_hz)
    kept = [np.unique(np.linspace(0, len(axis) - 1, max(round(share * len(axis)), 2)).astype(int)) for axis in axes]
    cpu, gpu, emc = (tuple(axis[place] for place in places) for axis, places in zip(axes, kept, strict=True))
    return replace(
        cost,
        grid=FrequencyGrid(cpu, gpu, emc),
        idle_mw=cost.idle_mw[np.ix_(*kept)],
        host_active_mw=cost.host_active_mw[kept[0]],
        leakage_mw=None if cost.leakage_mw is None else cost.leakage_mw[np.ix_(*kept)],
    )


def observed(of: Surface, count: int) -> list[Observation]:
    random = np.random.default_rng(count)
    cells = random.permutation(of.grid.size)[:count]
    found = []
    for cell in cells:
        at = of.grid.configuration([int(axis) for axis in np.unravel_index(cell, of.grid.shape)])
        found.append(Observation(at, of.at(at).latency_ms * 1.2 * np.exp(0.01 * random.standard_normal()), frames=30))
    return found


def remembered(folder: Path, programs: int) -> Work:
    """Remember programs of many users, save, and read them again."""
    path = folder / f"learned-{programs}.json"
    at = FrequencyConfiguration(1_000_000, 1_000_000_000, 1_000_000_000)

    def work() -> None:
        path.unlink(missing_ok=True)
        store = ObservationStore(path)
        for number in range(programs):
            store.remember(ProgramKey(1000 + number % 64, f"program-{number}"), [Observation(at, 10.0, frames=9)])
        store.save()
        ObservationStore(path)

    return work


def growths(folder: Path, repeats: int) -> Iterator[Growth]:
    xavier, thor = load_bundle("agx-xavier-sim").cost, load_bundle("agx-thor-sim").cost
    one = reference_network("resnet18")
    networks = {n: network_of(n) for n in (50, 150, 500, 1500, 5000)}
    yield measured("surface", "launches", {n: partial(surface, each, xavier) for n, each in networks.items()}, repeats)
    parts = [part_of(thor, n) for n in (100, 300, 1000, 3000, 10_000)]
    yield measured("surface", "configurations", {part.grid.size: partial(surface, one, part) for part in parts}, repeats)
    surfaces = {part.grid.size: surface(one, part) for part in parts}
    plans = {n: partial(plan, each, "min-energy") for n, each in surfaces.items()}
    yield measured("plan", "configurations", plans, repeats)
    corrections = {n: partial(correct, each, observed(each, 10)) for n, each in surfaces.items()}
    yield measured("correction", "configurations", corrections, repeats)
    whole = surface(one, xavier)
    corrections = {n: partial(correct, whole, observed(whole, n)) for n in (10, 30, 100, 300, 1000)}
    yield measured("correction", "observations", corrections, repeats)
    choices = {n: partial(jointly, loads(whole, n), Limits()) for n in (1, 2, 4, 8, 16, 32, 64)}
    yield measured("joint choice", "leases", choices, repeats)
    yield measured("memory", "programs", {n: remembered(folder, n) for n in (1, 10, 100, 300, 1000)}, repeats)


def loads(of: Surface, count: int) -> Sequence[GpuLoad]:
    """Applications of processes of their own, with rates that the GPU can serve together."""
    fps = 500.0 / count / float(of.latency_ms.min())
    return [GpuLoad(of, fps=fps, process=number, limit_ms=1e4) for number in range(count)]


def draw(found: Sequence[Growth], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for one in found:
        label = f"{one.name}, {one.unit}: n^{one.exponent:.2f}"
        left.loglog(one.sizes, one.ms, marker="o", label=label)
        right.loglog(one.sizes, one.peak_mb, marker="o")
    left.set(xlabel="n", ylabel="processor time in ms")
    right.set(xlabel="n", ylabel="peak memory in MB")
    left.legend(fontsize=8)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw time and memory over n")
    args = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory(prefix="jetdvfs-") as folder:
        for growth in growths(Path(folder), args.repeats):
            found.append(growth)
            print(f"{growth.name}, {growth.unit}: exponent {growth.exponent:.2f}")
            for size, ms, peak_mb in zip(growth.sizes, growth.ms, growth.peak_mb, strict=True):
                print(f"  {size:>7,} {ms:>10.2f} ms {peak_mb:>8.2f} MB", flush=True)
    if args.plot is not None:
        draw(found, args.plot)
        print(args.plot)


if __name__ == "__main__":
    main()
