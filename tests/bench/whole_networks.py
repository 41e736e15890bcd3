# SPDX-License-Identifier: Apache-2.0
"""How long predictors of whole networks take for all configurations of a board, beside the kernel-level surface.

    python tests/bench/whole_networks.py [--profile NAME|DIR] [--network resnet18 ...] [--predictor rates ...] [--repeats 3]

Each predictor of latency and energy has the sizes of its paper, and has learnt for one epoch: how well it predicts is another
matter, and does not change how long it takes. Both begin with the network's list of launches; reading the predictor's file
counts as well, models of kernels are mapped. Processor time of one thread, the best of so many.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.graph import graph_of
from jetdvfs.kernels.network import Network
from jetdvfs.profiles.bundle.bundle import Bundle, load_bundle
from jetdvfs.profiles.lab.networks.predictors.estimator import save
from jetdvfs.profiles.lab.networks.predictors.loading import PREDICTORS, load, trained_as
from jetdvfs.profiles.lab.networks.record import About, Record, Row, device_features, device_levels
from jetdvfs.profiles.reference import reference_network
from jetdvfs.tests.support.profiles.measured_networks import measured

LEFT_OUT = ("xgboost-added", "seernet-multi", "roofline+seernet")  # as fast as those that they are made of


def record_of(bundle: Bundle) -> Record:
    """Small networks with figures of a formula, at two configurations of the profile's board."""
    grid, chip = bundle.cost.grid, bundle.manifest.described().chip
    devices = device_features(chip, [grid.configuration((0, 0, 0)), grid.top], chip.dram_gib)
    networks = []
    for one in measured(16, [tuple(map(float, device)) for device in devices]):
        times = [(row.device, row.values["latency_ms"]) for row in one.rows]
        rows = [Row(f"{bundle.manifest.board} 0", device, {"latency_ms": ms, "energy_mj": ms}) for device, ms in times]
        networks.append(replace(one, rows=tuple(rows)))
    return Record(About("a formula", True, ("latency_ms", "energy_mj")), tuple(networks), {})


def swept(network: Network, file: Path, bundle: Bundle) -> NDArray[np.float64]:
    chip = bundle.manifest.described().chip
    return load(file).sweep(graph_of(network), device_levels(chip, bundle.cost.grid), chip.dram_gib)


def best_ms(repeats: int, make: Callable[[], object]) -> float:
    seconds = []
    for _ in range(repeats):
        started = time.thread_time()
        make()
        seconds.append(time.thread_time() - started)
    return 1e3 * min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="agx-xavier-sim")
    parser.add_argument("--network", action="append")
    parser.add_argument("--predictor", action="append", choices=sorted(set(PREDICTORS) - set(LEFT_OUT)))
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    bundle = load_bundle(arguments.profile)
    networks = [reference_network(name) for name in arguments.network or ("resnet18", "mobilenet_v2")]
    names = [f"{network.name} ({len(network.launches)})" for network in networks]
    print(f"{bundle.cost.grid.size} configurations, ms; launches in brackets")
    print(f"{'':20}" + "".join(f"{name:>22}" for name in names))
    for network in networks:
        surface(network, bundle.cost)  # from here on models are mapped
    kernels = [best_ms(arguments.repeats, partial(surface, network, bundle.cost)) for network in networks]
    print(f"{'kernels':20}" + "".join(f"{one:22.1f}" for one in kernels))
    record = record_of(bundle)
    for name in arguments.predictor or [name for name in PREDICTORS if name not in LEFT_OUT]:
        estimator = trained_as(PREDICTORS[name], epochs=1)()
        estimator.fit(record.samples)
        with tempfile.TemporaryDirectory(prefix="jetdvfs-") as folder:
            file = Path(folder) / "predictor.npz"
            save(estimator, file)
            found = [best_ms(arguments.repeats, partial(swept, network, file, bundle)) for network in networks]
        cells = [f"{one:10.1f} ({one / own:5.2f} x)" for one, own in zip(found, kernels, strict=True)]
        print(f"{name:20}" + "".join(f"{cell:>22}" for cell in cells), flush=True)


if __name__ == "__main__":
    np.seterr(over="ignore")  # of what has hardly learnt
    main()
