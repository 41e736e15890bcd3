# SPDX-License-Identifier: Apache-2.0
"""TensorRT's account of an engine: its fused layers as launches, what moves data only, and all that is refused."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from jetdvfs.daemon.cli import main
from jetdvfs.kernels.budget import Account, Budget
from jetdvfs.kernels.decompose import decompose, says_its_inputs
from jetdvfs.kernels.engine.program import read_times
from jetdvfs.kernels.errors import BudgetExceeded, KernelsError, ModelError, ShapeError, UnsupportedOperator
from jetdvfs.kernels.fusion import fuse
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.kernels.kinds import flops
from jetdvfs.kernels.network import KernelInvocation, Network
from jetdvfs.profiles.reference import reference_model
from jetdvfs.tests.fuzz.choices import Choices
from jetdvfs.tests.fuzz.engines import times as arbitrary_times
from jetdvfs.tests.support.models.handmade_engine import account, convolution, layer, profile, small, tensor
from jetdvfs.tests.support.paths import SHARED_DATA
from jetdvfs.tests.support.profiles.analytic import board, conv2d

SAMPLES = SHARED_DATA / "tensorrt-layer-info"
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"the samples are not there: {SAMPLES}")


def read(layers: list[Any], *bindings: str, inputs: tuple[str, ...] = (), budget: Budget | None = None) -> Network:
    stream = io.BytesIO(account(layers, *(bindings or ("x", "y"))))
    return decompose(stream, [parse_input(text) for text in inputs], budget=budget or Budget())


def one(made: dict[str, Any], *bindings: str) -> KernelInvocation:
    """The launch of an engine of one layer."""
    (launch,) = read([made], *bindings).launches
    return launch


def test_layers_are_launches_as_tensorrt_fused_them() -> None:
    network = read(small())
    assert [launch.kind for launch in network.launches] == ["to", "conv2d_relu", "conv2d_add_relu", "max_pool2d"]
    assert network.runtime == "TensorRT"
    assert [(spec.name, spec.shape, spec.dtype) for spec in network.inputs] == [("x", (1, 8, 16, 16), "float32")]
    convolved = network.launches[2]
    pixels, weights = 8 * 16 * 16, 8 * 8 * 3 * 3
    assert convolved.inputs == ((1, 8, 16, 16), (1, 8, 16, 16))
    assert convolved.flops == 2 * pixels * 8 * 9 + 2 * pixels  # the sum and the relu as well
    assert convolved.bytes == 2 * (3 * pixels + weights + 8)
    assert convolved.dtype == "float16"
    assert network.launches[0].bytes == (4 + 2) * pixels


def test_a_saved_list_of_an_engine_is_the_same() -> None:
    network = read(small())
    assert Network.from_json(json.loads(json.dumps(network.to_json()))) == network


def test_what_is_fused_without_a_kind_of_its_own_stands_in_the_epilogue() -> None:
    image = tensor("x", 1, 8, 16, 16)
    launch = one(convolution([image], tensor("y", 1, 8, 16, 16), Activation="CLIPPED_RELU"))
    assert (launch.kind, launch.params["epilogue"]) == ("conv2d", "hardtanh")


def test_a_model_of_plain_convolutions_is_less_sure_of_those_with_an_epilogue() -> None:
    cost = board(sigma=0.1)
    plain = conv2d()
    finishing = KernelInvocation(**{**asdict(plain), "params": {**plain.params, "epilogue": "silu"}})
    known, less = cost.model_for(plain), cost.model_for(finishing)
    assert known is not None and less is not None
    assert less.kind == known.kind and less.time_sigma > known.time_sigma


def test_weights_in_eight_bits_make_a_product_in_eight_bits() -> None:
    narrow = "Thirty-two wide channel vectorized row major Int8 format"
    image, out = tensor("x", 1, 32, 8, 8, form=narrow), tensor("y", 1, 32, 8, 8)
    launch = one(convolution([image], out, Weights={"Type": "Int8", "Count": 32 * 32 * 9}))
    assert launch.dtype == "int8"
    assert launch.bytes == 32 * 64 * (1 + 2) + 32 * 32 * 9 + 2 * 32


def test_groups_strides_and_transposed_convolutions() -> None:
    image = tensor("x", 1, 32, 8, 8)
    depthwise = one(convolution([image], tensor("y", 1, 32, 4, 4), Groups=32, Stride=[2, 2]))
    assert depthwise.params["weight"] == (32, 1, 3, 3) and depthwise.flops == 2 * 32 * 16 * 9
    made = convolution([image], tensor("y", 1, 16, 16, 16), kernel=2, Stride=[2, 2], PrePadding=[0, 0])
    transposed = one({**made, "LayerType": "CaskDeconvolutionV2"})
    assert (transposed.kind, transposed.params["weight"]) == ("conv_transpose2d", (32, 16, 2, 2))


@pytest.mark.parametrize(
    ("first", "second", "out", "sizes"),
    [
        ((1, 1280), (1280, 1000), (1, 1000), (1, 1280, 1000, 1)),
        ((2, 196, 768), (768, 3072), (2, 196, 3072), (392, 768, 3072, 1)),
        ((1, 12, 64, 32), (1, 12, 32, 64), (1, 12, 64, 64), (64, 32, 64, 12)),
        ((1, 12, 64, 32), (1, 12, 64, 32), (1, 12, 64, 64), (64, 32, 64, 12)),
    ],
)
def test_products_are_sized_by_what_comes_out(
    first: tuple[int, ...], second: tuple[int, ...], out: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    operands = [tensor("x", *first, form="Half"), tensor("w", *second, form="Half"), tensor("alpha", 1, form="Float")]
    launch = one(layer("gemm", operands, tensor("y", *out, form="Half")))
    assert tuple(launch.params[name] for name in ("m", "k", "n", "batch")) == sizes
    assert launch.flops == 2 * sizes[0] * sizes[1] * sizes[2] * sizes[3]
    assert launch.inputs == (first,)  # the other one is part of the engine


def test_generated_kernels_count_the_operations_that_their_names_list() -> None:
    rows = tensor("x", 64, 256, form="Half")
    softmax = one(layer("kgen", [rows], tensor("y", 64, 256, form="Half"), "__myl_MaxSubExpSumDiv_myl0_3"))
    assert softmax.kind == "fused_reduction" and softmax.params["kinds"] == "amax+sub+exp+sum+div"
    pointwise = one(layer("kgen", [rows, rows], tensor("y", 64, 256, form="Half"), "__myl_CastMulAdd_myl0_1"))
    assert pointwise.kind == "fused_pointwise" and pointwise.flops == 2 * 64 * 256
    moving = one(layer("kgen", [rows], tensor("y", 256, 64, form="Half"), "__myl_TranResh_myl0_1"))
    assert moving.flops == 0 and moving.bytes == 2 * 2 * 64 * 256


def test_attention_is_one_launch() -> None:
    heads = [tensor(name, 1, 8, 128, 64, form="Half") for name in ("x", "k", "v")]
    launch = one(layer("kgen", heads, tensor("y", 1, 8, 128, 64, form="Half"), "_gemm_mha_v2_myl0_4"), "x", "k", "v", "y")
    shapes = [(1, 8, 128, 64)] * 3
    assert launch.kind == "attention" and launch.flops == flops("attention", shapes, shapes[0], {})


def test_pointwise_layers_count_the_operations_they_list() -> None:
    rows = tensor("x", 10, 2)
    said = ["const auto var0 = pwgen::iMax(arg0, literal0);", "const auto var1 = pwgen::iPlus(arg0, var0);"]
    launch = one(layer("PointWiseV2", [rows], tensor("y", 10, 2), ParameterType="PointWise", Operations=said))
    assert (launch.kind, launch.params["kinds"], launch.flops) == ("fused_pointwise", "maximum+add", 40)


def test_several_convolutions_of_one_tensor_are_one_with_all_their_filters() -> None:
    image, outs = tensor("x", 1, 32, 8, 8), [tensor("a", 1, 8, 8, 8), tensor("y", 1, 24, 8, 8)]
    made = convolution([image], tensor("y", 1, 32, 8, 8), kernel=1)
    launch = one({**made, "Name": "a || b", "Outputs": outs})
    assert launch.output == (1, 32, 8, 8) and launch.params["weight"] == (32, 32, 1, 1)
    assert launch.flops == one(made).flops and launch.bytes == one(made).bytes


def test_a_convolution_may_write_its_part_of_a_joined_tensor() -> None:
    alone = convolution([tensor("x", 1, 32, 8, 8)], tensor("y", 1, 16, 8, 8))
    joined = {**alone, "Outputs": [tensor("y", 1, 48, 8, 8)]}
    assert one(joined) == one(alone)


def test_a_convolution_that_was_compiled_with_its_activation_says_what_it_is() -> None:
    """TensorRT 10's ``CaskJitConv``: a sum behind an activation that is written as a product with its sigmoid."""
    image, rest = tensor("x", 1, 8, 16, 16), tensor("r", 1, 8, 16, 16)
    said = [f"const auto var{at} = pwgen::{call}(arg0, var0);" for at, call in enumerate(("iSigmoid", "iMul", "iPlus"))]
    made = convolution([image, rest], tensor("y", 1, 8, 16, 16), PointWiseExpressionOperations=said)
    launch = one({**made, "LayerType": "CaskJitConv"}, "x", "r", "y")
    assert (launch.kind, launch.params["epilogue"]) == ("conv2d", "silu+add")


def test_of_an_engine_for_several_shapes_the_first_is_listed() -> None:
    others = [
        {**made, "Name": f"{made['Name']} [profile 1]", "Inputs": [tensor("x [profile 1]", -1, 8, -1, -1)]} for made in small()
    ]
    network = read([*small(), *others], "x", "y", "x [profile 1]", "y [profile 1]")
    assert network.launches == read(small()).launches and len(network.inputs) == 1


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("__myl_MulMaxSubExpSum_myl87_3", "mul+amax+sub+exp+sum"),
        ("__myl_DivMulTra_myl87_4", "div+mul+tran"),
        ("__myl_NegExpAddDivTop_myl9_1", "neg+exp+add+div+top"),
    ],
)
def test_operations_whose_names_are_cut_off_are_known(name: str, kinds: str) -> None:
    rows = tensor("x", 64, 256, form="Half")
    assert one(layer("kgen", [rows], tensor("y", 64, 256, form="Half"), name)).params["kinds"] == kinds


def test_a_generated_kernel_that_only_moves_one_tensor_is_a_copy() -> None:
    image, rows = tensor("x", 1, 256, 6, 6), tensor("y", 1, 9216, form="Half")
    launch = one(layer("kgen", [image], rows, "__myl_Res_myl9_1"))
    assert (launch.kind, launch.flops, launch.bytes) == ("clone", 0, 2 * 2 * 9216)


@pytest.mark.parametrize("kind", ["PluginV2DynamicExt", "NMS", "Myelin", "DLA"])
def test_a_layer_whose_work_is_not_said_ends_the_list_by_name(kind: str) -> None:
    layers = [*small()[:4], layer(kind, [tensor("y", 1, 8, 8, 8)], tensor("boxes", 1, 100, 4))]
    network = read(layers)
    assert network.boundary is not None and network.boundary.operator == f"tensorrt::{kind}"
    with pytest.raises(ModelError, match=f"--accept-boundary tensorrt::{kind}"):
        network.check_whole()
    network.check_whole([f"tensorrt::{kind}"])


IMAGE, OUT = tensor("x", 1, 8, 16, 16), tensor("y", 1, 8, 16, 16)
ABSURD: dict[str, tuple[list[Any], type[ModelError], str]] = {
    "names only": (["conv1 + relu1", "pool"], ModelError, "--profilingVerbosity=detailed"),
    "no types": ([{"Name": "conv1"}], ModelError, "--profilingVerbosity=detailed"),
    "no layers": ([], ModelError, "lists no layers"),
    "a type nobody knows": ([layer("QuantumFold", [IMAGE], OUT)], UnsupportedOperator, "QuantumFold"),
    "shapes that are not fixed": ([convolution([tensor("x", -1, 8, 16, 16)], OUT)], ShapeError, "--shapes"),
    "dynamic formats": ([layer("Cast", [tensor("x", 1, form="N/A due to dynamic shapes")], OUT)], ShapeError, "--shapes"),
    "a type of elements nobody knows": ([layer("Cast", [tensor("x", 1, form="Posit16")], OUT)], ModelError, "Posit16"),
    "many dimensions": ([layer("Cast", [tensor("x", *[1] * 17)], OUT)], BudgetExceeded, "17 dimensions"),
    "many elements": ([layer("Cast", [tensor("x", 1 << 30, 1 << 30)], OUT)], BudgetExceeded, "elements"),
    "no groups": ([convolution([IMAGE], OUT, Groups=0)], ModelError, "in 0 groups"),
    "a window that is none": ([convolution([IMAGE], OUT, Kernel=["a"])], ModelError, "'Kernel'"),
    "a huge window": ([convolution([IMAGE], OUT, Kernel=[1 << 39, 1 << 39])], BudgetExceeded, "operations"),
    "a count of weights below nothing": ([convolution([IMAGE], OUT, Weights={"Count": -1})], ModelError, "'Weights'"),
    "no product": ([layer("gemm", [tensor("x", 3, 5), tensor("w", 7, 11)], tensor("y", 2, 2))], ModelError, "make a product"),
    "no outputs": ([{**layer("SoftMax", [IMAGE], OUT), "Outputs": []}], ModelError, "no outputs"),
    "a number for a layer": ([7], ModelError, "layer 0 is 7"),
    "a truth value for a size": ([layer("Cast", [{**IMAGE, "Dimensions": [True]}], OUT)], ModelError, "Dimensions"),
}


@pytest.mark.parametrize("case", ABSURD)
def test_what_makes_no_sense_is_refused_in_one_line(case: str) -> None:
    layers, error, text = ABSURD[case]
    with pytest.raises(error, match=text.replace("(", r"\(")) as caught:
        read(layers)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize("keep", range(1, 60))
def test_a_file_that_was_cut_off_is_refused(keep: int) -> None:
    whole = account(small(), "x", "y")
    with pytest.raises(KernelsError) as caught:
        decompose(io.BytesIO(whole[: len(whole) * keep // 60]), [])
    assert "\n" not in str(caught.value)


def test_a_hostile_file_costs_little() -> None:
    nested = b'{"Layers": ' + b"[" * 4_000_000
    many = b'{"Layers": [' + b"{}," * 1_000_000 + b"{}]}"
    large = b'{"Layers": ["' + b"a" * (20 << 20) + b'"]}'
    for content in (nested, many, large):
        with pytest.raises(ModelError) as caught:
            decompose(io.BytesIO(content), [])
        assert "\n" not in str(caught.value)


def test_shapes_that_were_said_are_checked_and_need_not_be_said() -> None:
    assert read(small(), inputs=("1x8x16x16",)).launches == read(small()).launches
    with pytest.raises(ShapeError, match="takes x=1x8x16x16:float32"):
        read(small(), inputs=("1x8x32x32",))


def test_a_file_that_says_its_inputs_is_known_by_its_start(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    path.write_bytes(account(small(), "x", "y"))
    assert says_its_inputs(path)
    path.write_text(json.dumps(read(small()).to_json()))
    assert not says_its_inputs(path)
    assert not says_its_inputs(tmp_path / "absent.json")


def test_what_tensorrt_fused_is_not_fused_again() -> None:
    with pytest.raises(ModelError, match="as TensorRT launches it"):
        fuse(read(small()))


def test_measured_times_stand_beside_their_layers() -> None:
    network, layers = read(small()), small()
    times = read_times(io.BytesIO(profile([made["Name"] for made in layers])), network, Account(Budget()))
    assert times.launches_ms == pytest.approx((0.1, 0.2, 0.3, 0.4))
    assert times.others_ms == {"z": pytest.approx(0.5)}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (profile(["r", "a", "b"]), "no time for layer 'y'"),
        (b"[", "exportProfile"),
        (b'[{"name": "r", "averageMs": NaN}]', "averageMs of 'r'"),
        (b'[{"name": "r"}]', "averageMs of 'r'"),
        (b"[[]]", "row 1"),
        (b"{}", "exportProfile"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_a_profile_that_is_none_or_another_engines_is_refused(content: bytes, text: str) -> None:
    with pytest.raises(ModelError, match=text) as caught:
        read_times(io.BytesIO(content), read(small()), Account(Budget()))
    assert "\n" not in str(caught.value)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.binary(max_size=60))
def test_arbitrary_profiles_end_in_times_or_in_one_line(choices: bytes) -> None:
    try:
        times = read_times(io.BytesIO(arbitrary_times(Choices(choices))), read(small()), Account(Budget()))
        assert len(times.launches_ms) == len(small()) - 1
    except ModelError as error:
        assert "\n" not in str(error)


def test_an_engine_itself_is_refused_with_the_command_that_tells_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("model.engine", "model.plan", "model"):
        (tmp_path / name).write_bytes(b"ftrt" + bytes(100))
        for asked in (["decompose", str(tmp_path / name)], ["hold", str(tmp_path / name), "--target", "latency_ms=5"]):
            assert main(asked) == 3
            error = capsys.readouterr().err
            assert "trtexec --loadEngine=FILE" in error and "--exportLayerInfo" in error and error.count("\n") == 1


def test_an_engine_is_listed_with_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "engine.json").write_bytes(account(small(), "x", "y"))
    (tmp_path / "times.json").write_bytes(profile([made["Name"] for made in small()]))
    engine, times = str(tmp_path / "engine.json"), str(tmp_path / "times.json")
    assert main(["decompose", engine, "--measured", times, "--launches"]) == 0
    out = capsys.readouterr().out
    assert "engine (x=1x8x16x16:float32), TensorRT: 4 launches" in out
    assert re.search(r"^2 +conv2d_add_relu .* 0\.3000$", out, re.MULTILINE)
    assert "1 ms of launches, 0.5 ms of 1 other layers" in out
    assert main(["decompose", engine, "--measured", times, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["runtime"] == "TensorRT" and data["measured_ms"] == pytest.approx([0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize(
    ("option", "code", "text"),
    [
        (("--fused",), 3, "as TensorRT launches it"),
        (("--tree",), 2, "do not say which modules"),
        (("--measured", "absent.json"), 3, "No such file"),
        (("--method", "encode"), 3, "valid: forward"),
        (("--input", "1x8x32x32"), 3, "leave --input out"),
    ],
)
def test_what_an_engine_does_not_have_is_refused_in_one_line(
    option: tuple[str, ...], code: int, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "engine.json").write_bytes(account(small(), "x", "y"))
    assert main(["decompose", str(tmp_path / "engine.json"), *option]) == code
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and text in captured.err


@needs_samples
@pytest.mark.parametrize(("name", "sample"), [("resnet18", "resnet18_fp16"), ("mobilenet_v2", "mobilenet_v2_fp16")])
def test_real_engines_do_the_convolutions_of_their_networks(name: str, sample: str) -> None:
    written = decompose(reference_model(name), [parse_input("1x3x224x224")])
    engine = decompose(SAMPLES / f"{sample}.graph.json", [])

    def convolutions(network: Network) -> Counter[Any]:
        members = ("weight", "stride", "padding", "dilation", "groups")
        return Counter(
            (call.inputs[0], *(call.params[member] for member in members))
            for call in network.launches
            if call.kind.startswith("conv2d")
        )

    assert convolutions(engine) == convolutions(written)
    assert engine.boundary is None
    with open(SAMPLES / f"{sample}.profile.json", "rb") as stream:
        times = read_times(stream, engine, Account(Budget()))
    assert len(times.launches_ms) == len(engine.launches) and all(ms > 0 for ms in times.launches_ms)


@needs_samples
def test_the_inspectors_account_lists_the_same_as_trtexecs() -> None:
    kinds = decompose(SAMPLES / "resnet18_trt_engine_info.json", []).kinds
    assert kinds["conv2d_relu"] == 9 and kinds["conv2d_add_relu"] == 8
