# SPDX-License-Identifier: Apache-2.0
"""8-bit ONNX files, in both ways in which they are written: what works in 8 bits, what is converted, and what is refused."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.engine.fusing import as_engine
from jetdvfs.kernels.errors import UnsupportedOperator
from jetdvfs.kernels.network import KernelInvocation, TensorSpec
from jetdvfs.tests.support.models.handmade_onnx import declared, graph, model, node, tensor

INT8, UINT8, INT32 = 3, 2, 6
MICROSOFT = "com.microsoft"
X = TensorSpec((1, 3, 8, 8))
WEIGHTS = (
    tensor("s", (), b"\0\0\x80?"),
    tensor("z", (), b"\0", UINT8),
    tensor("wz", (), b"\0", INT8),
    tensor("w", (4, 3, 3, 3), b"\0" * 108, INT8),
    tensor("m", (4, 5), b"\0" * 20, INT8),
    tensor("b", (4,), b"\1" * 16, INT32),
    tensor("bz", (), b"\0" * 4, INT32),
)
INTO = node("QuantizeLinear", ["x", "s", "z"], ["xq"])


def launches(*nodes: bytes) -> Sequence[KernelInvocation]:
    content = model(graph(nodes, [declared("x", X.shape)], ["y"], WEIGHTS))
    return decompose(io.BytesIO(content), [X]).launches


def shown(*nodes: bytes) -> list[tuple[str, str, int]]:
    return [(launch.kind, launch.dtype, launch.bytes) for launch in launches(*nodes)]


def converted(name: str, back: str) -> tuple[bytes, bytes]:
    """A value converted to 8 bits and back."""
    return node("QuantizeLinear", [name, "s", "z"], [f"{name}q"]), node("DequantizeLinear", [f"{name}q", "s", "z"], [back])


BETWEEN = (
    INTO,
    node("DequantizeLinear", ["xq", "s", "z"], ["xf"]),
    node("DequantizeLinear", ["w", "s", "wz"], ["wf"]),
    node("DequantizeLinear", ["b", "s", "bz"], ["bf"]),
    node("Conv", ["xf", "wf", "bf"], ["c"], kernel_shape=[3, 3]),
    *converted("c", "cf"),
    node("Sigmoid", ["cf"], ["g"]),
    *converted("g", "gf"),
    node("Mul", ["cf", "gf"], ["p"]),
    *converted("p", "y"),
)
OPERATORS = (
    INTO,
    node("QLinearConv", ["xq", "s", "z", "w", "s", "wz", "s", "z", "b"], ["cq"], kernel_shape=[3, 3]),
    node("QLinearSigmoid", ["cq", "s", "z", "s", "z"], ["gq"], domain=MICROSOFT),
    node("QLinearMul", ["cq", "s", "z", "gq", "s", "z", "s", "z"], ["pq"], domain=MICROSOFT),
    node("DequantizeLinear", ["pq", "s", "z"], ["y"]),
)
PICTURE, OUT = 3 * 64, 4 * 36


def test_both_ways_of_writing_it_are_the_same_launches_in_the_types_they_work_in() -> None:
    assert shown(*OPERATORS) == [
        ("quantize_per_tensor", "quint8", 5 * PICTURE),
        ("conv2d", "quint8", PICTURE + 108 + 16 + OUT),
        ("sigmoid", "quint8", 2 * OUT),
        ("mul", "quint8", 3 * OUT),
        ("dequantize", "float32", 5 * OUT),
    ]
    assert launches(*BETWEEN) == launches(*OPERATORS)


def test_an_activation_before_the_conversion_works_in_8_bits_too() -> None:
    nodes = (
        *BETWEEN[:4],
        node("Conv", ["xf", "wf"], ["c"], kernel_shape=[3, 3]),
        node("Relu", ["c"], ["r"]),
        *converted("r", "y"),
    )
    assert [(kind, dtype) for kind, dtype, _ in shown(*nodes)][1:] == [
        ("conv2d", "quint8"), ("relu", "quint8"), ("dequantize", "float32")
    ]  # fmt: skip


def test_a_product_that_is_not_converted_works_in_8_bits_and_makes_floating_point_numbers() -> None:
    nodes = (*BETWEEN[:4], node("Conv", ["xf", "wf"], ["y"], kernel_shape=[3, 3]))
    assert shown(*nodes)[1:] == [("conv2d", "quint8", PICTURE + 108 + 4 * OUT)]
    assert launches(*nodes)[1].params["output"] == "float32"


def test_what_takes_floating_point_numbers_too_is_converted_first() -> None:
    nodes = (INTO, node("DequantizeLinear", ["xq", "s", "z"], ["xf"]), node("Add", ["xf", "x"], ["y"]))
    assert [(kind, dtype) for kind, dtype, _ in shown(*nodes)] == [
        ("quantize_per_tensor", "quint8"), ("dequantize", "float32"), ("add", "float32")
    ]  # fmt: skip


def test_weights_quantised_in_the_graph_are_constants() -> None:
    """As tools for training in 8 bits write them: floating-point weights, converted there and back."""
    float_weight = tensor("v", (4, 3, 3, 3), b"\0" * 432)
    nodes = (
        *BETWEEN[:2],
        node("QuantizeLinear", ["v", "s", "wz"], ["vq"]),
        node("DequantizeLinear", ["vq", "s", "wz"], ["vf"]),
        node("Conv", ["xf", "vf"], ["c"], kernel_shape=[3, 3]),
        *converted("c", "y"),
    )
    content = model(graph(nodes, [declared("x", X.shape)], ["y"], [*WEIGHTS, float_weight]))
    made = decompose(io.BytesIO(content), [X]).launches
    assert [(launch.kind, launch.bytes) for launch in made][1] == ("conv2d", PICTURE + 108 + OUT)


def test_an_input_quantised_by_its_own_extremes_is_measured_first() -> None:
    nodes = (
        node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]),
        node("ConvInteger", ["xq", "w", "xz", "wz"], ["c"], kernel_shape=[3, 3]),
        node("Cast", ["c"], ["y"], to=1),
    )
    assert [(kind, dtype) for kind, dtype, _ in shown(*nodes)] == [
        ("aminmax", "float32"), ("quantize_per_tensor", "quint8"), ("conv2d", "quint8"), ("to", "float32")
    ]  # fmt: skip


def test_types_that_are_not_followed_are_named() -> None:
    with pytest.raises(UnsupportedOperator, match="QuantizeLinear to float32 is not followed; valid: int8, uint8"):
        launches(node("QuantizeLinear", ["x", "s", "s"], ["y"]))


@pytest.mark.parametrize(
    ("added", "layers"),
    [
        ("xf", [("quantize_per_tensor", "quint8"), ("conv2d_add_relu", "quint8"), ("conv2d", "quint8")]),
        (
            "x",
            [
                ("quantize_per_tensor", "quint8"),
                ("conv2d_add_relu", "quint8"),
                ("quantize_per_tensor", "quint8"),
                ("conv2d", "quint8"),
            ],
        ),
    ],
)
def test_an_engine_adds_in_8_bits_where_both_operands_are(added: str, layers: list[tuple[str, str]]) -> None:
    """As TensorRT's guide to quantised networks has it, and its own ResNets (trt-engine-explorer)."""
    nodes = (
        *BETWEEN[:3],
        node("DequantizeLinear", ["w3", "s", "wz"], ["w3f"]),
        node("Conv", ["xf", "w3f"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Add", ["c", added], ["sum"]),
        node("Relu", ["sum"], ["r"]),
        *converted("r", "rf"),
        node("Conv", ["rf", "wf"], ["y"], kernel_shape=[3, 3]),
    )
    weights = (*WEIGHTS, tensor("w3", (3, 3, 3, 3), b"\0" * 81, INT8))
    content = model(graph(nodes, [declared("x", X.shape)], ["y"], weights))
    engine = as_engine(decompose(io.BytesIO(content), [X]))
    assert [(launch.kind, launch.dtype) for launch in engine.launches] == layers
    if added == "xf":
        assert engine.launches[1].bytes == 3 * PICTURE + 81


#: A weight in few bits: its element type in ONNX, its bytes, and the type that its product has.
STORED = [
    (INT8, 128, "float32"), (UINT8, 128, "float32"), (17, 128, "float8_e4m3fn"), (19, 128, "float8_e5m2"), (22, 64, "int4"),
    (21, 64, "uint4"), (23, 64, "float4_e2m1"), (26, 32, "int2"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "size", "dtype"), STORED)
@pytest.mark.parametrize("turned", [False, True])
def test_weights_alone_in_few_bits_are_read_as_they_are_stored(code: int, size: int, dtype: str, turned: bool) -> None:
    """With a scale for each block of eight, of four bytes."""
    weights = (tensor("q", (8, 16) if turned else (16, 8), b"\0" * size, code), tensor("qs", (2, 8), b"\0" * 64))
    nodes = [node("DequantizeLinear", ["q", "qs"], ["d"], axis=0, block_size=8)]
    if turned:
        nodes.append(node("Transpose", ["d"], ["w"], perm=[1, 0]))
    nodes.append(node("MatMul", ["x", "w" if turned else "d"], ["y"]))
    content = model(graph(nodes, [declared("x", (4, 16))], ["y"], weights), version=21)
    (launch,) = decompose(io.BytesIO(content), [TensorSpec((4, 16))]).launches
    assert (launch.kind, launch.dtype, launch.output) == ("matmul", dtype, (4, 8))
    assert launch.bytes == 4 * (4 * 16 + 4 * 8) + size + 64


@pytest.mark.parametrize("half", [False, True])
def test_inputs_and_weights_alone_in_8_bits_run_in_8_bits(half: bool) -> None:
    """As NVIDIA's tools write networks for TensorRT: sums and activations between convolutions stay floating-point."""
    nodes: list[bytes] = []
    source = "x"
    for number in range(3):
        nodes += [
            node("QuantizeLinear", [source, "s", "wz"], [f"q{number}"]),
            node("DequantizeLinear", [f"q{number}", "s", "wz"], [f"d{number}"]),
            node("DequantizeLinear", ["w3", "s", "wz"], [f"w{number}"]),
            node("Conv", [f"d{number}", f"w{number}"], [f"c{number}"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        ]
        added = f"c{number}"
        if number == 2:
            nodes.append(node("Add", [f"c{number}", "r0"], ["sum"]))
            added = "sum"
        nodes.append(node("Relu", [added], [f"r{number}"]))
        source = f"r{number}"
    nodes.append(node("GlobalAveragePool", [source], ["y"]))
    weights = (*WEIGHTS, tensor("w3", (3, 3, 3, 3), b"\0" * 81, INT8))
    network = decompose(io.BytesIO(model(graph(nodes, [declared("x", X.shape)], ["y"], weights))), [X])
    for made in (network, as_engine(network, "float16" if half else "float32")):
        products = [launch for launch in made.launches if launch.kind.startswith("conv2d")]
        assert [launch.dtype for launch in products] == ["qint8"] * 3
    assert products[-1].kind == "conv2d_add_relu"
    assert products[-1].bytes == PICTURE + 81 + (2 if half else 4) * 2 * PICTURE


def test_products_of_8_bit_floats_make_floating_point_numbers() -> None:
    """Weights are turned, as NVIDIA's tools write products; a table in few bits gives rows of floating-point numbers."""
    weights = (tensor("s", (), b"\0\0\x80?"), tensor("z", (), b"\0", 17), tensor("w", (8, 16), b"\0" * 128, 17))
    nodes = (
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "s"], ["wd"]),
        node("Transpose", ["wd"], ["wt"], perm=[1, 0]),
        node("MatMul", ["d", "wt"], ["y"]),
    )
    content = model(graph(nodes, [declared("x", (4, 16))], ["y"], weights), version=21)
    *_, product = decompose(io.BytesIO(content), [TensorSpec((4, 16))]).launches
    assert (product.dtype, product.params["output"]) == ("float8_e4m3fn", "float32")
    assert product.bytes == 4 * 16 + 128 + 4 + 4 * 4 * 8
    table = (tensor("t", (100, 16), b"\0" * 800, 22), tensor("ts", (100, 2), b"\0" * 800))
    rows = (node("DequantizeLinear", ["t", "ts"], ["td"], axis=1, block_size=8), node("Gather", ["td", "i"], ["y"]))
    content = model(graph(rows, [declared("i", (5,), 7)], ["y"], table), version=21)
    (launch,) = decompose(io.BytesIO(content), [TensorSpec((5,), "int64")]).launches
    assert (launch.kind, launch.dtype, launch.output) == ("embedding", "float32", (5, 16))


def test_operators_in_8_bits_take_numbers_that_are_8_bits_already() -> None:
    product = node("QLinearMatMul", ["x", "s", "z", "m", "s", "wz", "s", "z"], ["y"])
    content = model(graph([product], [declared("x", (3, 4), UINT8)], ["y"], WEIGHTS))
    (launch,) = decompose(io.BytesIO(content), [TensorSpec((3, 4), "uint8")]).launches
    assert (launch.kind, launch.dtype, launch.output) == ("matmul", "quint8", (3, 5))
