# SPDX-License-Identifier: Apache-2.0
"""``torch.export`` archives: launches equal to the dispatcher's, and one clear error for what is wrong with a file."""

from __future__ import annotations

import io
import json
from importlib.util import find_spec
from typing import Any

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import BudgetExceeded, KernelsError, ModelError, ShapeError, UnsupportedOperator
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.tests.support import handmade

META = {"dtype": 7, "sizes": [{"as_int": 2}, {"as_int": 3}], "strides": [{"as_int": 3}, {"as_int": 1}]}
INPUTS = [TensorSpec((2, 3))]


def node(target: str, inputs: list[dict[str, Any]], output: str) -> dict[str, Any]:
    return {
        "target": target,
        "inputs": [{"name": f"a{place}", "arg": argument, "kind": 1} for place, argument in enumerate(inputs)],
        "outputs": [{"as_tensor": {"name": output}}],
        "metadata": {"nn_module_stack": "L,,M;L__act,act@1,torch.nn.ReLU"},
        "name": output,
    }


def program(*nodes: dict[str, Any]) -> dict[str, Any]:
    specs = [{"user_input": {"arg": {"as_tensor": {"name": "x"}}}}]
    graph = {"nodes": list(nodes), "tensor_values": {"x": META}}
    return {"graph_module": {"graph": graph, "signature": {"input_specs": specs}}}


def archive(content: object) -> io.BytesIO:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return io.BytesIO(handmade.zipped({"m/archive_format": b"pt2", "m/models/model.json": data}))


RELU = node("torch.ops.aten.relu_.default", [{"as_tensor": {"name": "x"}}], "y")


def test_a_handmade_graph_decomposes_with_its_module_paths() -> None:
    network = decompose(archive(program(RELU)), INPUTS)
    assert [(launch.kind, launch.scope, launch.inputs) for launch in network.launches] == [("relu", "act", ((2, 3),))]


def test_what_depends_on_the_contents_of_a_tensor_ends_the_list() -> None:
    sparse = node("torch.ops.aten.nonzero.default", [{"as_tensor": {"name": "y"}}], "z")
    end = decompose(archive(program(RELU, sparse)), INPUTS).boundary
    assert end is not None
    assert (end.operator, end.place) == ("aten::nonzero", "models/model.json, node z, after 50% of the nodes")


def test_other_inputs_than_those_exported_for_are_refused() -> None:
    for inputs in ([TensorSpec((2, 4))], [TensorSpec((2, 3), "float16")], [TensorSpec((2, 3, 1))], [], INPUTS * 2):
        with pytest.raises(ShapeError, match="exported for the inputs"):
            decompose(archive(program(RELU)), inputs)


def test_a_graph_has_no_methods() -> None:
    with pytest.raises(ModelError, match="without a method 'encode'"):
        decompose(archive(program(RELU)), INPUTS, method="encode")


def test_an_unknown_operator_is_named_with_its_node() -> None:
    unknown = node("torch.ops.aten.quantum_sort.default", [{"as_tensor": {"name": "x"}}], "z")
    with pytest.raises(UnsupportedOperator, match=r"aten::quantum_sort .*node z"):
        decompose(archive(program(RELU, unknown)), INPUTS)


BROKEN = [
    b"",
    b"[]",
    b"{",
    b"[" * 100_000,
    b'{"graph_module": 1}',
    {"graph_module": {"graph": {"nodes": [1], "tensor_values": {"x": META}}, "signature": {"input_specs": []}}},
    program({"target": "torch.ops.aten.relu.default"}),
    program(node("torch.ops.aten.relu.default", [{"as_tensor": {"name": "nowhere"}}], "y")),
    program(node("torch.ops.aten.relu.default", [{"as_graph": {}}], "y")),
    program(node("os.system", [{"as_string": "true"}], "y")),
    program(node("_operator.mul", [{"as_string": "x"}, {"as_int": 10**12}], "y")),
]


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_a_graph_of_another_form_is_refused(content: object) -> None:
    with pytest.raises(KernelsError) as caught:
        decompose(archive(content), INPUTS)
    assert "\n" not in str(caught.value)


def test_a_graph_too_large_to_parse_is_refused() -> None:
    with pytest.raises(BudgetExceeded, match=r"model\.json"):
        decompose(archive(b" " * (9 << 20)), INPUTS)
    with pytest.raises(ModelError):
        decompose(archive(b" " * (1 << 20)), INPUTS)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::Warning")
@pytest.mark.parametrize("name", ["resnet18", "shufflenet_v2_x1_0", "squeezenet1_0"])
def test_exported_network_is_what_pytorch_dispatches(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle of decomposition; it is not installed")
    if find_spec("torchvision") is None:
        pytest.skip("the networks are torchvision's; it is not installed")
    from jetdvfs.tests.support import oracle

    module = oracle.without_weights(oracle.build(name))
    batch = torch.export.Dim("batch", min=1, max=64)
    with torch.no_grad():
        exported = torch.export.export(module, (torch.zeros(2, 3, 224, 224),), dynamic_shapes=({0: batch},))
    stream = io.BytesIO()
    torch.export.save(exported, stream)
    for size in (1, 4):
        network = decompose(stream, [TensorSpec((size, 3, 224, 224))])
        assert network.launches == oracle.mirage_network(name, size).launches
