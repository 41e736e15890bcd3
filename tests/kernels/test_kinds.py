# SPDX-License-Identifier: Apache-2.0
"""The table of kernel kinds: what it refuses, and that its rows hang together."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from jetdvfs.kernels.cost.features import can_be_modelled, feature_names
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import UnsupportedOperator
from jetdvfs.kernels.fusion import fuse
from jetdvfs.kernels.kinds import ELEMENTWISE, KINDS, flops
from jetdvfs.kernels.network import Network, TensorSpec
from jetdvfs.kernels.operators.recorder import Recorder
from jetdvfs.kernels.operators.registry import RULES, operator, rule_of
from jetdvfs.kernels.operators.values import Tensor
from jetdvfs.tests.support.models.handmade import archive, forward
from jetdvfs.tests.support.profiles.analytic import board, relu

IMAGE = TensorSpec((1, 8, 16, 16))


@pytest.fixture
def operator_without_a_row() -> Iterator[None]:
    @operator("hardtan")
    def rule(recorder: Recorder, self: Tensor) -> Tensor:
        return recorder.launch("hardtan", [self], recorder.tensor(self.shape, self.dtype))

    yield
    del RULES["hardtan"]


def test_an_operator_that_launches_a_kind_without_a_row_is_refused(operator_without_a_row: None) -> None:
    model = io.BytesIO(archive(forward("return torch.hardtan(x)")))
    with pytest.raises(
        UnsupportedOperator, match=r"^kernel kind 'hardtan' is not known; the closest: hardtanh, \w+, \w+ \(at "
    ):
        decompose(model, [IMAGE])


def test_a_convolution_along_four_dimensions_is_refused() -> None:
    ones, zeros = [1] * 4, [0] * 4
    line = f"return torch._convolution(x, x, None, {ones}, {zeros}, {ones}, False, {zeros}, 1, False, False, False)"
    with pytest.raises(UnsupportedOperator, match="kernel kind 'conv4d' is not known; the closest: conv"):
        decompose(io.BytesIO(archive(forward(line))), [TensorSpec((2, 2, 3, 3, 3, 3))])


def test_somebody_elses_list_may_name_any_kind_and_keeps_the_work_it_states() -> None:
    data = relu(kind="warp").to_json()
    listed = Network.from_json({"launches": [{**data, "flops": 12_345, "bytes": 67_890}], "reads": [[-1]]})
    (launch,) = listed.launches
    assert (launch.kind, launch.flops, launch.bytes) == ("warp", 12_345, 67_890)
    assert not can_be_modelled(launch)
    assert fuse(listed).launches == listed.launches
    (unmodelled,) = surface(listed, board()).unmodelled
    assert (unmodelled.kind, unmodelled.flops_share) == ("warp", 1.0)


def test_what_fusion_makes_has_no_rule_of_its_own_for_its_operations() -> None:
    fused = [row.name for row in KINDS.values() if row.fused]
    assert {"conv2d_relu", "conv2d_add_relu", "fused_pointwise"} <= set(fused)
    for kind in fused:
        with pytest.raises(UnsupportedOperator, match=f"kernel kind '{kind}' is made by fusion"):
            flops(kind, [IMAGE.shape], IMAGE.shape, {})


def test_whatever_serves_a_kind_has_features() -> None:
    for row in KINDS.values():
        assert not row.served_by or len(feature_names(row.served_by)) > 3, row
        assert not row.members or {KINDS[member].name for member in row.members} == set(row.members)
    assert KINDS["silu"].served_by == ELEMENTWISE


def test_a_kind_that_onnx_spells_is_an_operator_of_its_own() -> None:
    spelled = [row for row in KINDS.values() if row.onnx]
    assert {"relu", "add"} < {row.name for row in spelled}
    for row in spelled:
        assert rule_of(row.name) is not None and row.operands in (1, 2), row
