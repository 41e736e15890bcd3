# SPDX-License-Identifier: Apache-2.0
"""Calls put together from ONNX nodes: each spelling, varied in every attribute, constant and input, against ONNX's evaluator.

A list that names the call computes the call; every list has the shapes and the products of the nodes as they are written.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.network import KernelInvocation, TensorSpec
from jetdvfs.kernels.onnx.templates import ANY, TEMPLATES, C, S, Template

np = pytest.importorskip("numpy")
onnx = pytest.importorskip("onnx", reason="ONNX's evaluator is the oracle of what nodes compute; it is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is the oracle of what calls compute; it is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from torch.nn import functional as F  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::Warning")]

X, HEADS, FEW, STACK = (2, 6, 8), (2, 4, 6, 8), (2, 2, 6, 8), (8, 6, 8)
#: The shape of each operand that a template names, by call; others are like X.
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "layer_norm": {"#scale": (8,), "#shift": (8,)},
    "rms_norm": {"#scale": (8,)},
    "baddbmm": {"x": (2, 6, 4), "other": (2, 4, 8)},
    "linear": {"x": (2, 6, 4), "#matrix": (4, 8), "#row": (8,)},
    "group_norm": {"x": (2, 4, 6, 3), "#scale": (4, 1, 1), "#shift": (4, 1, 1)},
    "attention": {"query": HEADS, "key": HEADS, "value": HEADS, "mask": (1, 1, 6, 6)},
}
CONSTANTS: dict[str, Any] = {"#beta": 1.0, "#divisor": 3, "#by": 3, "#negative": False, C: 1e-5, S: 0.5}
CONSTANTS |= {"apart": [0, 2, -1], "back": [2, 4, 6, 3], "#axes": [-1], "#ones": [1.0, 1.0], "#zeros": [0.0, 0.0]}
ATTRIBUTES = {"axes": [-1], "axis": -1, "epsilon": 1e-5}
NOTES = {
    "attention": "scaled_dot_product_attention.default](args = (%q, %k, %v, %m), kwargs = {{{}}})",
    "baddbmm": "baddbmm.default](args = (%a, %b, %c), kwargs = {{}})",
}


class Spelling:
    """A template as an ONNX model."""

    def __init__(self, call: str, template: Template) -> None:
        self.call, self._shared = call, "'Unsqueeze'" in repr(template)
        self._inputs: dict[str, tuple[int, ...]] = {}
        self._weights: list[Any] = []
        self._nodes: list[Any] = []
        self._made: dict[tuple[str, tuple[int, ...]], str] = {}
        output = self._value(template)
        kind = TensorProto.INT64 if call == "floor_divide" else TensorProto.FLOAT
        given = [helper.make_tensor_value_info(name, kind, shape) for name, shape in self._inputs.items()]
        graph = helper.make_graph(self._nodes, "g", given, [helper.make_tensor_value_info(output, kind, None)], self._weights)
        opset = helper.make_opsetid("", 13 if call == "layer_norm" else 18)
        self.model = helper.make_model(graph, opset_imports=[opset], ir_version=8)

    def _constant(self, numbers: Any) -> str:
        made, name = np.array(numbers), f"w{len(self._weights)}"
        if self.call == "floor_divide" and made.dtype != bool:
            made = made.astype(np.int64)
        self._weights.append(numpy_helper.from_array(made.astype(np.float32) if made.dtype == np.float64 else made, name))
        return name

    def _value(self, template: Template, shape: tuple[int, ...] = ()) -> str:
        """Add the nodes of a template, the result of which has a shape if that is free."""
        if isinstance(template, float):
            return self._constant(template)
        if isinstance(template, str):
            shape = (
                FEW if self._shared and template in ("key", "value") else shape or SHAPES.get(self.call, {}).get(template, X)
            )
            if template in CONSTANTS:
                return self._constant(CONSTANTS[template])
            if not template.startswith("#"):
                self._inputs[template] = shape
            elif template not in {weight.name for weight in self._weights}:
                numbers = np.random.default_rng(1).random(shape).astype(np.float32)
                self._weights.append(numpy_helper.from_array(numbers, template))
            return template
        key = (repr(template), shape)
        if key not in self._made:
            self._made[key] = self._node(shape, *template)
        return self._made[key]

    def _node(self, shape: tuple[int, ...], operator: str, *parts: Any) -> str:
        operands = list(parts)
        attributes = dict(operands.pop()) if isinstance(operands[-1], dict) else {}
        attributes = {name: ATTRIBUTES.get(name) if value is ... else value for name, value in attributes.items()}
        inner: tuple[int, ...] = ()
        if operator == "Transpose":
            inner = STACK if len(shape) == 3 else HEADS
            attributes["perm"] = [0, 2, 1] if len(shape) == 3 else [0, 1, 3, 2]
        elif operator == "Expand":
            shape = (6, 6) if operands[0] == 1.0 else (2, 2, 2, 6, 8)
        elif operator == "Unsqueeze":
            shape = (2,)  # its axis
        elif operator == "Reshape" and operands[1] == ANY:
            turned = operands[0][0] == "Transpose"
            shape, inner = shape or ((2, 4, 8, 6) if turned else HEADS), (8, 8, 6) if turned else HEADS
        names = [self._constant(list(shape)) if operand == ANY else self._value(operand, inner) for operand in operands]
        node = helper.make_node(operator, names, [f"v{len(self._nodes)}"], **attributes)
        note = NOTES.get(self.call, "").format("enable_gqa: True" if self._shared else "")
        node.metadata_props.add(key="pkg.torch.onnx.fx_node", value=f"[target=torch.ops.aten.{note}" if note else "")
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=f"return F.{self.call}(x)")
        self._nodes.append(node)
        return str(node.output[0])


SPELLINGS = [Spelling(call, template) for call, template, _ in TEMPLATES]


def values(model: Any) -> Mapping[str, Any] | None:
    """All that ONNX's evaluator makes of a model, by name; None if it does not run."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    names = [name for node in model.graph.node for name in node.output]
    del whole.graph.output[:]
    whole.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    draw = np.random.default_rng(2)
    given: dict[str, Any] = {}
    for item in model.graph.input:
        sizes = [size.dim_value for size in item.type.tensor_type.shape.dim]
        whole_numbers = item.type.tensor_type.elem_type == TensorProto.INT64
        given[item.name] = draw.integers(-9, 9, sizes) if whole_numbers else draw.standard_normal(sizes).astype(np.float32)
    try:
        with np.errstate(all="ignore"):
            return given | dict(zip(names, ReferenceEvaluator(whole).run(None, given), strict=True))
    except Exception:  # whatever a variation breaks
        return None


def listed(model: Any) -> list[KernelInvocation]:
    """The launches of a model, and of one more that shows the shape of its output."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.graph.node.append(helper.make_node("Cast", [model.graph.output[0].name], ["shown"], to=TensorProto.DOUBLE))
    shown.graph.output[0].name = "shown"
    kinds = {TensorProto.FLOAT: "float32", TensorProto.INT64: "int64"}
    specs = [
        TensorSpec(tuple(size.dim_value for size in item.type.tensor_type.shape.dim), kinds[item.type.tensor_type.elem_type])
        for item in model.graph.input
    ]
    return list(decompose(io.BytesIO(shown.SerializeToString()), specs).launches)


def products(model: Any, made: Mapping[str, Any]) -> int:
    """Operations of the products of a model as it is written."""
    weights = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}
    known = {**weights, **made}
    return sum(
        2 * made[node.output[0]].size * known[node.input[0]].shape[-1] for node in model.graph.node if node.op_type == "MatMul"
    )


def varied(model: Any, draw: random.Random) -> Any:
    """A copy of a model with one thing changed: an attribute, a constant, a shape, an order, an input more, an output more."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    node = draw.choice(made.graph.node)
    how = draw.randrange(7)
    if how == 0 and node.attribute:
        _vary_attribute(draw.choice(node.attribute), draw)
    elif how == 1:
        name, value = draw.choice(
            [("axis", 1), ("keepdims", 0), ("perm", [0, 2, 1]), ("axes", [1]), ("upper", 1), ("alpha", 0.3), ("fmod", 1)]
        )
        if name not in {item.name for item in node.attribute}:
            node.attribute.append(helper.make_attribute(name, value))
    elif how in (2, 3) and made.graph.initializer:
        weight = draw.choice(made.graph.initializer)
        numbers = np.array(numpy_helper.to_array(weight))
        if how == 2 and numbers.size and numbers.flat[0] != np.float32(CONSTANTS[C]):
            place = draw.randrange(numbers.size)
            number = numbers.flat[place]
            step = draw.choice([1, 2, -1] if number > 0 or numbers.dtype.kind == "f" else [1, 2])
            numbers.flat[place] = not number if numbers.dtype == bool else number + step
        else:
            numbers = numbers.reshape(draw.choice([(1, *numbers.shape), (*numbers.shape, 1), numbers.shape[::-1]]))
        weight.CopyFrom(numpy_helper.from_array(numbers, weight.name))
    elif how == 4 and len(node.input) > 1:
        names = list(node.input)
        draw.shuffle(names)
        node.input[:] = names
    elif how == 5:
        sizes = draw.choice(made.graph.input).type.tensor_type.shape.dim
        draw.choice(sizes).dim_value = draw.choice([1, 2, 4, 6, 8])
    elif how == 6:
        node.input.append(draw.choice([*made.graph.initializer, *made.graph.input]).name)
    return made


def _vary_attribute(attribute: Any, draw: random.Random) -> None:
    if attribute.ints:
        numbers = list(attribute.ints)
        if draw.random() < 0.5:
            numbers[draw.randrange(len(numbers))] += draw.choice([-1, 1])
        else:
            draw.shuffle(numbers)
        attribute.ints[:] = draw.choice([numbers, [*numbers, numbers[0] - 1]])
    elif attribute.HasField("i"):
        attribute.i += draw.choice([-2, -1, 1, 2])
    else:
        attribute.f *= 2


def _group_norm(v: Mapping[str, Any], w: Mapping[str, Any], launch: KernelInvocation) -> Any:
    groups = int(str(launch.params["groups"]))
    return F.group_norm(v["x"], groups, w["#scale"].flatten(), w["#shift"].flatten())


def _norm(norm: Callable[..., Any]) -> Callable[..., Any]:
    def compute(v: Mapping[str, Any], w: Mapping[str, Any], launch: KernelInvocation) -> Any:
        sizes = launch.params["normalized_shape"]
        return norm(v["x"], sizes, *(w[name] for name in ("#scale", "#shift") if name in w))

    return compute


#: What calls compute of the inputs and the named constants.
CALLS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any], KernelInvocation], Any]] = {
    "gelu": lambda v, w, launch: F.gelu(v["x"]),
    "silu": lambda v, w, launch: F.silu(v["x"]),
    "mish": lambda v, w, launch: F.mish(v["x"]),
    "hardswish": lambda v, w, launch: F.hardswish(v["x"]),
    "log_sigmoid": lambda v, w, launch: F.logsigmoid(v["x"]),
    "ne": lambda v, w, launch: v["x"] != v["y"],
    "layer_norm": _norm(F.layer_norm),
    "rms_norm": _norm(F.rms_norm),
    "group_norm": _group_norm,
}


def check(model: Any, call: str) -> bool:
    """Hold the list of a model against ONNX's evaluator, if that runs it; true if the call was put together."""
    made = values(model)
    if made is None:
        return False
    *launches, shown = listed(model)
    assert shown.output == made[model.graph.output[0].name].shape
    assert sum(launch.flops for launch in launches if launch.kind in ("matmul", "attention")) == products(model, made)
    found = [launch for launch in launches if launch.kind == call]
    if found == launches and call in CALLS:
        inputs = {item.name: torch.from_numpy(np.array(made[item.name])) for item in model.graph.input}
        weights = {item.name: torch.from_numpy(np.array(numpy_helper.to_array(item))) for item in model.graph.initializer}
        computed = CALLS[call](inputs, weights, found[0])
        wanted = torch.from_numpy(np.array(made[model.graph.output[0].name]))
        assert torch.allclose(computed.to(wanted.dtype), wanted, atol=2e-3), f"the nodes do not compute {call}"
    return len(launches) == 1


def _names() -> Iterator[str]:
    for number, spelling in enumerate(SPELLINGS):
        yield f"{spelling.call}-{number}"


@pytest.mark.parametrize("spelling", SPELLINGS, ids=_names())
def test_a_spelling_is_listed_as_the_call(spelling: Spelling) -> None:
    assert check(spelling.model, spelling.call)


@pytest.mark.parametrize("call", sorted({spelling.call for spelling in SPELLINGS}))
def test_a_varied_spelling_is_listed_as_it_is_written_unless_it_computes_the_call(call: str) -> None:
    models = [spelling.model for spelling in SPELLINGS if spelling.call == call]
    draw = random.Random(call)
    for _ in range(150):
        check(varied(draw.choice(models), draw), call)


def joined(draw: random.Random) -> Any:
    """Two slices of one tensor, joined; and perhaps two of that."""
    nodes, weights, source = [], [], "x"
    for number in range(draw.choice([1, 1, 2])):
        axis, turn = draw.randrange(3), draw.randrange(1, 4)
        parts = [[turn, draw.choice([1 << 40, X[axis]]), axis, 1], [0, turn, axis, 1]]
        along = axis
        if draw.random() < 0.7:
            part = draw.choice(parts)
            place = draw.randrange(4)
            part[place] = draw.choice([[-turn, -1, 0, 2, 9], [-turn, -1, 1, 3, 9], [-1, -2, -3, 0, 1], [2, 3, -1]][place])
        if draw.random() < 0.3:
            along = draw.randrange(-3, 3)
        for letter, part in zip("ab", parts, strict=True):
            names = [f"{letter}{number}{place}" for place in range(4)]
            weights += [
                numpy_helper.from_array(np.array([item], np.int64), name) for item, name in zip(part, names, strict=True)
            ]
            short = part[3] == 1 and draw.random() < 0.5  # without a step
            nodes.append(helper.make_node("Slice", [source, *names[: 3 if short else 4]], [f"{letter}{number}"]))
        source = f"c{number}"
        nodes.append(helper.make_node("Concat", [f"a{number}", f"b{number}"], [source], axis=along))
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, X)]
    graph = helper.make_graph(nodes, "g", given, [helper.make_tensor_value_info(source, TensorProto.FLOAT, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_slices_that_are_joined_are_a_roll_only_if_they_turn_the_tensor() -> None:
    draw, rolls = random.Random(3), 0
    for _ in range(500):
        model = joined(draw)
        made = values(model)
        if made is None:
            continue
        *launches, shown = listed(model)
        output = made[model.graph.output[0].name]
        assert shown.output == output.shape
        if [launch.kind for launch in launches] == ["roll"]:
            rolls += 1
            turned = (np.roll(made["x"], (a, b, c), (0, 1, 2)) for a in range(2) for b in range(6) for c in range(8))
            assert any(np.array_equal(output, one) for one in turned)
    assert rolls > 50
