# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on sizes, as exporters write it into ONNX files: it launches nothing, and is what ONNX's own reference says."""

from __future__ import annotations

import io
from typing import Any

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.network import TensorSpec

onnx = pytest.importorskip("onnx", reason="ONNX's reference is the oracle of its arithmetic; it is not installed")
numpy = pytest.importorskip("numpy")

from onnx import TensorProto, helper, numpy_helper, reference  # noqa: E402

I64, F32, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL
X = TensorSpec((2, 6, 3, 5))

#: An operator, its inputs ("s" is the shape of the network's input, 2x6x3x5, "f" the same in floating point, "m" as a matrix;
#: others are constants), its attributes, and how many outputs it has, of which the last one is looked at.
CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "clip": ("Clip", ["s", 3, 4], {}),
    "clip below": ("Clip", ["s", None, 4], {}),
    "split": ("Split", ["s", [1, 3]], {"outputs": 2}),
    "split evenly": ("Split", ["s"], {"outputs": 2}),
    "tile": ("Tile", ["s", [2]], {}),
    "tile a matrix": ("Tile", ["m", [1, 2]], {}),
    "range": ("Range", [1, 6, 2], {}),
    "round": ("Round", ["half"], {}),
    "floor": ("Floor", ["half"], {}),
    "ceil": ("Ceil", ["half"], {}),
    "neg": ("Neg", ["s"], {}),
    "sign": ("Sign", ["s"], {}),
    "sqrt": ("Sqrt", ["f"], {}),
    "reciprocal": ("Reciprocal", ["half"], {}),
    "not": ("Not", ["flags"], {}),
    "or": ("Or", ["flags", "flags"], {}),
    "xor": ("Xor", ["flags", "flags"], {}),
    "equal": ("Equal", ["s", 3], {}),
    "greater": ("Greater", ["s", 3], {}),
    "is nan": ("IsNaN", ["f"], {}),
    "is infinite": ("IsInf", ["f"], {}),
    "where": ("Where", ["flags", "s", 9], {}),
    "add": ("Add", ["s", [1, 2, 3, 4]], {}),
    "divide integers": ("Div", ["minus", 2], {}),
    "divide": ("Div", ["f", 2.0], {}),
    "mod": ("Mod", ["minus", 4], {}),
    "mod of the dividend's sign": ("Mod", ["minus", 4], {"fmod": 1}),
    "pow": ("Pow", ["s", 2], {}),
    "min of three": ("Min", ["s", [4, 4, 4, 4], 5], {}),
    "sum": ("Sum", ["s", "s"], {}),
    "mean of two": ("Mean", ["f", "half"], {}),
    "bit shift": ("BitShift", ["unsigned", "unsigned"], {"direction": "LEFT"}),
    "reduce prod": ("ReduceProd", ["s"], {"keepdims": 0}),
    "reduce sum": ("ReduceSum", ["m", [1]], {}),
    "reduce mean": ("ReduceMean", ["f"], {}),
    "reduce max": ("ReduceMax", ["s"], {}),
    "reduce min": ("ReduceMin", ["s"], {"keepdims": 0}),
    "cumsum": ("CumSum", ["s", 0], {}),
    "cumsum from the end": ("CumSum", ["s", 0], {"reverse": 1, "exclusive": 1}),
    "gather": ("Gather", ["s", [3, -1]], {}),
    "gather one": ("Gather", ["s", 1], {}),
    "gather of a matrix": ("Gather", ["m", [1]], {"axis": 1}),
    "gather elements": ("GatherElements", ["m", [[1, 0], [0, 0]]], {"axis": 1}),
    "gather nd": ("GatherND", ["m", "corner"], {}),
    "scatter nd": ("ScatterND", ["s", [[1], [2]], [8, 9]], {}),
    "scatter nd, added": ("ScatterND", ["s", [[1], [2]], [8, 9]], {"reduction": "add"}),
    "scatter elements": ("ScatterElements", ["s", [3], [7]], {}),
    "top": ("TopK", ["s", [3]], {"outputs": 2}),
    "least": ("TopK", ["s", [3]], {"largest": 0, "outputs": 2}),
    "arg max": ("ArgMax", ["s"], {"axis": 0}),
    "arg min": ("ArgMin", ["s"], {"axis": 0, "keepdims": 0}),
    "flatten": ("Flatten", ["m"], {"axis": 0}),
    "pad": ("Pad", ["s", [0, 2], 7], {}),
    "non zero": ("NonZero", ["flags"], {}),
    "compress": ("Compress", ["s", "flags"], {"axis": 0}),
    "one hot": ("OneHot", [[2, 0], 3, [5, 8]], {"axis": 0}),
    "slice": ("Slice", ["s", [1], [3]], {}),
    "slice backwards": ("Slice", ["s", [-1], [-100], [0], [-1]], {}),
    "slice backwards in steps": ("Slice", ["s", [3], [0], [0], [-2]], {}),
    "concatenate": ("Concat", ["s", "s"], {"axis": 0}),
    "transpose": ("Transpose", ["m"], {"perm": [1, 0]}),
    "expand": ("Expand", ["s", [2, 1]], {}),
    "unsqueeze": ("Unsqueeze", ["s", [0]], {}),
    "cast": ("Cast", ["half"], {"to": I64}),
    "cast to truth": ("Cast", ["s"], {"to": BOOL}),
    "constant of shape": ("ConstantOfShape", [[3]], {}),
    "triangle": ("Trilu", ["m", 1], {"upper": 1}),
    "size": ("Size", ["s"], {}),
}
BEFORE = [
    helper.make_node("Shape", ["x"], ["s"]),
    helper.make_node("Cast", ["s"], ["f"], to=F32),
    helper.make_node("Cast", ["s"], ["unsigned"], to=TensorProto.UINT64),
    helper.make_node("Mul", ["f", "half_"], ["half"]),
    helper.make_node("Sub", ["s", "four"], ["minus"]),
    helper.make_node("Greater", ["s", "four"], ["flags"]),
    helper.make_node("Reshape", ["s", "square"], ["m"]),
]
KNOWN = {"half_": 0.5, "four": 4, "square": [2, 2], "corner": [[1, 0]]}
#: Makes a tensor whose shape shows the numbers in "r".
AFTER = [
    helper.make_node("Cast", ["r"], ["ri"], to=I64),
    helper.make_node("Reshape", ["ri", "flat"], ["row"]),
    helper.make_node("Mod", ["row", "many"], ["small"]),
    helper.make_node("Add", ["small", "one"], ["most"]),
    helper.make_node("Concat", ["most", "large"], ["sizes"], axis=0),
    helper.make_node("ConstantOfShape", ["sizes"], ["filled"]),
    helper.make_node("Relu", ["filled"], ["y"]),
]
SHOWN = {"flat": [-1], "many": 4, "one": 1, "large": [11, 7]}


def model_of(case: str) -> Any:
    operator, inputs, attributes = CASES[case]
    options = dict(attributes)
    outputs = options.pop("outputs", 1)
    constants: dict[str, Any] = {**KNOWN, **SHOWN}
    names = []
    for place, value in enumerate(inputs):
        names.append("" if value is None else value if isinstance(value, str) else f"c{place}")
        if names[-1] == f"c{place}":
            constants[names[-1]] = value
    made = ["other", "r"][-outputs:]
    node = helper.make_node(operator, names, made, **options)
    weights = [
        numpy_helper.from_array(numpy.array(value, numpy.float32 if isinstance(value, float) else numpy.int64), name)
        for name, value in constants.items()
    ]
    declared = helper.make_tensor_value_info("x", F32, list(X.shape)), helper.make_tensor_value_info("y", F32, None)
    graph = helper.make_graph([*BEFORE, node, *AFTER], "sizes", [declared[0]], [declared[1]], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("case", CASES)
def test_arithmetic_on_sizes_is_what_onnx_says_and_launches_nothing(case: str) -> None:
    model = model_of(case)
    evaluator: Any = reference.ReferenceEvaluator(model)
    (expected,) = evaluator.run(None, {"x": numpy.zeros(X.shape, numpy.float32)})
    network = decompose(io.BytesIO(model.SerializeToString()), [X])
    assert network.boundary is None
    *made, relu = network.launches
    assert relu.output == expected.shape
    assert [launch.kind for launch in made] in ([], ["zeros"])
