# SPDX-License-Identifier: Apache-2.0
"""Adding to a finished bundle how its board's idle power grows with temperature, its models left as they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ...adapt.measurements import Rows
from ...bundle.bundle import Bundle, load_bundle
from ...bundle.files import ARRAYS
from ...bundle.reading import MANIFEST
from ...bundle.writing import board_file, copy_bundle
from ...twin.silicon.silicon import check_version
from ..measure.meters.simulated import twin_meter
from ..measure.one_twin import WARMER_C
from .leakage_fit import fit_leakage
from .production import FULL


def warm(bundle: Bundle, directory: Path, seed: int, progress: Callable[[int, int, str], None]) -> Bundle:
    """Measure idle power at several temperatures on the simulated boards that a bundle was trained on; write it with that.

    Raises:
        TwinError: the silicon that it was trained on is not here.
    """
    manifest, cost = bundle.manifest, bundle.cost
    check_version(manifest.silicon_version, manifest.board)
    random = np.random.default_rng([seed, 5])
    parts = []
    for number, node in enumerate(manifest.nodes):
        progress(number, len(manifest.nodes), f"board {node}: idle power")
        meter = twin_meter(manifest.board, node, seed + 2)
        for what, temperature_c in enumerate(WARMER_C):
            flat = random.choice(cost.grid.size, min(FULL.warm_configurations, cost.grid.size), replace=False)
            configurations = [cost.grid.configuration(np.unravel_index(index, cost.grid.shape)) for index in flat]
            rails = meter.idle_rails_mw(configurations, temperature_c)
            total = np.sum([rails[rail] for rail in manifest.rails], axis=0)
            parts.append(Rows(np.full(len(flat), what), np.full(len(flat), node), flat, total))
    progress(len(manifest.nodes), len(manifest.nodes), "done")
    found = fit_leakage(Rows.joined(parts), WARMER_C, cost.idle_mw, manifest.measured_at_c, cost.grid)
    assert found is not None  # measured above
    leakage_mw, heat = found
    copy_bundle(bundle, directory)
    data = board_file(cost.idle_mw, cost.host_active_mw, leakage_mw)
    (directory / ARRAYS).write_bytes(data)
    # The manifest's own text but for what is new: numbers stay as they were written.
    told = json.loads((bundle.path / MANIFEST).read_bytes())
    told["leakage_fold_c"] = heat.fold_c
    told["command"] += f"; jetdvfs-lab train {manifest.name} --out {manifest.name}-warm"
    told["checksums"][ARRAYS] = hashlib.sha256(data).hexdigest()
    (directory / MANIFEST).write_text(json.dumps(told, indent=1) + "\n")
    return load_bundle(directory)
