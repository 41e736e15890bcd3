# SPDX-License-Identifier: Apache-2.0
"""What exporters write as several nodes, or leave out, is listed as the call that PyTorch makes."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import ModelError
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.tests.support.models.handmade_onnx import INT64, called, declared, graph, model, node, noted, tensor

HEADS = (1, 4, 6, 8)


def kinds(*nodes: bytes, shape: Sequence[int] = HEADS, dtype: str = "float32", weights: tuple[bytes, ...] = ()) -> str:
    content = graph(nodes, (declared("x", shape, INT64 if dtype == "int64" else 1),), ["y"], weights)
    network = decompose(io.BytesIO(model(content)), [TensorSpec(tuple(shape), dtype)])
    return " ".join(launch.kind for launch in network.launches)


def sizes(name: str, *numbers: int) -> bytes:
    return tensor(name, (len(numbers),), numbers, INT64)


def note(name: str, function: str, arguments: str, options: str = "") -> str:
    target = f"call_function[target=torch.ops.aten.{function}](args = ({arguments}), kwargs = {{{options}}})"
    return f"%{name} : [num_users=1] = {target}"


def test_attention_without_a_factor_is_one_call_where_it_is_noted() -> None:
    nodes = (
        node("Transpose", ["x"], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["x", "turned"], ["scores"]),
        node("Softmax", ["scores"], ["soft"]),
        node("MatMul", ["soft", "x"], ["y"]),
    )
    call = note("a", "scaled_dot_product_attention.default", "%x, %x, %x", "scale: 1.0")
    assert kinds(*(noted(made, call) for made in nodes)) == "attention"
    assert kinds(*nodes) == "matmul softmax matmul"


@pytest.mark.parametrize(
    ("options", "listed"), [("enable_gqa: True", "attention"), ("", "clone clone attention")], ids=["shared", "repeated"]
)
def test_heads_are_repeated_where_the_author_did_so_and_shared_where_attention_does(options: str, listed: str) -> None:
    weights: tuple[bytes, ...] = (
        sizes("two", 2),
        sizes("spread", 1, 2, 2, 6, 8),
        sizes("heads", 1, 4, 6, 8),
        sizes("flat", 4, 6, 8),
    )
    weights += (sizes("back", 1, 4, 8, 6), sizes("zero", 0), sizes("half", 2), sizes("one", 1))
    call = note("a", "scaled_dot_product_attention.default", "%x, %key, %value", options)
    nodes = [node("Slice", ["x", "zero", "half", "one"], ["few"])]
    for name, shape in (("k", "flat"), ("v", "heads")):
        nodes.append(node("Unsqueeze", ["few", "two"], [f"{name}5"]))
        nodes.append(node("Expand", [f"{name}5", "spread"], [f"{name}s"]))
        nodes.append(node("Reshape", [f"{name}s", shape], [name]))
    inner = (
        node("Transpose", ["k"], ["turned"], perm=[0, 2, 1]),
        node("Reshape", ["turned", "back"], ["key"]),
        node("MatMul", ["x", "key"], ["scores"]),
        node("Softmax", ["scores"], ["soft"]),
        node("MatMul", ["soft", "v"], ["y"]),
    )
    assert kinds(*nodes, *(noted(made, call) for made in inner), weights=weights) == listed


def test_a_copy_that_only_the_notes_name_is_made() -> None:
    turn = noted(
        node("Transpose", ["x"], ["permute"], perm=[0, 3, 1, 2]), note("permute", "permute.default", "%x, [0, 3, 1, 2]")
    )
    weights = (tensor("w", (2, 8, 1, 1), b"\0" * 64),)
    conv = node("Conv", ["permute", "w"], ["y"], kernel_shape=[1, 1])
    assert kinds(turn, noted(conv, note("y", "conv2d.default", "%clone_3, %w")), weights=weights) == "clone conv2d"
    assert kinds(turn, noted(conv, note("y", "conv2d.default", "%permute, %w")), weights=weights) == "conv2d"
    twice = noted(node("Add", ["permute", "permute"], ["y"]), note("y", "add.Tensor", "%clone_3, %clone_3"))
    assert kinds(turn, twice) == "clone add"
    assert (
        kinds(turn, noted(node("Add", ["permute", "permute"], ["y"]), note("y", "add.Tensor", "%permute, %permute"))) == "add"
    )


def test_what_is_written_into_a_constant_is_none() -> None:
    """Nor is a part of it, which is written back where that part lies: each step is launched."""
    zeros, half = tensor("zeros", (1, 8, 4, 4), b"\0" * 512), sizes("half", 1, 8, 2, 4)
    places = tensor(
        "places", (1, 8, 4, 4, 4), [n for a in range(8) for b in range(4) for c in range(4) for n in (0, a, b, c)], INT64
    )
    few = tensor("few", (1, 8, 2, 4, 4), [n for a in range(8) for b in range(2) for c in range(4) for n in (0, a, b, c)], INT64)
    mask, low = tensor("mask", (1, 8, 2, 4), bytes(range(2)) * 32, 9), tensor("low", (1, 8, 2, 4), b"\0" * 256)
    weights = (zeros, half, places, few, mask, low, sizes("0", 0), sizes("2", 2))
    written = node("ScatterND", ["zeros", "places", "x"], ["z"])
    part = node("Slice", ["z", "0", "2", "2"], ["part"])
    masked = node("Where", ["mask", "low", "part"], ["m"])
    back = node("ScatterND", ["z", "few", "m"], ["y"])
    assert "where" in kinds(written, part, masked, back, weights=weights).split()


def test_what_repeat_interleave_spreads_is_copied_though_its_shape_needs_no_copy() -> None:
    call = note("rows", "repeat_interleave.self_int", "%x, 4, -2")
    weights = sizes("at", 2), sizes("spread", 1, 1, 4, 8), sizes("flat", 1, 4, 8)
    nodes = (
        node("Unsqueeze", ["x", "at"], ["one"]),
        node("Expand", ["one", "spread"], ["many"]),
        node("Reshape", ["many", "flat"], ["rows"]),
    )
    last = node("Relu", ["rows"], ["y"])
    assert kinds(*nodes, last, shape=(1, 1, 8), weights=weights) == "relu"
    assert kinds(*(noted(made, call) for made in nodes), last, shape=(1, 1, 8), weights=weights) == "clone relu"


def test_tokens_that_become_a_picture_are_made_contiguous_before_a_convolution() -> None:
    weights = (sizes("picture", 1, 4, 6, 8), tensor("w", (2, 8, 3, 3), b"\0" * 576))
    turn, conv = node("Transpose", ["t"], ["p"], perm=[0, 3, 1, 2]), node("Conv", ["p", "w"], ["y"], kernel_shape=[3, 3])
    tokens = kinds(node("Reshape", ["x", "picture"], ["t"]), turn, conv, shape=(1, 24, 8), weights=weights)
    assert tokens == "clone conv2d"
    content = graph((node("Reshape", ["x", "picture"], ["t"]), turn, conv), (declared("x", (1, 24, 8)),), ["y"], weights)
    copy, product = decompose(io.BytesIO(model(content)), [TensorSpec((1, 24, 8))]).launches
    assert copy.params == {"assumed": True} and "assumed" not in product.params
    # Channels last, cuDNN wants the weight so as well.
    assert kinds(node("Relu", ["x"], ["t"]), turn, conv, weights=weights) == "relu clone conv2d"


def test_copies_for_norms_are_assumed_where_arithmetic_handed_the_order_in_memory_on() -> None:
    weights = (tensor("g", (8,), b"\0" * 32), tensor("p", (6, 8), b"\0" * 192))
    turn, added = node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), node("Add", ["t", "p"], ["s"])
    norms = [node("LayerNormalization", [of, "g"], [name], axis=-1) for of, name in (("s", "a"), ("s", "b"), ("t", "c"))]
    last = node("Sum", ["a", "b", "c"], ["y"])
    content = graph((turn, added, *norms, last), (declared("x", (1, 8, 6)),), ["y"], weights)
    launches = decompose(io.BytesIO(model(content)), [TensorSpec((1, 8, 6))]).launches
    assert [launch.params.get("assumed", False) for launch in launches if launch.kind == "clone"] == [True, True, False]


def test_a_product_added_to_something_once_or_not_at_all_is_one_call() -> None:
    def written(factor: float) -> str:
        weights = (tensor("one", (), struct.pack("<f", 1.0)), tensor("beta", (), struct.pack("<f", factor)))
        nodes = (
            node("MatMul", ["x", "x"], ["p"]),
            node("Mul", ["p", "one"], ["scaled"]),
            node("Mul", ["x", "beta"], ["added"]),
            node("Add", ["added", "scaled"], ["y"]),
        )
        return kinds(*nodes, shape=(3, 4, 4), weights=weights)

    assert written(1.0) == written(0.0) == "matmul"
    assert written(0.5).split().count("mul") + written(0.5).split().count("mul_scalar") == 2


def test_what_the_newer_exporter_notes_as_one_product_or_as_a_slice_is_that() -> None:
    nodes = (node("MatMul", ["x", "x"], ["p"]), node("Add", ["b", "p"], ["y"]))
    bias = (tensor("b", (3, 1, 4), b"\0" * 48),)
    assert kinds(*nodes, shape=(3, 4, 4), weights=bias) == "matmul add"
    noted_sum = noted(nodes[1], note("y", "baddbmm.default", "%b, %x, %x"))
    assert kinds(nodes[0], noted_sum, shape=(3, 4, 4), weights=bias) == "matmul"

    row = node("Relu", ["x"], ["row"])
    put = node("ScatterElements", ["z", "at", "row"], ["y"], axis=1)
    weights = (tensor("z", (1, 6, 8), b"\0" * 192), tensor("at", (1, 1, 8), [0] * 8, INT64))
    assert kinds(row, put, shape=(1, 1, 8), weights=weights) == "relu scatter"
    written = noted(put, note("y", "select_scatter.default", "%z, %copy, 1, 0"))
    assert kinds(row, written, shape=(1, 1, 8), weights=weights) == "relu clone copy"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)", "relu rms_norm"),
        ("return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, True) + eps)", "relu pow mean add sqrt reciprocal mul mul"),
    ],
)
def test_a_norm_by_the_mean_square_is_one_call_where_its_line_calls_it(line: str, expected: str) -> None:
    two, small = (tensor(name, (), struct.pack("<f", value)) for name, value in (("two", 2.0), ("small", 1e-6)))
    pieces = (
        node("Pow", ["r", "two"], ["square"]),
        node("ReduceMean", ["square", "last"], ["m"], keepdims=1),
        node("Add", ["m", "small"], ["a"]),
        node("Sqrt", ["a"], ["root"]),
        node("Reciprocal", ["root"], ["by"]),
        node("Mul", ["r", "by"], ["n"]),
        node("Mul", ["n", "g"], ["y"]),
    )
    weights = (two, small, sizes("last", -1), tensor("g", (8,), b"\0" * 32))
    found = kinds(node("Relu", ["x"], ["r"]), *(called(piece, line) for piece in pieces), shape=(2, 8), weights=weights)
    assert found.replace("_scalar", "") == expected


def test_the_size_of_complex_numbers_is_one_call_of_pairs() -> None:
    size = node("ReduceL2", ["x", "last"], ["y"], keepdims=0)
    assert kinds(size, shape=(3, 8, 2), weights=(sizes("last", -1),)) == "norm"
    assert kinds(noted(size, note("y", "abs.default", "%x")), shape=(3, 8, 2), weights=(sizes("last", -1),)) == "abs"


def test_a_transform_over_several_dimensions_is_one_call_and_what_is_made_complex_for_it_one_conversion() -> None:
    convert = note("c", "_to_copy.default", "%x", "dtype: torch.complex64")
    transform = note("y", "_fft_c2c.default", "%c, [1, 2], 0, True")
    pair = (node("Unsqueeze", ["x", "last"], ["u"]), node("Concat", ["u", "zeros"], ["c"], axis=-1))
    along = (node("DFT", ["c", "", "second"], ["once"]), node("DFT", ["once", "", "third"], ["y"]))
    named = sizes("last", -1), tensor("second", (), (1,), INT64), tensor("third", (), (2,), INT64)
    weights = (*named, tensor("zeros", (1, 4, 6, 1), b"\0" * 96))
    assert kinds(*pair, *along, shape=(1, 4, 6), weights=weights) == "cat _fft_c2c _fft_c2c"
    noted_nodes = (*(noted(made, convert) for made in pair), *(noted(made, transform) for made in along))
    assert kinds(*noted_nodes, shape=(1, 4, 6), weights=weights) == "to _fft_c2c"


def test_places_that_are_copied_before_an_index_are_no_copy_of_what_it_picks_from() -> None:
    pick = node("GatherND", ["t", "at"], ["y"])
    turned = node("Transpose", ["x"], ["t"], perm=[1, 0])
    weights = (tensor("at", (1, 1), (0,), INT64),)
    assert kinds(turned, noted(pick, note("y", "index.Tensor", "%x, [None, %clone]")), shape=(4, 8), weights=weights) == "index"
    assert kinds(turned, noted(pick, note("y", "neg.default", "%clone")), shape=(4, 8), weights=weights) == "clone index"


def test_rows_under_a_mask_are_put_there_and_rows_of_a_slice_are_copied() -> None:
    mask, places = tensor("mask", (4,), b"\1" * 4, 9), sizes("places", 0, 1, 2, 3)
    found = (node("NonZero", ["mask"], ["n"]), node("Transpose", ["n"], ["at"], perm=[1, 0]))
    zeros = tensor("z", (4, 8), b"\0" * 128)
    put = node("ScatterND", ["z", "at", "x"], ["y"])
    assert kinds(*found, put, shape=(4, 8), weights=(mask, zeros)) == "index_put"
    column = node("Unsqueeze", ["places", "one"], ["at"])
    assert kinds(column, put, shape=(4, 8), weights=(places, zeros, sizes("one", 1))) == "clone copy"


def test_a_comparison_that_is_turned_round_is_one_call_though_others_use_it_as_it_is() -> None:
    zero = tensor("zero", (), (0,), INT64)
    equal = noted(node("Equal", ["x", "zero"], ["e"]), note("e", "eq.Scalar", "%x, 0"))
    turned = noted(node("Not", ["e"], ["n"]), note("n", "ne.Scalar", "%x, 0"))
    both = node("And", ["n", "e"], ["y"])
    assert kinds(equal, turned, both, dtype="int64", weights=(zero,)) == "eq_scalar ne_scalar logical_and"


def test_a_weight_is_standardised_by_its_own_mean_where_it_is_a_weight() -> None:
    weights = (tensor("w", (1, 8, 9), b"\0" * 288), tensor("one", (8,), b"\0" * 32), sizes("back", 8, 1, 3, 3))
    norm = node("BatchNormalization", ["w", "one", "one", "one", "one"], ["n"], training_mode=1)
    conv = node("Conv", ["x", "k"], ["y"], kernel_shape=[3, 3], group=8)
    nodes = (norm, node("Reshape", ["n", "back"], ["k"]), conv)
    assert kinds(*nodes, shape=(1, 8, 6, 6), weights=weights).split()[-1] == "conv2d"
    with pytest.raises(ModelError, match=r"eval\(\)"):
        kinds(
            node("BatchNormalization", ["x", "one", "one", "one", "one"], ["y"], training_mode=1),
            shape=(1, 8, 6, 6),
            weights=weights,
        )


def test_a_division_without_remainder_is_one_call() -> None:
    weights: tuple[bytes, ...] = (
        tensor("by", (), (3,), INT64),
        tensor("zero", (), (0,), INT64),
        tensor("one", (), (1,), INT64),
    )
    weights += (tensor("no", (), b"\0", 9),)
    nodes = (
        node("Div", ["x", "by"], ["d"]),
        node("Less", ["x", "zero"], ["below"]),
        node("Xor", ["below", "no"], ["differ"]),
        node("Mod", ["x", "by"], ["rest"]),
        node("Equal", ["rest", "zero"], ["even"]),
        node("Not", ["even"], ["odd"]),
        node("And", ["differ", "odd"], ["down"]),
        node("Sub", ["d", "one"], ["less"]),
        node("Where", ["down", "less", "d"], ["y"]),
    )
    assert kinds(*nodes, shape=(1, 300), dtype="int64", weights=weights) == "floor_divide_scalar"


def test_windows_are_looked_at_and_places_packed_without_a_launch() -> None:
    places = tensor("places", (3, 4), [start + step for start in (0, 2, 4) for step in range(4)], INT64)
    unfold = noted(node("Gather", ["x", "places"], ["w"], axis=3), note("w", "unfold.default", "%x, 3, 4, 2"))
    assert kinds(unfold, node("Relu", ["w"], ["y"]), weights=(places,)) == "relu"
    first = tensor("first", (2, 1), (0, 1), INT64)
    call = note("y", "index.Tensor", "%r, [%first, %x]")
    nodes = (
        node("ArgMax", ["x"], ["at"], axis=1, keepdims=1),
        noted(node("Concat", ["first", "at"], ["both"], axis=1), call),
        noted(node("GatherND", ["x", "both"], ["y"]), call),
    )
    assert kinds(*nodes, shape=(2, 5), weights=(first,)) == "argmax index"
