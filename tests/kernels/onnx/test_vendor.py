# SPDX-License-Identifier: Apache-2.0
"""ONNX operators without a call of PyTorch's own, and other vendors': each launches what its spelling in PyTorch dispatches."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import EndsEarly, UnsupportedOperator
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.kernels.network import KernelInvocation, Network, TensorSpec
from jetdvfs.tests.support.models.handmade_onnx import FLOAT, INT64, declared, graph, model, node, tensor

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of decomposition; it is not installed")

import torch.nn.functional as F  # noqa: E402

from jetdvfs.tests.support.models import oracle  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::Warning")]

MICROSOFT = "com.microsoft"


def rotary(*arguments: Any, **options: Any) -> Any:
    """``torch.onnx.ops.rotary_embedding`` written out; the operator itself tells a meta tensor its shape alone."""
    from torch.onnx.ops._impl import ONNX_ATEN_DECOMP_TABLE

    return ONNX_ATEN_DECOMP_TABLE[torch.ops.onnx.RotaryEmbedding.opset23](*arguments, **options)


def attend(q: Any, k: Any, v: Any, heads: int, causal: bool = False) -> Any:
    q, k, v = (x.view(*x.shape[:2], heads, -1).transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2)


#: A node, the inputs it is given, and the same in PyTorch.
CASES: dict[str, tuple[bytes, list[str], Callable[..., Any]]] = {
    "local response norm": (
        node("LRN", ["a"], ["y"], size=5, alpha=1e-4, beta=0.75, bias=1.0),
        ["1x8x6x6"],
        lambda a: F.local_response_norm(a, 5),
    ),
    "local response norm of rows": (
        node("LRN", ["a"], ["y"], size=3),
        ["1x8x6"],
        lambda a: F.local_response_norm(a, 3),
    ),
    "rotary": (
        node("RotaryEmbedding", ["a", "b", "c"], ["y"]),
        ["1x4x8x16", "1x8x8", "1x8x8"],
        lambda a, b, c: rotary(a, b, c),
    ),
    "rotary, interleaved, of part of a head": (
        node("RotaryEmbedding", ["a", "b", "c"], ["y"], interleaved=1, rotary_embedding_dim=8),
        ["1x4x8x16", "1x8x4", "1x8x4"],
        lambda a, b, c: rotary(a, b, c, interleaved=True, rotary_embedding_dim=8),
    ),
    "rotary with positions": (
        node("RotaryEmbedding", ["a", "b", "c", "d"], ["y"], num_heads=4),
        ["1x8x64", "50x8", "50x8", "1x8:int64"],
        lambda a, b, c, d: rotary(a, b, c, d, num_heads=4),
    ),
    "root mean square": (
        node("SimplifiedLayerNormalization", ["a", "b"], ["y"]),
        ["1x8x32", "32"],
        lambda a, b: F.rms_norm(a, (32,), b),
    ),
    "skip": (
        node("SkipLayerNormalization", ["a", "b", "c", "d", "e"], ["y"], domain=MICROSOFT),
        ["1x8x32", "1x8x32", "32", "32", "32"],
        lambda a, b, c, d, e: F.layer_norm(a + b + e, (32,), c, d),
    ),
    "skip, simplified": (
        node("SkipSimplifiedLayerNormalization", ["a", "b", "c"], ["y"], domain=MICROSOFT),
        ["1x8x32", "1x8x32", "32"],
        lambda a, b, c: F.rms_norm(a + b, (32,), c),
    ),
    "fused product": (
        node("FusedMatMul", ["a", "b"], ["y"], domain=MICROSOFT, transB=1, alpha=0.5),
        ["2x3x8", "2x5x8"],
        lambda a, b: torch.matmul(a, b.transpose(-1, -2)) * 0.5,
    ),
    "gelu with a bias": (
        node("BiasGelu", ["a", "b"], ["y"], domain=MICROSOFT),
        ["1x8x32", "32"],
        lambda a, b: F.gelu(a + b),
    ),
    "quick gelu": (
        node("QuickGelu", ["a"], ["y"], domain=MICROSOFT),
        ["1x8x32"],
        lambda a: a * torch.sigmoid(a * 1.702),
    ),
    "fused convolution": (
        node("FusedConv", ["a", "b", "c", "d"], ["y"], domain=MICROSOFT, kernel_shape=[3, 3], activation="Relu"),
        ["1x3x8x8", "4x3x3x3", "4", "1x4x6x6"],
        lambda a, b, c, d: F.relu(F.conv2d(a, b, c) + d),
    ),
    "attention of several heads": (
        node("MultiHeadAttention", ["a", "b", "c"], ["y"], domain=MICROSOFT, num_heads=4),
        ["1x8x32", "1x6x32", "1x6x32"],
        lambda a, b, c: attend(a, b, c, 4),
    ),
    "a loop over slices": (
        node(
            "Scan",
            ["a", "b"],
            ["h", "y"],
            num_scan_inputs=1,
            body=graph(
                [node("Add", ["s", "x"], ["n"]), node("Relu", ["n"], ["o"])],
                [declared("s", (4,)), declared("x", (4,))],
                ["n", "o"],
            ),
        ),
        ["4", "3x4"],
        lambda a, b: torch.stack([(a + b[0]).relu(), (a + b[0] + b[1]).relu(), (a + b[0] + b[1] + b[2]).relu()]),
    ),
}


def listed(case: bytes, inputs: list[TensorSpec]) -> Network:
    kinds = {"float32": FLOAT, "int64": INT64}
    given = [declared("abcde"[place], spec.shape, kinds[spec.dtype]) for place, spec in enumerate(inputs)]
    return decompose(io.BytesIO(model(graph([case], given, ["y"]), version=23)), inputs)


def plainly(launches: tuple[KernelInvocation, ...]) -> list[KernelInvocation]:
    return [msgspec.structs.replace(launch, scope="") for launch in launches]


@pytest.mark.parametrize("name", [name for name in CASES if name != "a loop over slices"])
def test_what_it_launches_is_what_pytorch_dispatches(name: str) -> None:
    case, texts, compute = CASES[name]
    inputs = [parse_input(text) for text in texts]

    class Module(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, *arguments: Any) -> Any:
            return compute(*arguments)

    assert plainly(listed(case, inputs).launches) == plainly(oracle.network_of(Module(), inputs).launches)


def test_a_loop_over_slices_runs_once_for_each() -> None:
    case, texts, _ = CASES["a loop over slices"]
    made = listed(case, [parse_input(text) for text in texts])
    assert [launch.kind for launch in made.launches] == ["add", "relu"] * 3 + ["stack"]
    assert made.launches[-1].output == (3, 4)


def test_a_product_of_few_bits_moves_what_is_packed() -> None:
    product = node("MatMulNBits", ["a", "q", "s"], ["y"], domain=MICROSOFT, K=64, N=32, bits=4, block_size=32)
    weights = [tensor("q", (32, 2, 16), b"\0" * 1024, 2), tensor("s", (64,), b"\0" * 256)]
    content = model(graph([product], [declared("a", (1, 8, 64))], ["y"], weights))
    (launch,) = decompose(io.BytesIO(content), [parse_input("1x8x64")]).launches
    assert (launch.kind, launch.flops, launch.params["weight_bits"]) == ("matmul", 2 * 8 * 64 * 32, 4)
    assert launch.bytes == 4 * 8 * 64 + 1024 + 256 + 4 * 8 * 32


def test_a_plug_in_of_tensorrt_ends_the_list_and_is_called_that() -> None:
    made = listed(node("EfficientNMS_TRT", ["a", "b"], ["y"], domain="TRT"), [parse_input("1x100x4"), parse_input("1x100x80")])
    assert made.boundary is not None
    assert made.boundary.operator == "TRT::EfficientNMS_TRT"
    with pytest.raises(EndsEarly, match="TensorRT's plug-in for non-maximum suppression"):
        made.check_whole()


def test_packed_inputs_of_attention_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperator, match="MultiHeadAttention of packed inputs"):
        listed(node("MultiHeadAttention", ["a"], ["y"], domain=MICROSOFT, num_heads=4), [parse_input("1x8x4x3x8")])


def test_sizes_written_as_minus_one_take_any_size() -> None:
    content = model(graph([node("Relu", ["a"], ["y"])], [declared("a", (-1, 3, -1))], ["y"]))
    (launch,) = decompose(io.BytesIO(content), [parse_input("2x3x7")]).launches
    assert launch.output == (2, 3, 7)


def test_nodes_out_of_order_run_when_what_they_take_is_there() -> None:
    nodes = [node("Relu", ["h"], ["r"]), node("Cast", ["r"], ["y"], to=1), node("Cast", ["a"], ["h"], to=10)]
    made = decompose(io.BytesIO(model(graph(nodes, [declared("a", (2, 3))], ["y"]))), [parse_input("2x3")])
    assert [(launch.kind, launch.dtype) for launch in made.launches] == [
        ("to", "float16"), ("relu", "float16"), ("to", "float32")
    ]  # fmt: skip


def made(case: bytes, inputs: dict[str, TensorSpec], weights: tuple[bytes, ...]) -> tuple[KernelInvocation, ...]:
    kinds = {"float32": FLOAT, "int64": INT64, "uint8": 2}
    given = [declared(name, spec.shape, kinds[spec.dtype]) for name, spec in inputs.items()]
    return decompose(io.BytesIO(model(graph([case], given, ["y"], weights), version=21)), list(inputs.values())).launches


def eight_bits(name: str, *sizes: int) -> bytes:
    return tensor(name, sizes, b"\0" * math.prod(sizes), 3)


def floats(name: str, *sizes: int) -> bytes:
    return tensor(name, sizes, b"\0" * (4 * math.prod(sizes)))


ROWS = {"x": TensorSpec((1, 8, 64))}
SCALES = (floats("s"), floats("t"), eight_bits("z"), floats("b", 96))


def test_rows_of_a_table_in_few_bits_are_read_as_they_are_stored() -> None:
    case = node("GatherBlockQuantized", ["q", "x", "s"], ["y"], domain=MICROSOFT, bits=4, block_size=32, quantize_axis=1)
    weights = (tensor("q", (100, 32), b"\0" * 3200, 2), floats("s", 100, 2))
    (launch,) = made(case, {"x": TensorSpec((1, 5), "int64")}, weights)
    assert (launch.kind, launch.output, launch.bytes) == ("embedding", (1, 5, 64), 5 * (8 + 4 * 64 + 32 + 8))
    file = model(graph([case], [declared("x", (1, 5), INT64)], ["y"], weights), version=21)
    assert decompose(io.BytesIO(file), []).boundary is None  # its scales are read


def test_products_of_8_bits_that_runtimes_fuse_work_in_8_bits() -> None:
    case = node("MatMulIntegerToFloat", ["x", "w", "s", "t", "z", "z", "b"], ["y"], domain=MICROSOFT)
    (launch,) = made(case, {"x": TensorSpec((8, 64), "uint8")}, (eight_bits("w", 64, 96), *SCALES))
    assert (launch.kind, launch.dtype, launch.output) == ("matmul", "quint8", (8, 96))
    assert launch.bytes == 8 * 64 + 64 * 96 + 4 * 96 + 4 * 8 * 96
    case = node("DynamicQuantizeMatMul", ["x", "w", "s", "z", "b"], ["y"], domain=MICROSOFT)
    launches = made(case, ROWS, (eight_bits("w", 64, 96), *SCALES))
    assert [(launch.kind, launch.dtype) for launch in launches] == [
        ("aminmax", "float32"), ("quantize_per_tensor", "quint8"), ("matmul", "quint8")
    ]  # fmt: skip


def test_quantised_attention_is_one_product_and_attention() -> None:
    case = node("QAttention", ["x", "w", "b", "s", "t", "", "z", "z"], ["y"], domain=MICROSOFT, num_heads=4)
    launches = made(case, {"x": TensorSpec((1, 8, 64), "uint8")}, (eight_bits("w", 64, 96), *SCALES))
    assert [(launch.kind, launch.dtype) for launch in launches if launch.flops] == [
        ("matmul", "quint8"),
        ("attention", "float32"),
    ]
    assert [launch.inputs for launch in launches if launch.kind == "attention"] == [((1, 4, 8, 8),) * 3]


def test_a_quantised_lstm_reads_weights_of_8_bits() -> None:
    given = ["x", "w", "r", "c", "", "", "", "", "s", "z", "t", "z"]
    case = node("DynamicQuantizeLSTM", given, ["y"], domain=MICROSOFT, hidden_size=32)
    weights = (eight_bits("w", 1, 64, 128), eight_bits("r", 1, 32, 128), floats("c", 1, 256), *SCALES)
    (launch,) = made(case, {"x": TensorSpec((8, 1, 64))}, weights)
    plain = node("LSTM", ["x", "w", "r", "c"], ["y"], hidden_size=32)
    (other,) = made(
        plain, {"x": TensorSpec((8, 1, 64))}, (floats("w", 1, 128, 64), floats("r", 1, 128, 32), floats("c", 1, 256))
    )
    assert (launch.kind, launch.output, launch.flops) == (other.kind, other.output, other.flops)
    assert other.bytes - launch.bytes == 3 * (64 + 32) * 128


@pytest.mark.parametrize(("name", "gated"), [("swiglu", True), ("relu", False)])
def test_a_mixture_reads_the_experts_that_tokens_take(name: str, gated: bool) -> None:
    """Eight rows, two of four experts each, of 4 bits with a scale for each output."""
    inner, wide = 96, 96 * (2 if gated else 1)
    options: dict[str, Any] = {
        "activation_type": name,
        "k": 2,
        "expert_weight_bits": 4,
        **({"swiglu_fusion": 1} if gated else {}),
    }
    case = node("QMoE", ["x", "router", "up", "us", "", "down", "ds"], ["y"], domain=MICROSOFT, **options)
    weights = (
        tensor("up", (4, wide, 32), b"\0" * (4 * wide * 32), 2), floats("us", 4, wide),
        tensor("down", (4, 64, inner // 2), b"\0" * (4 * 64 * inner // 2), 2), floats("ds", 4, 64),
    )  # fmt: skip
    launches = made(case, {**ROWS, "router": TensorSpec((8, 4))}, weights)
    products = [launch for launch in launches if launch.kind == "matmul"]
    assert [launch.flops for launch in products] == [2 * 16 * 64 * wide, 2 * 16 * inner * 64]
    assert [launch.dtype for launch in products] == ["int4", "int4"]
    assert products[0].bytes == 4 * 16 * (64 + wide) + 4 * wide * (32 + 4)
    assert launches[-1].output == (1, 8, 64)


def test_names_of_classes_are_the_hosts_work() -> None:
    case = node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0, 1])
    assert made(case, ROWS, ()) == ()


@pytest.mark.parametrize(("name", "domain"), [("TRTBatchedNMS", "mmdeploy"), ("MyPlugin", ""), ("DCNv2", "own.ops")])
def test_a_custom_operator_ends_the_list(name: str, domain: str) -> None:
    content = model(
        graph([node("Relu", ["x"], ["r"]), node(name, ["r"], ["y"], domain=domain)], [declared("x", (2, 3))], ["y"])
    )
    listed = decompose(io.BytesIO(content), [parse_input("2x3")])
    assert [launch.kind for launch in listed.launches] == ["relu"]
    assert listed.boundary is not None
    assert listed.boundary.operator == (f"{domain}::{name}" if domain else f"onnx::{name}")
    with pytest.raises(EndsEarly, match="it is a custom operator"):
        listed.check_whole()
