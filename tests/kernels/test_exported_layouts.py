# SPDX-License-Identifier: Apache-2.0
"""Every way in which PyTorch has laid out an exported program."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jetdvfs.tests.support.models import handmade
from jetdvfs.tests.support.models.reading import read


def exported(entry: str, argument: dict[str, Any], **more: object) -> bytes:
    meta = {"dtype": 7, "sizes": [{"as_int": 2}, {"as_int": 3}], "strides": [{"as_int": 3}, {"as_int": 1}]}
    node: dict[str, Any] = {"target": "torch.ops.aten.add.Tensor", "outputs": [{"as_tensor": {"name": "y"}}], "metadata": {}}
    node["inputs"] = [argument, argument, {"name": "alpha", "arg": {"as_int": 2}, **more}]
    specs = [{"user_input": {"arg": {"as_tensor": {"name": "x"}}}}]
    graph = {"nodes": [node], "tensor_values": {"x": meta}}
    return handmade.zipped(
        {entry: json.dumps({"graph_module": {"graph": graph, "signature": {"input_specs": specs}}}).encode()}
    )


TENSOR = {"as_tensor": {"name": "x"}}


@pytest.mark.parametrize(
    "data",
    [
        exported("m/models/model.json", {"name": "self", "arg": TENSOR, "kind": 1}, kind=2),
        exported("serialized_exported_program.json", {"name": "self", "arg": TENSOR, "kind": 1}, kind=2),
        exported("serialized_exported_program.json", {"name": "self", "arg": TENSOR}),
        exported("serialized_exported_program.json", {"name": "self", "arg": {"as_none": None, **TENSOR, "as_int": None}}),
    ],
    ids=["2.8", "2.7", "2.3", "2.2"],
)
def test_every_layout_of_an_exported_program(data: bytes) -> None:
    assert read(data).kinds == {"add": 1}


X, NOTHING = {"as_tensor": {"name": "x"}}, {"as_none": True}
ROW, SIZE, SMALL_NUMBER = {"as_tensor": {"name": "row"}}, {"as_ints": [3]}, {"as_float": 1e-5}
FOUR = {"as_tensor": {"name": "four"}}
TAKEN_APART: dict[str, tuple[list[dict[str, Any]], dict[str, int]]] = {
    "_softmax": ([X, {"as_int": -1}, {"as_bool": False}], {"softmax": 1}),
    "_log_softmax": ([X, {"as_int": -1}, {"as_bool": False}], {"log_softmax": 1}),
    "_native_batch_norm_legit_no_training": ([X, ROW, ROW, ROW, ROW, {"as_float": 0.1}, SMALL_NUMBER], {"batch_norm": 1}),
    "native_layer_norm": ([X, SIZE, ROW, ROW, SMALL_NUMBER], {"layer_norm": 1}),
    "native_group_norm": ([X, ROW, ROW, *({"as_int": n} for n in (2, 3, 1, 3)), SMALL_NUMBER], {"group_norm": 1}),
    "_scaled_dot_product_flash_attention": ([FOUR, FOUR, FOUR], {"attention": 1}),
    "_scaled_dot_product_efficient_attention": ([FOUR, FOUR, FOUR, NOTHING, {"as_bool": False}], {"attention": 1}),
    "fill": ([X, {"as_float": "-Infinity"}], {"fill": 1}),
    "eq": ([X, {"as_float": "Infinity"}], {"eq_scalar": 1}),
    "copy": ([X, X], {"copy": 1}),
    "select_scatter": ([X, ROW, {"as_int": 0}, {"as_int": 1}], {"clone": 1, "copy": 1}),
    "slice_scatter": ([X, X, {"as_int": 0}, {"as_int": 0}, {"as_int": 2}], {"clone": 1, "copy": 1}),
}


@pytest.mark.parametrize("name", TAKEN_APART)
def test_graphs_that_were_taken_apart(name: str) -> None:
    def meta(*sizes: int) -> dict[str, Any]:
        return {"dtype": 7, "sizes": [{"as_int": size} for size in sizes], "strides": [{"as_int": 1}] * len(sizes)}

    arguments, kinds = TAKEN_APART[name]
    node: dict[str, Any] = {
        "target": f"torch.ops.aten.{name}.default",
        "outputs": [{"as_tensor": {"name": "y"}}],
        "metadata": {},
    }
    node["inputs"] = [{"name": "", "arg": argument, "kind": 1} for argument in arguments]
    then: dict[str, Any] = {"target": "torch.ops.aten.relu.default", "outputs": [{"as_tensor": {"name": "z"}}], "metadata": {}}
    then["inputs"] = [{"name": "self", "arg": {"as_tensor": {"name": "y"}}, "kind": 1}]
    specs = [{"parameter": {"arg": {"name": weight}}} for weight in ("row", "four")] + [{"user_input": {"arg": X}}]
    graph = {"nodes": [node, then], "tensor_values": {"x": meta(2, 3), "row": meta(3), "four": meta(1, 2, 4, 8)}}
    program = {"graph_module": {"graph": graph, "signature": {"input_specs": specs}}}
    assert read(handmade.zipped({"m/models/model.json": json.dumps(program).encode()})).kinds == {**kinds, "relu": 1}
