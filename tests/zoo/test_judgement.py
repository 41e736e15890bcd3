# SPDX-License-Identifier: Apache-2.0
"""How a list of launches is judged: what is equal, what is explained, and above all what is called wrong."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.network import KernelInvocation, Network, TensorSpec
from jetdvfs.tests.support.models.handmade_onnx import INT64, declared, graph, model, node, tensor
from jetdvfs.tests.zoo import listing
from jetdvfs.tests.zoo.attempt import apart
from jetdvfs.tests.zoo.comparison import judge
from jetdvfs.tests.zoo.lists import ATTENTION, BIASED, CLONE, CONV, NORM, PICTURE, RELU, launch, listed, ran, within
from jetdvfs.tests.zoo.rewritten import judge_rewritten

pytestmark = pytest.mark.tool


def test_the_same_launches_in_the_same_order_are_equal() -> None:
    assert judge(listed(CONV, NORM, RELU), ran(CONV, NORM, RELU)).verdict == "equal"


@pytest.mark.parametrize(
    "launches",
    [(CONV, RELU), (CONV, RELU, NORM), (CONV, NORM, RELU, RELU), (CONV, NORM, msgspec.structs.replace(RELU, bytes=1)), ()],
    ids=["one missing", "another order", "one too many", "other bytes", "nothing"],
)
def test_any_other_list_of_a_file_that_was_run_is_wrong(launches: tuple[KernelInvocation, ...]) -> None:
    assert judge(listed(*launches), ran(CONV, NORM, RELU)).verdict == "wrong"


def test_the_product_of_one_matrix_has_a_dimension_for_it_or_not() -> None:
    one, stacked = (launch("matmul", output=shape, flops=64, m=4, k=2, n=8, batch=1) for shape in ((4, 8), (1, 4, 8)))
    assert judge(listed(stacked), ran(one)).verdict == "equal"
    two = launch("matmul", output=(2, 4, 8), flops=128, m=4, k=2, n=8, batch=2)
    assert judge(listed(two), ran(msgspec.structs.replace(two, output=(4, 8)))).verdict == "wrong"


def test_the_product_of_a_stack_may_be_run_as_one_of_all_its_rows_and_nothing_else() -> None:
    sizes = {"k": 4, "n": 4, "bias": False}
    stack = launch("matmul", output=(6, 6, 4), flops=1152, m=6, batch=6, **sizes)
    one = msgspec.structs.replace(stack, output=(36, 4), params={**sizes, "m": 36, "batch": 1}, bytes=stack.bytes - 5 * 16 * 4)
    assert judge(listed(RELU, stack), ran(RELU, one)).why == "products of stacks that PyTorch 2.15 does as one"
    assert judge(listed(RELU, one), ran(RELU, stack)).verdict == "wrong"
    assert judge(listed(RELU, stack), ran(RELU, msgspec.structs.replace(one, bytes=stack.bytes))).verdict == "wrong"
    assert judge(listed(RELU, stack), ran(NORM, one)).verdict == "wrong"
    assert judge(listed(stack, stack), ran(one)).verdict == "wrong"
    two = msgspec.structs.replace(stack, inputs=(PICTURE, PICTURE))
    assert judge(listed(RELU, two), ran(RELU, one)).verdict == "wrong"


def test_a_list_ends_rightly_only_where_pytorch_looks_at_data() -> None:
    early = listed(CONV, end="aten::nonzero")
    assert judge(early, ran(CONV, NORM, RELU, looks=[(1, "aten::nonzero")])).verdict == "explained"
    assert judge(early, ran(CONV, NORM, RELU, looks=[(2, "aten::nonzero")])).verdict == "refused"
    assert judge(early, ran(NORM, RELU, looks=[(1, "aten::nonzero")])).verdict == "wrong"


def test_of_onnx_what_the_exporter_folds_is_explained_by_name() -> None:
    folded = judge_rewritten(listed(BIASED, RELU), ran(CONV, NORM, RELU), {})
    assert (folded.verdict, folded.why) == ("explained", "batch norms folded")
    merged = judge_rewritten(listed(CONV, RELU), ran(CONV, RELU, RELU, sorts=["", "", "repeated"]), {})
    assert (merged.verdict, merged.why) == ("explained", "repeated calls merged")
    soft, gt, where = launch("softplus"), launch("gt"), launch("where")
    guarded = judge_rewritten(listed(soft, gt, where), ran(soft), {})
    assert (guarded.verdict, guarded.why) == ("explained", "softplus written out")
    decibel = judge_rewritten(listed(launch("log"), launch("div")), ran(launch("log10")), {})
    assert (decibel.verdict, decibel.why) == ("explained", "log10 written out")
    for one, parts in (("log2", ("log", "div")), ("expm1", ("exp", "sub"))):
        assert judge_rewritten(listed(*map(launch, parts)), ran(launch(one)), {}).why == f"{one} written out"
    repeated = judge_rewritten(listed(launch("repeat")), ran(CLONE), {})
    assert (repeated.verdict, repeated.why) == ("explained", "repeat put together")
    laid_out = judge_rewritten(listed(CONV), ran(CONV, CLONE, sorts=["", "layout"]), {})
    assert (laid_out.verdict, laid_out.why) == ("explained", "copies left out")
    renamed = judge_rewritten(listed(CONV, launch("masked_fill")), ran(CONV, launch("where")), {})
    assert (renamed.verdict, renamed.why) == ("explained", "other names")
    halves = (launch("matmul", flops=32), launch("softmax", output=(2, 3, 5)), launch("matmul", flops=32))
    twice = Network("made up", (TensorSpec(PICTURE),), (CONV, CLONE, RELU, CLONE, RELU), None, ((-1,), (0,), (1,), (0,), (3,)))
    copied = judge_rewritten(twice, ran(CONV, CLONE, RELU, RELU, sorts=["", "layout", "", ""]), {})
    assert (copied.verdict, copied.why) == ("explained", "copies made for each reader")
    product, biased = (launch("matmul", flops=64, bias=bias) for bias in (False, True))
    added = msgspec.structs.replace(launch("add"), inputs=(PICTURE, (4,)))
    split = judge_rewritten(listed(product, added), ran(CLONE, biased, sorts=["layout", ""]), {})
    assert (split.verdict, split.why) == ("explained", "copies left out, biases added apart")
    assert judge_rewritten(listed(product, added), ran(CLONE, product, sorts=["layout", ""]), {}).verdict == "wrong"
    taken = judge_rewritten(listed(biased), ran(product, added), {})
    assert (taken.verdict, taken.why) == ("explained", "biases taken in")
    assert judge_rewritten(listed(product), ran(product, added), {}).verdict == "wrong"
    assert judge_rewritten(listed(biased), ran(product, added, added), {}).verdict == "wrong"
    apart = judge_rewritten(listed(*halves), ran(ATTENTION), {})
    assert (apart.verdict, apart.why) == ("explained", "attention written out")


def test_of_onnx_what_depends_on_no_input_and_conversions_are_left_in_only_where_they_are_that() -> None:
    extra = listed(CONV, RELU)
    assert judge_rewritten(extra, ran(CONV), {}, [1]).why == "constants left in"
    assert judge_rewritten(extra, ran(CONV), {}, [0]).verdict == "wrong"
    assert judge_rewritten(extra, ran(CONV), {}).verdict == "wrong"
    converted = listed(CONV, launch("to"))
    assert judge_rewritten(converted, ran(CONV), {"float32": 1}).why == "conversions"
    assert judge_rewritten(converted, ran(CONV), {"float16": 1}).verdict == "wrong"


def test_of_onnx_what_stands_beside_a_call_is_explained_by_its_sizes_and_no_more_of_it() -> None:
    index = within("index", (9, 9), (3, 1), (4,), output=(3, 4))
    places = [within("mul", (3, 1), output=(3, 1)), within("add", (3, 1), (4,), output=(3, 4))]
    one = within("index", (81,), (3, 4), output=(3, 4))
    assert judge_rewritten(listed(*places, one), ran(index), {}).why == "places of an index computed"
    assert judge_rewritten(listed(*places, places[1], one), ran(index), {}).verdict == "wrong"
    assert judge_rewritten(listed(*places, one), ran(one), {}).verdict == "wrong"

    scattered, limit = launch("scatter_reduce"), [launch(kind, output=()) for kind in ("amax", "add")]
    assert judge_rewritten(listed(*limit, scattered, scattered), ran(scattered), {}).why == "scatter_reduce written out"
    assert judge_rewritten(listed(*limit, *(scattered,) * 3), ran(scattered), {}).verdict == "wrong"

    product, biased = (launch("matmul", flops=64, bias=bias) for bias in (False, True))
    added = within("add", PICTURE, PICTURE)
    assert judge_rewritten(listed(product, added), ran(biased), {}).why == "biases added apart"
    assert judge_rewritten(listed(product, added), ran(product), {}).verdict == "wrong"


def test_of_onnx_a_list_ends_rightly_only_where_the_module_looks_at_data_and_has_all_until_then() -> None:
    early = listed(CONV, RELU, end="onnx::NonZero")
    assert judge_rewritten(early, ran(CONV, RELU, NORM, looks=[(2, "aten::nonzero")]), {}).verdict == "explained"
    assert judge_rewritten(early, ran(CONV, RELU, NORM, looks=[(3, "aten::nonzero")]), {}).verdict == "wrong"
    assert judge_rewritten(early, ran(CONV, RELU, NORM, looks=[(1, "aten::nonzero")]), {}).verdict == "wrong"
    assert judge_rewritten(early, ran(CONV, RELU, NORM), {}).verdict == "refused"


def test_of_onnx_the_masks_of_attention_are_numbers_and_truths_are_logical() -> None:
    masked = msgspec.structs.replace(ATTENTION, params={"mask": True})
    numbers, truths = launch("where", output=(1, 3, 5)), msgspec.structs.replace(launch("bitwise_and"), dtype="bool")
    assert judge_rewritten(listed(numbers, masked), ran(masked), {}).why == "masks written as numbers"
    assert judge_rewritten(listed(numbers, numbers, masked), ran(masked), {}).verdict == "wrong"
    assert judge_rewritten(listed(numbers, ATTENTION), ran(ATTENTION), {}).verdict == "wrong"
    assert judge_rewritten(listed(launch("logical_and")), ran(truths), {}).why == "other names"
    assert judge_rewritten(listed(launch("logical_and")), ran(launch("bitwise_and")), {}).verdict == "wrong"


def test_of_onnx_a_copy_is_assumed_where_the_list_says_so() -> None:
    assumed = launch("clone", assumed=True)
    assert judge_rewritten(listed(CONV, assumed), ran(CONV), {}).why == "copies assumed, as the list says"
    assert judge_rewritten(listed(CONV, assumed), ran(CONV, CLONE), {}).verdict == "equal"
    assert judge_rewritten(listed(CONV, assumed, CLONE), ran(CONV), {}).verdict == "wrong"


def test_of_onnx_the_largest_numbers_or_their_places_are_what_the_file_has_nodes_for() -> None:
    both = launch("max")
    assert judge_rewritten(listed(launch("argmax")), ran(both), {"ArgMax": 1}).why == "other names"
    assert judge_rewritten(listed(launch("argmax")), ran(both), {"ReduceMax": 1}).verdict == "wrong"
    assert judge_rewritten(listed(launch("amax")), ran(both), {"ReduceMax": 1}).why == "other names"
    assert judge_rewritten(listed(launch("amax")), ran(both), {"ArgMax": 1}).verdict == "wrong"


def test_of_onnx_division_rounds_only_where_its_results_are_whole() -> None:
    rounded, plain, true = launch("floor_divide"), msgspec.structs.replace(launch("div"), dtype="int64"), launch("div")
    assert judge_rewritten(listed(rounded), ran(plain), {}).why == "other names"
    assert judge_rewritten(listed(rounded), ran(true), {}).verdict == "wrong"
    assert judge_rewritten(listed(true, launch("floor")), ran(plain), {}).why == "division of whole numbers written out"
    assert judge_rewritten(listed(true, launch("floor")), ran(true), {}).verdict == "wrong"


def test_what_depends_on_no_input_is_told_through_the_second_result_of_a_launch(tmp_path: Path) -> None:
    """Places of the largest random numbers, and with the input among them."""
    sizes, two = tensor("s", (2,), (3, 5), INT64), tensor("two", (1,), (2,), INT64)
    fill = node("RandomUniform", [], ["r"], shape=[3, 5])
    first, last = (node("TopK", [of, "two"], [f"{of} v", made]) for of, made in (("r", "at"), ("f", "places")))
    nodes = (fill, first, node("Cast", ["at"], ["f"], to=1), last, node("Gather", ["x", "places"], ["y"], axis=0))
    path = tmp_path / "model.onnx"
    path.write_bytes(model(graph(nodes, (declared("x", (9, 4)),), ["y"], (sizes, two))))
    network, constant = listing.listed(path, [TensorSpec((9, 4))])
    kinds = [launch.kind for launch in network.launches]
    assert [kinds[place] for place in sorted(constant)] == kinds[:-1] and kinds.count("topk") == 2


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ((CONV, RELU), (CONV, NORM, RELU)),
        ((BIASED, RELU), (CONV, RELU, RELU)),
        ((BIASED,), (CONV, CONV)),
        ((BIASED, BIASED), (CONV,)),
        ((launch("conv2d", flops=8192),), (CONV,)),
        ((CONV, CLONE), (CONV,)),
        ((launch("softplus"), *(launch("gt"), launch("where")) * 2), (launch("softplus"),)),
        ((launch("log"), launch("div"), launch("div")), (launch("log10"),)),
        ((launch("log"), launch("div")), (launch("log"),)),
        ((launch("exp"), launch("sub"), launch("sub")), (launch("expm1"),)),
        ((launch("exp"), launch("sub")), (launch("exp"),)),
        ((launch("exp"), launch("sub", output=(8,))), (launch("expm1"),)),
        ((launch("log"),), (launch("log2"),)),
        ((CONV,), (CONV, launch("gru_cell"))),
        ((CONV,), (CONV, launch("to"))),
        ((CONV,), (CONV, CLONE)),
        ((CONV,), (CONV, launch("copy"))),
        ((BIASED, RELU), (CONV, RELU, NORM)),
        ((BIASED, RELU), (BIASED, NORM, RELU, NORM)),
        ((CONV, RELU), (CONV, launch("clamp_max"))),
        ((CONV, launch("add")), (CONV, launch("sub"))),
        ((launch("upsample_nearest2d"),), (launch("upsample_bilinear2d"),)),
        ((launch("matmul", flops=32), launch("softmax"), launch("matmul", flops=32)), (ATTENTION,)),
    ],
    ids=[
        "a norm without a bias",
        "an activation missing",
        "a convolution missing",
        "one too many",
        "other work",
        "a copy too many",
        "two guards of one call",
        "two quotients of one logarithm",
        "a quotient of the natural logarithm",
        "two differences of one power",
        "a difference of the plain power",
        "a difference of another size",
        "a binary logarithm without its quotient",
        "a cell missing",
        "a conversion of floats missing",
        "a copy of spread memory missing",
        "a copy into a slice missing",
        "a norm that follows no convolution",
        "a norm more than convolutions have",
        "another bound",
        "another sum",
        "another interpolation",
        "a softmax of another size",
    ],
)
def test_of_onnx_what_no_rewriting_accounts_for_is_wrong(
    ours: tuple[KernelInvocation, ...], theirs: tuple[KernelInvocation, ...]
) -> None:
    assert judge_rewritten(listed(*ours), ran(*theirs), {}).verdict == "wrong"


@pytest.mark.torch
def test_why_an_exporter_leaves_a_call_out_is_told_through_copies_and_until_something_is_written() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what lists are held against; it is not installed")
    from jetdvfs.tests.zoo import dispatched

    class Repeating(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            first, second, third = x.clone(), x.clone(), x.clone().add_(1)
            for _ in range(2):  # the same sums of the same, into fresh memory; then of something else
                x.new_zeros(2, 4).add_(x)
            x.new_zeros(2, 4).add_(x + 1)
            x = x * 1.000001 + 1e-9  # as good as the same; then not
            x = x * 1.0001 + 1e-7
            cell = torch.gru_cell(x, first * 2, torch.ones(12, 4), torch.ones(12, 4))
            pair = torch.cat([x, x + 1])
            return torch.cat([cell, second * 2, third * 2, torch.cat([x, x[:0]]), pair])

    module, x = Repeating(), torch.rand(2, 4)
    theirs, trouble = apart(lambda: dispatched.launches_of(module, module, [x]), 60)
    assert not trouble and not theirs.trouble
    found = [(launch.kind, sort) for launch, sort in zip(theirs.launches, theirs.sorts, strict=True)]
    assert [sort for kind, sort in found if kind == "mul_scalar"] == ["idle", "", "", "repeated", ""]
    assert [sort for kind, sort in found if kind == "add_scalar"][-3:] == ["idle", "", ""]
    assert [sort for kind, sort in found if kind == "zeros"] == ["constant"] * 3
    assert [sort for kind, sort in found if kind == "add"] == ["unused", "repeated", "unused"]
    assert [sort for kind, sort in found if kind == "cat"] == ["joined", "idle", ""]
    assert ("gru_cell", "") in found


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::Warning")
def test_a_model_is_written_run_and_judged() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what lists are held against; it is not installed")
    from jetdvfs.tests.zoo import dispatched

    class Attending(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(16, 48), torch.nn.GRU(16, 16)

        def forward(self, x: Any) -> Any:
            q, k, v = self.first(x).view(2, 5, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(10, 16)
            return self.last(y)[0][y[:, 0] > 0]

    module, x = Attending().eval().requires_grad_(False), torch.rand(2, 5, 16)
    stream = io.BytesIO()
    torch.jit.save(torch.jit.trace(module, x, check_trace=False), stream)
    network = decompose(stream, [TensorSpec((2, 5, 16))])

    def run_it() -> Any:
        torch.set_num_threads(1)
        return dispatched.launches_of(module, module, [x])

    theirs, trouble = apart(run_it, 60)  # it changes what is dispatched for as long as its process lives
    assert not trouble
    assert network.kinds["attention"] == network.kinds["gru"] == 1
    assert judge(network, theirs).verdict == "explained"
    assert judge(msgspec.structs.replace(network, boundary=None), theirs).verdict == "wrong"


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::Warning")
def test_the_short_cut_of_inference_is_held_against_what_cuda_runs() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what lists are held against; it is not installed")
    from jetdvfs.tests.zoo import dispatched

    module = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval().requires_grad_(False)
    x, stream = torch.rand(2, 5, 16), io.BytesIO()
    with torch.no_grad():
        torch.jit.save(torch.jit.trace(module, x, check_trace=False), stream)
    stream.seek(0)
    traced = torch.jit.load(stream)
    assert "_transformer_encoder_layer_fwd" in traced.code

    def run_it() -> Any:
        torch.set_num_threads(1)  # those of this process do not come along
        return dispatched.launches_of(traced, traced, [x])

    theirs, trouble = apart(run_it, 60)
    assert not trouble and not theirs.trouble
    assert judge(decompose(stream, [TensorSpec((2, 5, 16))]), theirs).verdict == "equal"
