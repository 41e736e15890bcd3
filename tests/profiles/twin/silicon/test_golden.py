# SPDX-License-Identifier: Apache-2.0
"""The simulated AGX Xavier behaves to the last digits as it did when its silicon was frozen, and so do all other chips: the
shipped bundles were trained on them.

The golden figures are in ``tests/snapshots``; this file, run by itself, prints them. Another processor may round the last bit
of a power differently, hence the tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.lab.measure.meters.simulated import TwinMeter
from jetdvfs.profiles.lab.measure.sampling import Sampler, random_configurations
from jetdvfs.profiles.reference import reference_names, reference_network
from jetdvfs.profiles.twin.silicon.chip import Clocks
from jetdvfs.profiles.twin.silicon.silicon import Silicon, execute
from jetdvfs.tests.support.boards.own_chips import OWN_CHIPS
from jetdvfs.tests.support.paths import SNAPSHOTS

GOLDEN = SNAPSHOTS / "silicon_golden_2.txt"
NODES = (0, 7, 12)
RELATIVE = 1e-12


def figures() -> Iterator[tuple[str, list[float]]]:
    """Sums over configurations, each weighted by another number so that nothing cancels."""
    configurations = random_configurations(load_board("agx-xavier").grid, 25, np.random.default_rng(3))
    clocks = Clocks.of(configurations)
    weight = 1.0 + np.sqrt(np.arange(25.0))
    networks = [reference_network(name) for name in reference_names()]
    for node in NODES:
        silicon = Silicon(node)
        for network in networks:
            run = execute(network, silicon, clocks, 60.0)
            yield (
                f"execute {node} {network.name}",
                [float(values @ weight) for values in (run.latency_s, run.host_busy_s, *run.rail_energy_j.values())],
            )
        for kind in Sampler(networks, 1).kinds:
            calls = Sampler(networks, seed=5).draw(kind, 40, real_share=0.5)
            for cold in (False, True):
                activity = silicon.kernels(calls, clocks, cold=cold)
                sums = [activity.seconds, *activity.energy_j.values(), activity.launches]
                yield f"kernels {node} {kind} {cold}", [float((values @ weight).sum()) for values in sums]
        idle = silicon.sensed(silicon.idle_rails_w(clocks, 61.0))
        yield f"idle {node}", [float(values @ weight) for values in idle.values()]
        power = TwinMeter(silicon, 4).kernel_powers(list(networks[0].launches)[:10], configurations[:10])
        yield f"meter {node}", [float(values.sum()) for values in power.rails_mw.values()]
    yield from surroundings()


def surroundings() -> Iterator[tuple[str, list[float]]]:
    """Engines, heat, other traffic, operands; and every chip."""
    network = reference_network("resnet18")
    for board in OWN_CHIPS:
        clocks = Clocks.of([load_board(board).grid.top])
        for engine, dtype in (("", ""), ("tensorrt", "float16")):
            silicon = Silicon(3, board, engine=engine, dtype=dtype)
            run = execute(network, silicon, clocks, 88.0)
            yield (
                f"{silicon.version} {engine or 'eager'}",
                [float(value[0]) for value in (run.latency_s, run.host_busy_s, run.dram_bytes, *run.rail_energy_j.values())],
            )
        alone = silicon.kernels(list(network.launches)[:20], clocks, others_bytes_s=2e9, zeros=True)
        yield f"{silicon.version} zeros", [float(value.sum()) for value in (alone.seconds, *alone.energy_j.values())]


def golden() -> dict[str, list[float]]:
    lines = (line.partition(": ") for line in GOLDEN.read_text(encoding="utf-8").splitlines())
    return {name: [float(value) for value in numbers.split()] for name, _, numbers in lines}


def test_the_silicon_is_what_it_was_when_it_was_frozen() -> None:
    expected, measured = golden(), dict(figures())
    assert measured.keys() == expected.keys() and len(expected) > 60
    for name, values in measured.items():
        assert values == pytest.approx(expected[name], rel=RELATIVE), name


if __name__ == "__main__":
    for name, values in figures():
        print(f"{name}: {' '.join(map(repr, values))}")
