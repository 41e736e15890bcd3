# SPDX-License-Identifier: Apache-2.0
"""What a kind of kernel is stands in one row for the predictor and in one for the simulated silicon, and nowhere else."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pytest

from jetdvfs.kernels import kinds
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.fusion import fuse
from jetdvfs.kernels.kinds import ELEMENTWISE, KernelKind, per_element
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.kernels.operators.layout import preserved
from jetdvfs.kernels.operators.recorder import Recorder
from jetdvfs.kernels.operators.registry import RULES, operator
from jetdvfs.kernels.operators.values import Tensor
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.bundle.bundle import load_bundle
from jetdvfs.profiles.errors import TwinError
from jetdvfs.profiles.twin.silicon import kinds as silicon_kinds
from jetdvfs.profiles.twin.silicon.chip import Clocks
from jetdvfs.profiles.twin.silicon.kernels import pointwise
from jetdvfs.profiles.twin.silicon.kinds import SiliconKind
from jetdvfs.profiles.twin.silicon.silicon import Silicon, execute
from jetdvfs.tests.support.models.handmade import archive, forward


def rows() -> dict[str, SiliconKind]:
    assert isinstance(silicon_kinds.ROWS, dict)
    return silicon_kinds.ROWS


def costs() -> dict[str, float]:
    assert isinstance(silicon_kinds.COSTS, dict)
    return silicon_kinds.COSTS


@pytest.fixture
def swirl(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pointwise operator that nobody knew: one shape rule, and one row on each side."""

    @operator("swirl", "swirl_")
    def rule(recorder: Recorder, self: Tensor) -> Tensor:
        return recorder.launch("swirl", [self], recorder.tensor(self.shape, self.dtype, preserved(self)))

    monkeypatch.setitem(kinds.KINDS, "swirl", KernelKind("swirl", per_element(50), served_by=ELEMENTWISE, fusible=True))
    monkeypatch.setitem(rows(), "swirl", SiliconKind(pointwise(90.0), 30.0))
    monkeypatch.setitem(costs(), "swirl", 90.0)  # of what is fused
    yield
    for name in ("swirl", "swirl_"):
        del RULES[name]


def test_a_new_operator_is_decomposed_fused_predicted_and_simulated(swirl: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = archive(forward("y = torch.relu(x)", "return torch.swirl(y)"))
    network = decompose(io.BytesIO(model), [TensorSpec((8, 64, 56, 56))])
    elements = 8 * 64 * 56 * 56
    launch = network.launches[1]
    assert (launch.kind, launch.flops, launch.bytes) == ("swirl", 50 * elements, 8 * elements)
    (group,) = fuse(network).launches
    assert group.params["kinds"] == "relu+swirl"

    bundle = load_bundle("agx-xavier-sim")
    predicted = surface(network, bundle.cost)
    assert not predicted.unmodelled
    assert np.isfinite(predicted.latency_ms).all() and np.isfinite(predicted.energy_mj).all()

    clocks = Clocks.of([load_board("agx-xavier").grid.top])
    simulated = execute(network, Silicon(None), clocks)
    assert simulated.gpu_busy_s > 0 and simulated.host_busy_s > 0
    monkeypatch.delitem(rows(), "swirl")
    with pytest.raises(TwinError, match="'swirl'"):
        execute(network, Silicon(None), clocks)
