# SPDX-License-Identifier: Apache-2.0
"""ONNX files: what they launch, what is never read, and one clear error for what is wrong with a file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetdvfs.kernels.boundary import Boundary
from jetdvfs.kernels.budget import Budget
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import BudgetExceeded, KernelsError, ModelError, ShapeError, UnsupportedOperator
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.tests.support.models.handmade_onnx import INT64, attribute, declared, field, graph, model, node, tensor, varint

#: The kind of a launch, the shapes of its inputs and that of its output.
Launched = tuple[str, tuple[tuple[int, ...], ...], tuple[int, ...]]
PICTURE = [TensorSpec((2, 3, 8, 8))]
X = declared("x", ("batch", 3, 8, 8))
#: A function of the file that ends the list wherever it is called.
SPARSE = field(1, "Find") + field(10, "own") + field(4, "a") + field(5, "r") + field(7, node("NonZero", ["a"], ["r"]))


def opened(*nodes: bytes, weights: tuple[bytes, ...] = (), inputs: tuple[bytes, ...] = (X,), **options: Any) -> io.BytesIO:
    return io.BytesIO(model(graph(nodes, inputs, ["y"], weights), **options))


def launched(
    *nodes: bytes, weights: tuple[bytes, ...] = (), specs: Sequence[TensorSpec] = PICTURE, **options: Any
) -> list[Launched]:
    network = decompose(opened(*nodes, weights=weights, **options), specs)
    return [(launch.kind, launch.inputs, launch.output) for launch in network.launches]


CONV = node("Conv", ["x", "w", "b"], ["c"], "/stem/stem.0/Conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
WEIGHTS = (tensor("w", (4, 3, 3, 3), b"\0" * 432), tensor("b", (4,), b"\0" * 16))


def test_a_convolution_and_its_activation_are_listed_with_their_module() -> None:
    (conv, relu) = decompose(opened(CONV, node("Relu", ["c"], ["y"]), weights=WEIGHTS), PICTURE).launches
    assert (conv.kind, conv.scope, conv.output) == ("conv2d", "stem.0", (2, 4, 4, 4))
    assert conv.params == {
        "weight": (4, 3, 3, 3), "bias": True, "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "groups": 1
    }  # fmt: skip
    assert conv.flops == 2 * 2 * 4 * 16 * 27
    assert (relu.kind, relu.inputs) == ("relu", ((2, 4, 4, 4),))


def test_padding_that_differs_between_the_ends_is_padded_before() -> None:
    conv = node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 3], auto_pad="SAME_UPPER", strides=[2, 2])
    assert launched(conv, weights=WEIGHTS) == [
        ("constant_pad_nd", ((2, 3, 8, 8),), (2, 3, 9, 9)),
        ("conv2d", ((2, 3, 9, 9),), (2, 4, 4, 4)),
    ]


def test_a_number_may_stand_on_either_side() -> None:
    for inputs in (["x", "six"], ["six", "x"]):
        (made,) = launched(node("Max", inputs, ["y"]), weights=(tensor("six", (), b"\0\0\xc0@"),))
        assert made == ("maximum_scalar", ((2, 3, 8, 8),), (2, 3, 8, 8))


#: What an operator launches: its name, its attributes, and the kinds.
SIMPLE: list[tuple[str, dict[str, Any], str]] = [
    *((name, {}, name.lower()) for name in ("Acos", "Acosh", "Asin", "Asinh", "Atanh", "Cosh", "Sinh")),
    ("ThresholdedRelu", {"alpha": 0.5}, "threshold"),
    ("Shrink", {"lambd": 0.5}, "hardshrink"),
    ("Shrink", {"lambd": 0.5, "bias": 0.5}, "softshrink"),
    ("Softsign", {}, "abs add_scalar div"),
    ("Hardmax", {"axis": 1}, "zeros argmax scatter"),
    ("LpNormalization", {"axis": 1, "p": 1}, "norm div"),
    ("MeanVarianceNormalization", {}, "mean pow_scalar mean pow_scalar sub sqrt sub add_scalar div"),
]


@pytest.mark.parametrize(("name", "attributes", "kinds"), SIMPLE, ids=lambda value: value if isinstance(value, str) else None)
def test_an_operator_of_one_tensor_is_what_pytorch_has_for_it(name: str, attributes: dict[str, Any], kinds: str) -> None:
    made = launched(node(name, ["x"], ["y"], **attributes))
    assert [kind for kind, _, _ in made] == kinds.split()
    assert made[-1][-1] == (2, 3, 8, 8)


def test_a_spectrum_has_a_last_dimension_of_two_numbers() -> None:
    signal, axis = [TensorSpec((2, 64, 1))], tensor("axis", (), (1,), INT64)
    weights = (tensor("step", (), (4,), INT64), tensor("length", (), (16,), INT64), axis)
    nodes = node("STFT", ["x", "step", "", "length"], ["s"]), node("Relu", ["s"], ["y"])
    assert launched(*nodes, weights=weights, specs=signal, inputs=(declared("x", (2, 64, 1)),)) == [
        ("_fft_r2c", ((2, 13, 16),), (2, 13, 9)),
        ("relu", ((2, 13, 9, 2),), (2, 13, 9, 2)),
    ]
    there = node("DFT", ["x", "", "axis"], ["s"], onesided=1)
    back = node("DFT", ["s", "", "axis"], ["y"], inverse=1, onesided=1)
    assert launched(there, back, weights=weights, specs=signal, inputs=(declared("x", (2, 64, 1)),)) == [
        ("_fft_r2c", ((2, 64),), (2, 33)),
        ("_fft_c2r", ((2, 33),), (2, 64)),
    ]


def test_the_middle_of_one_dimension_is_kept_and_another_is_padded() -> None:
    (made,) = launched(node("CenterCropPad", ["x", "s"], ["y"], axes=[2, 3]), weights=(tensor("s", (2,), (4, 11), INT64),))
    assert made == ("constant_pad_nd", ((2, 3, 4, 8),), (2, 3, 4, 11))


def test_the_largest_of_one_size_is_that_size() -> None:
    (made,) = launched(
        node("Shape", ["x"], ["s"]), node("Max", ["s"], ["m"]), node("Expand", ["x", "m"], ["e"]), node("Relu", ["e"], ["y"])
    )
    assert made == ("relu", ((2, 3, 8, 8),), (2, 3, 8, 8))


def test_patches_are_folded_into_pictures() -> None:
    weights = (tensor("whole", (2,), (3, 3), INT64), tensor("patch", (2,), (2, 2), INT64))
    columns = [TensorSpec((1, 12, 4))]
    (made,) = launched(
        node("Col2Im", ["x", "whole", "patch"], ["y"]), weights=weights, specs=columns,
        inputs=(declared("x", (1, 12, 4)),),
    )  # fmt: skip
    assert made == ("col2im", ((1, 12, 4),), (1, 3, 3, 3))


def test_sizes_that_are_computed_from_sizes_launch_nothing() -> None:
    flat = (
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "first"], ["n"]),
        node("Unsqueeze", ["n", "at"], ["n1"]),
        node("Concat", ["n1", "rest"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["f"]),
        node("MatMul", ["f", "m"], ["p"]),
        node("Add", ["r", "p"], ["y"]),
    )
    weights = (
        tensor("first", (), [0], INT64), tensor("at", (1,), [0], INT64), tensor("rest", (1,), [-1], INT64),
        tensor("m", (192, 10), b"\0" * 7680), tensor("r", (10,), b"\0" * 40),
    )  # fmt: skip
    (product,) = decompose(opened(*flat, weights=weights), PICTURE).launches
    assert product.params == {"m": 2, "k": 192, "n": 10, "batch": 1, "bias": True}


def test_a_branch_and_a_loop_that_sizes_decide_are_followed() -> None:
    one, two = (graph([node(kind, ["x"], ["i"])], [], ["i"]) for kind in ("Relu", "Sigmoid"))
    again = [node("Identity", ["go"], ["on"]), node("Tanh", ["v"], ["w"])]
    body = graph(again, [declared("k", (), INT64), declared("go", (), 9), declared("v", ())], ["on", "w"])
    nodes = (
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "at"], ["n"]),
        node("Greater", ["n", "at"], ["large"]),
        node("If", ["large"], ["z"], then_branch=one, else_branch=two),
        node("Loop", ["n", "", "z"], ["y"], body=body),
    )
    made = launched(*nodes, weights=(tensor("at", (), [0], INT64),))
    assert [kind for kind, *_ in made] == ["relu", "tanh", "tanh"]


def test_what_a_branch_takes_from_around_it_is_data_and_is_needed() -> None:
    first, last = (graph([node("Identity", [name], [f"{name}i"])], [], [f"{name}i"]) for name in "xr")
    nodes = (
        node("If", ["yes"], ["z"], then_branch=first, else_branch=first),
        node("Relu", ["z"], ["r"]),
        node("If", ["yes"], ["y"], then_branch=last, else_branch=last),
    )
    assert [kind for kind, *_ in launched(*nodes, weights=(tensor("yes", (), b"\1", 9),))] == ["relu"]


def test_a_function_of_the_file_is_looked_into() -> None:
    attributes = field(1, "alpha") + field(21, "alpha")
    inner = node("LeakyRelu", ["a"], ["t"]) + field(5, attributes)
    twice = field(1, "Twice") + field(10, "own") + field(4, "a") + field(5, "r")
    twice += field(7, inner) + field(7, node("Add", ["t", "t"], ["r"]))
    made = launched(node("Twice", ["x"], ["y"], domain="own", alpha=0.5), functions=[twice])
    assert [kind for kind, *_ in made] == ["leaky_relu", "add"]


def test_what_depends_on_the_contents_of_a_tensor_ends_the_list() -> None:
    nodes = node("Relu", ["x"], ["a"], "act"), node("NonZero", ["a"], ["y"], "find")
    network = decompose(opened(*nodes), PICTURE)
    assert network.kinds == {"relu": 1}
    why = "which elements are not zero decides the shape"
    assert network.boundary == Boundary("onnx::NonZero", "node find, after 50% of the nodes", why)


def test_a_list_ends_at_the_operator_of_the_file_wherever_it_stands() -> None:
    numbers = node("Reshape", ["x", "x"], ["y"], "odd")
    branch = graph([node("Relu", ["x"], ["i"])], [], ["i"])
    sparse = graph([node("NonZero", ["x"], ["i"], "inner")], [], ["i"])
    known = node("Shape", ["x"], ["s"]), node("Gather", ["s", "at"], ["n"]), node("Greater", ["n", "at"], ["large"])
    at = tensor("at", (), [0], INT64)
    ended = [
        decompose(opened(*nodes, weights=(at,), functions=functions), PICTURE).boundary
        for nodes, functions in (
            ([numbers], ()),
            ([node("If", ["x"], ["y"], "choice", then_branch=branch, else_branch=branch)], ()),
            ([*known, node("If", ["large"], ["y"], "choice", then_branch=sparse, else_branch=branch)], ()),
            ([node("Find", ["x"], ["y"], domain="own")], [SPARSE]),
        )
    ]
    assert [(end.operator, end.place.partition(",")[0]) for end in ended if end] == [
        ("onnx::Reshape", "node odd"), ("onnx::If", "node choice"), ("onnx::NonZero", "node inner"),
        ("onnx::NonZero", "node NonZero"),
    ]  # fmt: skip


class Sparse(io.RawIOBase):
    """A file with a hole of any size after its first bytes; reading in the hole fails."""

    def __init__(self, head: bytes, hole: int, tail: bytes) -> None:
        self.head, self.hole, self.tail = head, range(len(head) + 64, len(head) + hole - (1 << 16)), tail
        self.length = len(head) + hole + len(tail)
        self.place, self.bytes_read = 0, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.place = offset if whence == 0 else self.length + offset
        return self.place

    def read(self, size: int = -1) -> bytes:
        start = len(self.head) + len(self.hole) + 64 + (1 << 16)
        assert self.place not in self.hole
        made = b""
        for place in range(self.place, min(self.place + size, self.length)):
            made += self.head[place : place + 1] or (b"\0" if place < start else self.tail[place - start : place - start + 1])
        self.place += len(made)
        self.bytes_read += len(made)
        return made


def test_a_gigabyte_of_weights_is_stepped_over() -> None:
    size = 1 << 30
    header = field(1, size >> 2) + field(2, 1) + field(8, "big") + varint(9 << 3 | 2) + varint(size)
    weight = varint(5 << 3 | 2) + varint(len(header) + size) + header
    rest = field(1, node("Add", ["x", "x"], ["y"])) + field(11, X) + field(12, declared("y", ()))
    head = field(1, 8) + varint(7 << 3 | 2) + varint(len(weight) + size + len(rest)) + weight
    file: Any = Sparse(head, size, rest + field(8, field(2, 17)))
    assert decompose(file, PICTURE).kinds == {"add": 1}
    assert file.bytes_read < 1 << 16


def test_weights_in_other_files_are_never_looked_for() -> None:
    outside = field(1, 4) + field(1, 3) + field(1, 3) + field(1, 3) + field(2, 1) + field(8, "w")
    outside += field(13, field(1, "location") + field(2, "/etc/passwd")) + field(14, 1)
    conv = node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 3])
    assert launched(conv, weights=(outside,)) == [("conv2d", ((2, 3, 8, 8),), (2, 4, 6, 6))]


def test_other_inputs_than_those_exported_for_are_refused() -> None:
    for specs in ([TensorSpec((2, 3, 8, 9))], [TensorSpec((2, 3, 8, 8), "float16")], [TensorSpec((2, 3, 8))], PICTURE * 2):
        with pytest.raises(ShapeError, match=r"exported for the inputs \(x batchx3x8x8:float32\)"):
            decompose(opened(node("Relu", ["x"], ["y"])), specs)


def test_a_graph_has_no_methods() -> None:
    with pytest.raises(ModelError, match="without a method 'encode'"):
        decompose(opened(node("Relu", ["x"], ["y"])), PICTURE, method="encode")


def test_an_unknown_operator_is_named_with_its_node() -> None:
    with pytest.raises(UnsupportedOperator, match=r"operator com\.microsoft::Odd of ONNX has no rule \(at node strange\)"):
        decompose(opened(node("Odd", ["x"], ["y"], "strange", "com.microsoft")), PICTURE)


SELF = graph([node("If", ["t"], ["y"], then_branch=graph([], [], ["q"]), else_branch=graph([], [], []))], [X], ["y"])
NESTED = b""
for _ in range(40):
    NESTED = graph([node("If", ["t"], ["y"]) + field(5, attribute("then_branch", NESTED))], [], ["y"])
BROKEN = {
    "nothing": model(b"")[:2],
    "no graph": field(1, 8) + field(8, field(2, 17)),
    "cut off": opened(CONV, weights=WEIGHTS).getvalue()[:-100],
    "a value nobody makes": model(graph([node("Relu", ["z"], ["y"])], [X], ["y"])),
    "a branch nobody made": model(SELF),
    "nested graphs": model(NESTED),
    "an endless number": field(1, 8) + b"\x3a" + b"\xff" * 20,
    "a length past the end": field(1, 8) + b"\x3a\xff\xff\xff\xff\x0f",
    "a group": field(1, 8) + b"\x3b\x3c",
    "a weight of a negative size": model(graph([], [X], [], [field(1, -5) + field(2, 1) + field(8, "w")])),
    "a weight of another type": model(graph([], [X], [], [field(1, 5) + field(2, 99) + field(8, "w")])),
    "a huge constant": model(
        graph([node("ConstantOfShape", ["s"], ["y"])], [X], ["y"], [tensor("s", (2,), [1 << 40, 1 << 40], INT64)])
    ),
    "a huge loop": model(
        graph([node("Loop", ["n", "", "x"], ["y"], body=graph([], [], []))], [X], ["y"], [tensor("n", (), [1 << 40], INT64)])
    ),
    "powers without end": model(graph([node("Pow", ["n", "n"], ["y"])], [X], ["y"], [tensor("n", (), [1 << 40], INT64)])),
    "text where a number should be": model(graph([node("Flatten", ["x"], ["y"], axis="one")], [X], ["y"])),
    "a list where a number should be": model(graph([node("Softmax", ["x"], ["y"], axis=[1, 2])], [X], ["y"])),
    "an attribute that is missing": model(graph([node("MaxPool", ["x"], ["y"])], [X], ["y"])),
    "values that make each other": model(
        graph(
            [
                node("Identity", ["p"], ["q"]),
                node("Identity", ["q"], ["p"]),
                node("Cast", ["r"], ["r"], to=1),
                node("ScatterND", ["x", "i", "p"], ["z"]),
                node("Mul", ["z", "r"], ["y"]),
            ],
            [X],
            ["y"],
            [tensor("i", (1, 1), [0], INT64)],
        )
    ),
    "a node without outputs": model(graph([node("Mul", ["x", "x"], []), node("Relu", ["x"], ["y"])], [X], ["y"])),
    "a node without inputs": model(
        graph(
            [node("Transpose", [], ["p"]), node("ScatterND", ["x", "i", "p"], ["y"])],
            [X],
            ["y"],
            [tensor("i", (1, 1), [0], INT64)],
        )
    ),
    "a division by zero": model(graph([node("Div", ["n", "n"], ["y"])], [X], ["y"], [tensor("n", (), [0], INT64)])),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused_on_one_line(content: bytes) -> None:
    with pytest.raises(KernelsError) as caught:
        decompose(io.BytesIO(content), PICTURE)
    assert "\n" not in str(caught.value)


def test_a_file_larger_than_the_budget_is_refused() -> None:
    many = [node("Relu", ["x"], ["y"])] * 50
    for budget in (Budget(calls=20), Budget(total_bytes=100), Budget(tree_objects=1)):
        with pytest.raises(BudgetExceeded):
            decompose(opened(*many, weights=WEIGHTS), PICTURE, budget=budget)


def test_a_text_that_starts_like_one_is_no_onnx_file() -> None:
    with pytest.raises(ModelError, match="ONNX"):
        decompose(io.BytesIO(b"\x08\x07 is how a bell rings"), PICTURE)


WHOLE = opened(
    CONV,
    node("Shape", ["c"], ["s"]),
    node("Slice", ["s", "zero", "two"], ["front"]),
    node("Concat", ["front", "rest"], ["to"], axis=0),
    node("Reshape", ["c", "to"], ["f"]),
    node("Softmax", ["f"], ["y"], axis=-1),
    weights=(*WEIGHTS, *(tensor(name, (1,), [number], INT64) for name, number in (("zero", 0), ("two", 2), ("rest", -1)))),
).getvalue()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=6), st.integers(0, 40))
def test_a_file_with_some_bytes_changed_is_read_or_refused(changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(WHOLE)
    for place, byte in changes:
        data[place] = byte
    try:
        network = decompose(io.BytesIO(bytes(data[: len(data) - cut])), PICTURE)
    except KernelsError as error:
        assert "\n" not in str(error)
    else:
        assert len(network.launches) <= 10
