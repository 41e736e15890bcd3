# SPDX-License-Identifier: Apache-2.0
"""What shipped profiles say of more images at a time than most of their kernels were measured with."""

from __future__ import annotations

import numpy as np
import pytest

from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.grid import FrequencyGrid
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.lab.train.evaluation import true_surface
from jetdvfs.profiles.reference import reference_network
from jetdvfs.profiles.twin.silicon.silicon import Silicon

_MANY = (96, 128, 256, 512)
_MUCH = 1 / 3  # of the GPU's time
_FAR = 0.3
_STEP = 2  # every other clock, the lowest and the top ones included

# The grid of AGX Thor is the largest.
CASES = [
    pytest.param(network, name, marks=[pytest.mark.slow] if name == "agx-thor-sim" and network != "resnet18" else [])
    for network in ("resnet18", "mobilenet_v2", "squeezenet1_0")
    for name in ("agx-xavier-sim", "agx-orin-64gb-sim", "agx-thor-sim", "orin-nano-8gb-sim", "tx2-sim")
]


@pytest.mark.slow
@pytest.mark.parametrize(("network", "name"), CASES)
def test_large_batches_are_predicted_well_or_said_to_be_guessed(name: str, network: str) -> None:
    bundle = load_bundle(name)
    silicon, grid = Silicon(None, bundle.manifest.board), bundle.cost.grid
    some = FrequencyGrid(*(tuple(sorted({axis[0], *axis[::-_STEP]})) for axis in (grid.cpu_khz, grid.gpu_hz, grid.emc_hz)))
    cells = tuple(np.transpose([grid.index(configuration) for configuration in some]))
    for batch in _MANY:
        many = reference_network(network, batch)
        predicted = surface(many, bundle.cost)
        true = true_surface(many, silicon, some, bundle.manifest.rails)
        off = np.abs(np.log(predicted.latency_ms[cells] / true.latency_ms.ravel()))
        told = predicted.guessed_share[cells] > _MUCH
        # Small profiles are that far off at single corners of the grid, with any batch.
        assert (told | (off < _FAR)).mean() > 0.95, (batch, float(np.quantile(off[~told], 0.95)))
        # A guess is worth something, too, and its range says how much.
        assert np.median(off) < max(_FAR, 2 * float(np.median(predicted.latency_sigma[cells]))), (batch, float(np.median(off)))
