# SPDX-License-Identifier: Apache-2.0
"""The timeline against MIRAGE's sum, network by network, at low, middle and top CPU clocks of simulated boards.

    python tests/bench/timeline_and_sum.py [--profile agx-xavier-sim]

Simulated: the boards are those the profile was not trained on, measured at random GPU and memory clocks with the three lowest,
middle and highest CPU clocks. Errors are mean absolute percentage errors of the latency and of the energy of an inference.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.grid import FrequencyGrid
from jetdvfs.kernels.network import Network
from jetdvfs.kernels.units import METHODS
from jetdvfs.profiles.adapt.network_errors import NetworkMeasurement, compare
from jetdvfs.profiles.bundle.bundle import Bundle, load_bundle
from jetdvfs.profiles.lab.measure.meters.simulated import twin_meter
from jetdvfs.profiles.lab.train.production import EVALUATION_NODES
from jetdvfs.profiles.reference import reference_names, reference_network
from jetdvfs.profiles.twin.silicon.silicon import check_version

LEVELS = 3
CONFIGURATIONS = 40


@dataclass(frozen=True)
class Row:
    """One network at some CPU clocks: mean absolute percentage error of latency and energy by method."""

    network: str
    clocks: str
    latency_percent: Mapping[str, float]
    energy_percent: Mapping[str, float]


def regions(grid: FrequencyGrid) -> dict[str, range]:
    """The indices of the lowest, middle and highest CPU clocks."""
    levels = len(grid.cpu_khz)
    middle = (levels - LEVELS) // 2
    return {"low": range(LEVELS), "middle": range(middle, middle + LEVELS), "top": range(levels - LEVELS, levels)}


def compared(bundle: Bundle, networks: Sequence[Network], nodes: Sequence[int] = EVALUATION_NODES) -> Iterator[Row]:
    """Measure the networks on these simulated boards and compare both methods with what came out."""
    grid = bundle.cost.grid
    random = np.random.default_rng(0)
    for network in networks:
        predicted = {method: surface(network, bundle.cost, method) for method in METHODS}
        for clocks, levels in regions(grid).items():
            index = np.ravel_multi_index(
                tuple(random.choice(axis, CONFIGURATIONS) for axis in (levels, range(grid.shape[1]), range(grid.shape[2]))),
                grid.shape,
            )
            measured = [measure(bundle, network, node, index) for node in nodes]
            errors = {method: [compare(predicted[method], item) for item in measured] for method in METHODS}
            yield Row(
                network.name,
                clocks,
                {method: float(np.mean([error.latency_percent for error in errors[method]])) for method in METHODS},
                {method: float(np.mean([error.energy_percent for error in errors[method]])) for method in METHODS},
            )


def measure(bundle: Bundle, network: Network, node: int, index: NDArray[np.intp]) -> NetworkMeasurement:
    """Latency and energy of a network at these configurations of one simulated board."""
    grid = bundle.cost.grid
    manifest = bundle.manifest
    check_version(manifest.silicon_version, manifest.board)
    meter = twin_meter(manifest.board, node, 1)
    chosen = [grid.configuration([int(level) for level in np.unravel_index(flat, grid.shape)]) for flat in index]
    latency_ms = np.asarray(meter.network_latency_ms(network, chosen), np.float64)
    rails = meter.network_rails_mw(network, chosen)
    power_mw = np.sum([rails[rail] for rail in bundle.manifest.rails], axis=0)
    return NetworkMeasurement(network, index.astype(np.int64), latency_ms, power_mw * latency_ms / 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="agx-xavier-sim")
    bundle = load_bundle(parser.parse_args().profile)
    rows = list(compared(bundle, [reference_network(name) for name in reference_names()]))
    print(
        f"profile {bundle.manifest.name}, simulated; error of latency and energy in percent, at low, middle and top CPU clocks"
    )
    print(f"{'':20} {'low':^31} {'middle':^31} {'top':^31}")
    print(f"{'network':20}" + f" {'timeline':>15} {'sum':>15}" * 3)
    for name in [*dict.fromkeys(row.network for row in rows), "mean"]:
        cells = []
        for clocks in regions(bundle.cost.grid):
            own = [row for row in rows if row.clocks == clocks and name in (row.network, "mean")]
            for method in METHODS:
                latency, energy = (
                    np.mean([figures[method] for figures in column])
                    for column in ([row.latency_percent for row in own], [row.energy_percent for row in own])
                )
                cells.append(f"{latency:8.1f} {energy:6.1f}")
        print(f"{name:20} {' '.join(cells)}")


if __name__ == "__main__":
    main()
