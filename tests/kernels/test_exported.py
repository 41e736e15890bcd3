# SPDX-License-Identifier: Apache-2.0
"""``torch.export`` archives: launches equal to the dispatcher's, and one clear error for what is wrong with a file."""

from __future__ import annotations

import io
import json
from importlib.util import find_spec
from typing import Any

import pytest

from jetdvfs.kernels.budget import Budget
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import BudgetExceeded, KernelsError, ModelError, ShapeError, UnsupportedOperator
from jetdvfs.kernels.network import Network, TensorSpec
from jetdvfs.tests.support.models import handmade

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


def test_a_tensor_within_a_weight_of_another_class_is_as_the_file_describes_it() -> None:
    """torchao's weights of 8 bits: the graph takes their parts out of them."""
    part: list[dict[str, Any]] = [{"as_tensor": {"name": "x"}}, {"as_string": "q"}]
    member = node("torch.ops.export.access_subclass_inner_tensor.default", part, "q")
    content = program(member, node("torch.ops.aten.abs.default", [{"as_tensor": {"name": "q"}}], "y"))
    with pytest.raises(UnsupportedOperator, match="unwrap_tensor_subclass"):
        decompose(archive(content), INPUTS)
    content["graph_module"]["graph"]["tensor_values"]["q"] = {**META, "dtype": 2}
    (launch,) = decompose(archive(content), INPUTS).launches
    assert (launch.dtype, launch.output) == ("int8", (2, 3))


def test_what_depends_on_the_contents_of_a_tensor_ends_the_list() -> None:
    sparse = node("torch.ops.aten.nonzero.default", [{"as_tensor": {"name": "y"}}], "z")
    end = decompose(archive(program(RELU, sparse)), INPUTS).boundary
    assert end is not None
    assert (end.operator, end.place) == ("aten::nonzero", "models/model.json, node z, after 50% of the nodes")


@pytest.mark.parametrize(
    ("written", "kind"),
    [("arccos", "acos"), ("arcsinh", "asinh"), ("arctan2", "atan2"), ("greater_equal", "ge"), ("less_equal", "le")],
)
def test_an_operator_may_be_called_by_its_other_name(written: str, kind: str) -> None:
    operands = [{"as_tensor": {"name": "x"}}] * (1 if written in ("arccos", "arcsinh") else 2)
    called = node(f"torch.ops.aten.{written}.{'default' if len(operands) == 1 else 'Tensor'}", operands, "y")
    assert decompose(archive(program(called)), INPUTS).kinds == {kind: 1}


def test_other_inputs_than_those_exported_for_are_refused() -> None:
    for inputs in ([TensorSpec((2, 4))], [TensorSpec((2, 3), "float16")], [TensorSpec((2, 3, 1))], INPUTS * 2):
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
    with pytest.raises(BudgetExceeded, match=r"model\.json.*room"):
        decompose(archive(b" " * (40 << 20)), INPUTS)
    with pytest.raises(ModelError):
        decompose(archive(b" " * (1 << 20)), INPUTS)


def test_a_graph_of_many_megabytes_is_read_piece_by_piece() -> None:
    relu = node("torch.ops.aten.relu.default", [{"as_tensor": {"name": "x"}}], "x")
    relu["metadata"]["stack_trace"] = "line\n" * 800
    large = archive(program(*[relu] * 2000))
    assert len(large.getvalue()) > 8 << 20
    assert len(decompose(large, INPUTS).launches) == 2000
    with pytest.raises(BudgetExceeded, match="room to read"):
        decompose(large, INPUTS, budget=Budget(memory_bytes=20 << 20))


def test_a_value_too_large_to_parse_is_refused() -> None:
    long = program(node("torch.ops.aten.relu.default", [{"as_string": "x" * (6 << 20)}], "y"))
    with pytest.raises(BudgetExceeded, match="parsed at a time"):
        decompose(archive(long), INPUTS)
    with pytest.raises(BudgetExceeded):
        decompose(archive({"schema": "x" * (6 << 20), **program(RELU)}), INPUTS)
    assert decompose(archive({"schema": [["}"] * 100_000, {"a": '\\"{['}], **program(RELU)}), INPUTS).kinds == {"relu": 1}


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::Warning")
@pytest.mark.parametrize("name", ["resnet18", "shufflenet_v2_x1_0", "squeezenet1_0"])
def test_exported_network_is_what_pytorch_dispatches(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle of decomposition; it is not installed")
    if find_spec("torchvision") is None:
        pytest.skip("the networks are torchvision's; it is not installed")
    from jetdvfs.tests.support.models import oracle

    module = oracle.without_weights(oracle.build(name))
    batch = torch.export.Dim("batch", min=1, max=64)
    with torch.no_grad():
        exported = torch.export.export(module, (torch.zeros(2, 3, 224, 224),), dynamic_shapes=({0: batch},))
    stream = io.BytesIO()
    torch.export.save(exported, stream)
    for size in (1, 4):
        network = decompose(stream, [TensorSpec((size, 3, 224, 224))])
        assert network.launches == oracle.mirage_network(name, size).launches


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::Warning")
def test_graphs_within_a_graph_are_followed() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle of decomposition; it is not installed")
    from jetdvfs.tests.support.models import oracle

    class Rotary(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        @torch.no_grad()  # type: ignore[untyped-decorator]
        def angles(self, x: Any) -> Any:
            with torch.autocast("cpu", enabled=False):
                angle = x.double().transpose(1, 2)
                return angle.cos(), angle.sin()

        def forward(self, x: Any) -> Any:
            cosine, sine = self.angles(x)
            return self.layer(x) * cosine.transpose(1, 2) + sine.transpose(1, 2)

    class Branches(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self, by_size: bool) -> None:
            super().__init__()
            self.by_size = by_size

        def forward(self, x: Any) -> Any:
            first = x.shape[0] > 1 if self.by_size else x.sum() > 1
            return torch.cond(first, lambda x: x.relu() + 1, lambda x: x.sigmoid(), (x,))

    def exported(module: Any, **options: Any) -> io.BytesIO:
        stream = io.BytesIO()
        torch.export.save(torch.export.export(module.eval(), (torch.zeros(2, 6, 8),), **options), stream)
        return stream

    inputs = [TensorSpec((2, 6, 8))]
    assert decompose(exported(Rotary()), inputs).launches == oracle.network_of(Rotary().eval(), inputs).launches
    any_size = exported(Branches(True), dynamic_shapes={"x": {0: torch.export.Dim("batch", min=1, max=9)}})
    assert decompose(any_size, inputs).kinds == {"relu": 1, "add_scalar": 1}
    assert decompose(any_size, [TensorSpec((1, 6, 8))]).kinds == {"sigmoid": 1}
    end = decompose(exported(Branches(False)), inputs).boundary
    assert end is not None and end.operator == "higher_order::cond"


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::Warning")
def test_a_number_that_the_code_makes_a_tensor_of_is_the_hosts() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what writes such files; it is not installed")

    class Scaled(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            length = torch.ceil(torch.as_tensor(2.5 * x.shape[0])).long()
            return x[:, :length] * torch.tensor(0.5)

    stream = io.BytesIO()
    torch.export.save(torch.export.export(Scaled(), (torch.zeros(2, 6),)), stream)
    network = decompose(stream, [TensorSpec((2, 6))])
    assert [(launch.kind, launch.output) for launch in network.launches] == [("mul_scalar", (2, 5))]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::Warning")
def test_numbers_that_are_only_checked_do_not_end_the_list_and_those_that_are_used_do() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what writes such files; it is not installed")

    class Checking(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            torch._check_tensor_all(x < 9)
            y = x.relu()
            torch._check((x.sum() < 9).item())
            return y * 2

    class Using(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            size = x.sum().long().item()
            torch._check(size >= 0)
            torch._check(size <= 2)
            return x.relu() + torch.zeros(size).sum()

    def listed(module: Any) -> Network:
        stream = io.BytesIO()
        torch.export.save(torch.export.export(module.eval(), (torch.zeros(2, 3),)), stream)
        return decompose(stream, INPUTS)

    checked = listed(Checking())
    assert checked.boundary is None
    assert [launch.kind for launch in checked.launches] == ["lt_scalar", "all", "relu", "sum", "lt_scalar", "mul_scalar"]
    end = listed(Using()).boundary
    assert end is not None and end.operator == "aten::item"


def test_a_number_that_is_checked_and_handed_out_is_used() -> None:
    taken = node("torch.ops.aten.item.default", [{"as_tensor": {"name": "y"}}], "n")
    taken["outputs"] = [{"as_sym_int": {"as_name": "n"}}]
    check = node("torch.ops.aten._assert_scalar.default", [{"as_sym_bool": {"as_name": "n"}}, {"as_string": "no"}], "c")
    content = program(RELU, taken, check)
    assert decompose(archive(content), INPUTS).boundary is None
    content["graph_module"]["graph"]["outputs"] = [{"as_sym_int": {"as_name": "n"}}]
    assert decompose(archive(content), INPUTS).boundary is not None


def constants(number: bytes, **said: Any) -> io.BytesIO:
    """An archive with one constant, whose sizes and whose entry are said otherwise than they should be."""
    meta = {"dtype": 7, "sizes": said.get("sizes", [])}
    config = {"config": {"c": {"path_name": said.get("path", "tensor_0"), "tensor_meta": meta}}}
    product = program(node("torch.ops.aten.mul.Tensor", [{"as_tensor": {"name": name}} for name in "xc"], "y"))
    product["graph_module"]["graph"]["tensor_values"]["c"] = {"dtype": 7, "sizes": [], "strides": []}
    specs = product["graph_module"]["signature"]["input_specs"]
    specs.append({"tensor_constant": {"arg": {"name": "c"}, "tensor_constant_name": "c"}})
    entries = {"models/model.json": product, "data/constants/model_constants_config.json": config}
    files = {f"m/{name}": json.dumps(content).encode() for name, content in entries.items()}
    return io.BytesIO(handmade.zipped({"m/archive_format": b"pt2", **files, "m/data/constants/tensor_0": number}))


def test_only_a_constant_of_one_number_is_read() -> None:
    assert decompose(constants(bytes(4)), INPUTS).kinds == {"mul_scalar": 1}
    assert decompose(constants(bytes(8)), INPUTS).kinds == {"mul": 1}
    assert decompose(constants(bytes(4), sizes=[{"as_int": 1}]), INPUTS).kinds == {"mul": 1}
    with pytest.raises(ModelError, match="not laid out"):
        decompose(constants(bytes(4), path="tensor_1"), INPUTS)


def test_what_autocast_would_convert_is_refused_with_the_way_out() -> None:
    inner = {"graph": {"nodes": [], "inputs": [], "outputs": [], "tensor_values": {}}, "name": "g"}
    arguments: list[dict[str, Any]] = [
        {"as_string": "cuda"},
        {"as_scalar_type": 6},
        {"as_bool": True},
        {"as_bool": False},
        {"as_graph": inner},
    ]
    with pytest.raises(UnsupportedOperator, match=r"autocast .*half\(\)"):
        decompose(archive(program(node("torch.ops.higher_order.wrap_with_autocast", arguments, "y"))), INPUTS)
    with pytest.raises(UnsupportedOperator, match=r"higher_order::while_loop .*without it"):
        decompose(archive(program(node("torch.ops.higher_order.while_loop", [{"as_graph": inner}], "y"))), INPUTS)
