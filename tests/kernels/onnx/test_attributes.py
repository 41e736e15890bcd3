# SPDX-License-Identifier: Apache-2.0
"""Attributes that decide shapes, each as ONNX Runtime has it."""

from __future__ import annotations

import io
from typing import Any

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.tests.support.models.handmade_onnx import INT64, declared, graph, model, node, tensor

CEIL = {"ceil_mode": 1}
MOST = (1 << 60, -(1 << 60))


def shape_of(operator: str, shape: tuple[int, ...], *numbers: Any, **attributes: Any) -> tuple[int, ...]:
    """The shape of an operator's output; numbers are its other inputs: integers, or shapes of weights as text."""
    weights, names = [], ["x"]
    for place, item in enumerate(numbers):
        names.append("" if item is None else f"w{place}")
        if isinstance(item, str):
            sizes = parse_input(item).shape
            count = 4
            for size in sizes:
                count *= size
            weights.append(tensor(f"w{place}", sizes, b"\0" * count))
        elif item is not None:
            flat = item if isinstance(item, tuple) else (item,)
            weights.append(tensor(f"w{place}", (len(flat),) if isinstance(item, tuple) else (), flat, INT64))
    nodes = (node(operator, names, ["r"], **attributes), node("Neg", ["r"], ["y"]))
    content = model(graph(nodes, [declared("x", shape)], ["y"], weights), version=19)
    return decompose(io.BytesIO(content), [TensorSpec(shape)]).launches[-1].output


#: An operator, the shape of its input, further inputs, attributes, and the shape that it makes.
CASES: list[tuple[str, tuple[int, ...], tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("AveragePool", (1, 1, 4, 4), (), {"kernel_shape": [2, 2], "dilations": [2, 2]}, (1, 1, 2, 2)),
    ("AveragePool", (1, 3, 2, 2), (), {"kernel_shape": [3, 3], "pads": [1, 1, 2, 1], "strides": [3, 3], **CEIL}, (1, 3, 1, 1)),
    ("AveragePool", (1, 3, 5, 5), (), {"kernel_shape": [3, 3], "pads": [0, 0, 1, 1], "strides": [2, 2], **CEIL}, (1, 3, 3, 3)),
    ("MaxPool", (1, 1, 5, 5), (), {"kernel_shape": [5, 5], "pads": [2, 3, 2, 2]}, (1, 1, 5, 6)),
    ("LpPool", (1, 4, 5, 7), (), {"kernel_shape": [2, 4], "strides": [3, 2], "pads": [1, 2, 1, 0], **CEIL}, (1, 4, 2, 4)),
    ("ConvTranspose", (1, 1, 3, 3), ("1x2x3x3",), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (1, 2, 6, 6)),
    ("ConvTranspose", (1, 1, 3, 3), ("1x2x3x3",), {"auto_pad": "SAME_UPPER", "strides": [2, 4]}, (1, 2, 6, 11)),
    ("ConvTranspose", (1, 1, 3, 3), ("1x2x3x3",), {"output_shape": [10, 8], "strides": [3, 2]}, (1, 2, 10, 8)),
    ("ConvTranspose", (1, 1, 3, 3), ("1x2x3x3",), {"pads": [1, 0, 0, 2]}, (1, 2, 4, 3)),
    ("GatherND", (2, 2, 2), ((1, 0),), {}, (2,)),
    ("Resize", (1, 1, 2, 2), (None, None, (4, 6)), {"axes": [3, 2]}, (1, 1, 6, 4)),
    ("Resize", (1, 1, 4, 2), (None, None, (8, 8)), {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}, (1, 1, 8, 4)),
    ("Resize", (1, 6, 4, 3), (None, None, (1, 12, 8, 3)), {}, (1, 12, 8, 3)),
    ("Slice", (1, 4, 3), ((-9,), (MOST[1],), (1,), (-2,)), {}, (1, 1, 3)),
    ("Slice", (1, 8, 3), ((0,), (MOST[0],), (-2,), (3,)), {}, (1, 3, 3)),
    ("ReduceL2", (3, 2, 2), (None,), {"noop_with_empty_axes": 1}, (3, 2, 2)),
    ("ReduceLogSum", (3, 2, 2), (), {"noop_with_empty_axes": 1}, (3, 2, 2)),
    ("ReduceSumSquare", (3, 2, 2), (), {"keepdims": 0}, ()),
    ("ReverseSequence", (4, 2, 3), ((1, 4),), {"time_axis": 0, "batch_axis": 1}, (4, 2, 3)),
    ("Col2Im", (1, 10, 12), ((3, 4, 1), (1, 1, 1)), {}, (1, 10, 3, 4, 1)),
    ("STFT", (1, 128, 1), (8, None, 16), {"onesided": 0}, (1, 15, 16, 2)),
    ("STFT", (1, 128, 1), (8, None, 16), {}, (1, 15, 9, 2)),
    ("OneHot", (2, 5), (10,), {"axis": 1}, (2, 10, 5)),
    ("Pad", (1, 3, 4, 5), ((1, 1, 1, 1, 0, 0, 1, 1),), {"mode": "edge"}, (2, 4, 6, 7)),
    ("Pad", (1, 3, 4, 5), ((0, 0, 1, 1, 0, 0, 1, 1),), {"mode": "wrap"}, (1, 3, 6, 7)),
    ("RNN", (3, 1, 2), ("1x4x2", "1x4x4"), {"layout": 1, "hidden_size": 4}, (3, 1, 1, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "shape", "inputs", "attributes", "expected"), CASES)
def test_an_attribute_decides_the_shape(
    operator: str, shape: tuple[int, ...], inputs: tuple[Any, ...], attributes: dict[str, Any], expected: tuple[int, ...]
) -> None:
    if operator == "OneHot":
        weights = (tensor("depth", (), inputs, INT64), tensor("pair", (2,), b"\0" * 8))
        nodes = (node("OneHot", ["x", "depth", "pair"], ["r"], **attributes), node("Neg", ["r"], ["y"]))
        content = model(graph(nodes, [declared("x", shape, INT64)], ["y"], weights))
        last = decompose(io.BytesIO(content), [TensorSpec(shape, "int64")]).launches[-1]
        assert (last.output, last.dtype) == (expected, "float32")
    else:
        assert shape_of(operator, shape, *inputs, **attributes) == expected


def test_batch_dimensions_of_indices_are_those_of_the_data() -> None:
    given = [declared("x", (2, 2, 2)), declared("i", (2, 1), INT64)]
    content = model(graph([node("GatherND", ["x", "i"], ["y"], batch_dims=1)], given, ["y"]))
    (launch,) = decompose(io.BytesIO(content), [TensorSpec((2, 2, 2)), TensorSpec((2, 1), "int64")]).launches
    assert (launch.kind, launch.output) == ("index", (2, 2))


@pytest.mark.parametrize(("past", "kinds"), [(0, "attention"), (3, "cat cat attention")])
def test_attention_joins_a_past_if_there_is_one(past: int, kinds: str) -> None:
    sizes = {"q": (1, 4, 2, 8), "k": (1, 2, 2, 8), "v": (1, 2, 2, 8), "a": (1, 2, past, 8), "b": (1, 2, past, 8)}
    made = node("Attention", ["q", "k", "v", "", "a", "b"], ["y", "c", "d"])
    given = [declared(name, (1, shape[1], "t", 8)) for name, shape in sizes.items()]
    content = model(graph([made], given, ["y"]), version=23)
    launches = decompose(io.BytesIO(content), [TensorSpec(shape) for shape in sizes.values()]).launches
    assert " ".join(launch.kind for launch in launches) == kinds
    assert launches[-1].inputs[1] == (1, 2, 2 + past, 8)


def test_a_cap_of_scores_is_listed_step_by_step() -> None:
    made = node("Attention", ["x", "x", "x"], ["y"], softcap=2.0)
    content = model(graph([made], [declared("x", (1, 2, 4, 8))], ["y"]), version=23)
    launches = decompose(io.BytesIO(content), [TensorSpec((1, 2, 4, 8))]).launches
    kinds = [launch.kind.removesuffix("_scalar") for launch in launches if launch.flops]
    assert kinds == ["matmul", "mul", "div", "tanh", "mul", "softmax", "matmul"]


def test_a_window_of_attention_bounds_its_work() -> None:
    made = node("Attention", ["x", "x", "x"], ["y"], is_causal=1, left_window_size=3)
    content = model(graph([made], [declared("x", (1, 2, 16, 8))], ["y"]), version=25)
    (launch,) = decompose(io.BytesIO(content), [TensorSpec((1, 2, 16, 8))]).launches
    assert (launch.kind, launch.flops, launch.output) == ("attention", 2 * 2 * 2 * 16 * 4 * 8, (1, 2, 16, 8))
