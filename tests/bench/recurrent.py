# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers, of which no profile has a model, beside simulated boards that the profile was not trained on.

    python tests/bench/recurrent.py [--profile agx-xavier-sim]

Of single layers: how long they take, and how many times that is predicted, as the products they are made of and by their
roofline bound alone; geometric means over all configurations.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from msgspec.structs import replace

from jetdvfs.kernels.cost.model import surface
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.lab.train.evaluation import mean_surface, true_surface
from jetdvfs.profiles.twin.silicon.silicon import Silicon
from jetdvfs.tests.support.profiles.analytic import network, recurrent

NODES = (8, 9, 10, 11)
LAYERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("lstm", {"steps": 100, "batch": 1, "width": 256, "hidden": 512}),
    ("lstm", {"steps": 100, "batch": 1, "width": 80, "hidden": 320, "layers": 4, "directions": 2}),
    ("lstm", {"steps": 50, "batch": 16, "width": 128, "hidden": 256, "layers": 2}),
    ("lstm", {"steps": 1, "batch": 1, "width": 512, "hidden": 512}),
    ("lstm", {"steps": 20, "batch": 64, "width": 1024, "hidden": 1024, "layers": 2}),
    ("gru", {"steps": 200, "batch": 1, "width": 64, "hidden": 128}),
    ("gru", {"steps": 30, "batch": 32, "width": 512, "hidden": 1024}),
    ("gru", {"steps": 500, "batch": 4, "width": 40, "hidden": 256, "layers": 2, "directions": 2}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="agx-xavier-sim")
    bundle = load_bundle(parser.parse_args().profile)
    manifest, cost = bundle.manifest, bundle.cost
    boards = [Silicon(node, manifest.board) for node in NODES]
    bounded = replace(cost, kernels={kind: model for kind, model in cost.kernels.items() if kind != "matmul"})
    print(f"simulated {manifest.board}, boards {', '.join(map(str, NODES))}; predicted / true")
    for kind, sizes in LAYERS:
        layer = network(recurrent(kind, **sizes))
        true_ms = mean_surface([true_surface(layer, board, cost.grid, manifest.rails) for board in boards]).latency_ms
        times = [np.exp(np.log(surface(layer, one).latency_ms / true_ms).mean()) for one in (cost, bounded)]
        told = ", ".join(f"{name} {size}" for name, size in sizes.items())
        print(f"{kind} ({told}): {true_ms.min():.2f} to {true_ms.max():.2f} ms; products {times[0]:.2f}, bound {times[1]:.2f}")


if __name__ == "__main__":
    main()
