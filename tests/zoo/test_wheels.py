# SPDX-License-Identifier: Apache-2.0
"""Verdicts on model files of wheels, on files made here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jetdvfs.kernels.inputs import parse_input
from jetdvfs.tests.zoo.wheels import judge

pytestmark = pytest.mark.tool
onnx: Any = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def written(path: Path, operator: str = "Relu", domain: str = "") -> Path:
    """A convolution of 8 filters, an operator, and a product."""
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    weights = [helper.make_tensor(name, floats, shape, [0.1] * count) for name, shape, count in (
        ("filters", (8, 3, 3, 3), 216), ("matrix", (6, 5), 30),
    )]  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "filters"], ["a"], "convolution"),
        helper.make_node(operator, ["a"], ["b"], "between", domain=domain),
        helper.make_node("MatMul", ["b", "matrix"], ["y"], "product"),
    ]
    made = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [made("x", floats, (1, 3, 8, 8))], [made("y", floats, None)], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_a_list_with_the_runtimes_launches_is_equal(tmp_path: Path) -> None:
    path = written(tmp_path / "a.onnx")
    assert judge("a", path, [parse_input("1x3x8x8")]).verdict == "equal"


def test_a_list_of_other_sizes_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = written(tmp_path / "a.onnx"), written(tmp_path / "b.onnx", "Tanh")
    from jetdvfs.tests.zoo import wheels

    truth = wheels._of_onnx(other, [parse_input("1x3x8x8")])
    monkeypatch.setattr(wheels, "_of_onnx", lambda *_: truth._replace(flops=2 * truth.flops))
    assert judge("a", path, [parse_input("1x3x8x8")]).verdict == "wrong"


def test_a_file_without_rules_is_refused_by_name(tmp_path: Path) -> None:
    verdict = judge("a", written(tmp_path / "a.onnx", "StringNormalizer"), [parse_input("1x3x8x8")])
    assert verdict.verdict == "refused" and "StringNormalizer" in verdict.why
