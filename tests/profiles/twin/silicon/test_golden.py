# SPDX-License-Identifier: Apache-2.0
"""The simulated AGX Xavier behaves to the last digits as it did when the shipped bundle was trained on it.

The golden figures are in ``tests/snapshots/silicon_golden.txt``; this file prints them when it is run. They were taken before
chips became data. Another processor may round the last bit of a power differently, hence the tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.measuring.meters.simulated import TwinMeter
from jetdvfs.profiles.measuring.sampling import Sampler, random_configurations
from jetdvfs.profiles.reference import reference_names, reference_network
from jetdvfs.profiles.twin.silicon.chip import Clocks
from jetdvfs.profiles.twin.silicon.execution import execute
from jetdvfs.profiles.twin.silicon.silicon import Silicon
from jetdvfs.tests.support.paths import SNAPSHOTS

GOLDEN = SNAPSHOTS / "silicon_golden.txt"
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


def test_the_agx_xavier_is_what_the_shipped_bundle_was_trained_on() -> None:
    golden = {}
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        name, _, numbers = line.partition(": ")
        golden[name] = [float(value) for value in numbers.split()]
    measured = dict(figures())
    assert measured.keys() == golden.keys() and len(golden) > 60
    for name, values in measured.items():
        assert values == pytest.approx(golden[name], rel=RELATIVE), name


if __name__ == "__main__":
    for name, values in figures():
        print(f"{name}: {' '.join(map(repr, values))}")
