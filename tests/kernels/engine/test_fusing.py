# SPDX-License-Identifier: Apache-2.0
"""What TensorRT would fuse, rule by rule, and layer by layer against engines that it built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.engine.fusing import as_engine
from jetdvfs.kernels.errors import ModelError
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.kernels.kinds import flops
from jetdvfs.kernels.network import KernelInvocation, Network, Shape, numel
from jetdvfs.tests.support.paths import REFERENCE, SHARED_DATA
from jetdvfs.tests.support.profiles.analytic import network

IMAGE: Shape = (1, 16, 8, 8)
IMAGE_BYTES = 4 * numel(IMAGE)
WEIGHTS = {"weight": (16, 16, 3, 3), "bias": False, "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
CONVOLUTION_BYTES = 2 * IMAGE_BYTES + 4 * 16 * 16 * 9


def convolution(bias: bool = False, scope: str = "conv") -> KernelInvocation:
    params: dict[str, Any] = {**WEIGHTS, "bias": bias}
    moved = CONVOLUTION_BYTES + 4 * 16 * bias
    return KernelInvocation("conv2d", scope, (IMAGE,), IMAGE, "float32", params, flops("conv2d", [IMAGE], IMAGE, params), moved)


def pointwise(kind: str, operands: int = 1, shape: Shape = IMAGE) -> KernelInvocation:
    moved = 4 * numel(shape) * (operands + 1)
    return KernelInvocation(kind, kind, (shape,) * operands, shape, "float32", {}, numel(shape), moved)


def product(one: Shape, other: Shape, bias: bool = False) -> KernelInvocation:
    out = (*one[:-1], other[-1])
    moved = 4 * (numel(one) + numel(other) + numel(out))
    params: dict[str, Any] = {"m": one[-2], "k": one[-1], "n": other[-1], "batch": numel(one[:-2]), "bias": bias}
    return KernelInvocation("matmul", "product", (one, other), out, "float32", params, 2 * numel(out) * one[-1], moved)


def wired(*launches: tuple[KernelInvocation, tuple[int, ...]]) -> Network:
    """A network of launches, each with the numbers of those that write what it reads."""
    return msgspec.structs.replace(
        network(*(launch for launch, _ in launches)), reads=tuple(writers for _, writers in launches)
    )


def kinds(engine: Network) -> list[str]:
    return [
        str(launch.params["kinds"]) if launch.kind == "fused_pointwise" else "+".join(
            [launch.kind, *([str(launch.params["epilogue"])] if "epilogue" in launch.params else [])]
        )
        for launch in engine.launches
    ]  # fmt: skip


def test_a_norm_is_folded_and_leaves_a_bias() -> None:
    (made,) = as_engine(wired((convolution(), (-1,)), (pointwise("batch_norm"), (0,)))).launches
    assert made.kind == "conv2d" and made.params["bias"] is True
    assert made.bytes == CONVOLUTION_BYTES + 4 * 16
    assert made.flops == convolution(bias=True).flops


def test_a_sum_and_an_activation_go_with_the_convolution_that_comes_last() -> None:
    block = (
        (convolution(scope="a"), (-1,)), (pointwise("batch_norm"), (0,)),
        (convolution(scope="b"), (-1,)), (pointwise("batch_norm"), (2,)),
        (pointwise("add", 2), (1, 3)), (pointwise("relu"), (4,)),
    )  # fmt: skip
    engine = as_engine(wired(*block))
    assert kinds(engine) == ["conv2d", "conv2d_add_relu"]
    assert engine.reads == ((-1,), (-1, 0))
    assert engine.launches[1].bytes == CONVOLUTION_BYTES + 4 * 16 + IMAGE_BYTES
    assert engine.launches[1].scope == "b + batch_norm + add + relu"
    assert engine.runtime == "TensorRT"


@pytest.mark.parametrize(
    ("behind", "wanted"),
    [
        (["hardtanh"], ["conv2d+hardtanh"]),
        (["clamp"], ["conv2d+hardtanh"]),
        (["leaky_relu"], ["conv2d+leaky_relu"]),
        (["relu", "relu"], ["conv2d_relu", "relu"]),
        (["silu"], ["conv2d", "silu"]),
        (["sigmoid", "exp"], ["conv2d", "sigmoid+exp"]),
    ],
)
def test_what_a_convolution_takes_in(behind: list[str], wanted: list[str]) -> None:
    chain = [(pointwise(kind), (number,)) for number, kind in enumerate(behind)]
    assert kinds(as_engine(wired((convolution(bias=True), (-1,)), *chain))) == wanted


def test_what_others_read_is_written_before_it_is_changed() -> None:
    shared = wired((convolution(), (-1,)), (pointwise("relu"), (0,)), (pointwise("exp"), (0,)))
    assert kinds(as_engine(shared)) == ["conv2d", "relu", "exp"]


def test_products_around_a_softmax_are_attention() -> None:
    query, key, value = (2, 4, 8, 16), (2, 4, 16, 8), (2, 4, 8, 16)
    scores = (2, 4, 8, 8)
    parts = (
        (product(query, key), (-1, -1)), (pointwise("mul", shape=scores), (0,)), (pointwise("add", 2, scores), (1, -1)),
        (pointwise("softmax", shape=scores), (2,)), (product(scores, value), (3, -1)),
    )  # fmt: skip
    (made,) = as_engine(wired(*parts), "float16").launches
    assert made.kind == "attention" and made.output == (2, 4, 8, 16)
    assert made.inputs == (query, key, scores, value)
    assert made.bytes == 2 * sum(map(numel, (query, key, scores, value, made.output)))
    assert made.flops == sum(launch.flops for launch, _ in parts)
    assert kinds(as_engine(wired(*parts))) == ["matmul", "mul+add", "softmax", "matmul"]


def test_a_softmax_that_is_not_between_products_stays() -> None:
    shape = (4, 8)
    assert kinds(as_engine(wired((product((4, 16), (16, 8)), (-1, -1)), (pointwise("softmax", shape=shape), (0,))))) == [
        "matmul", "softmax",
    ]  # fmt: skip


def test_a_product_takes_in_its_bias_and_nothing_else() -> None:
    bias = msgspec.structs.replace(pointwise("add", 2, (4, 8)), inputs=((4, 8), (8,)))
    engine = as_engine(wired((product((4, 16), (16, 8)), (-1, -1)), (bias, (0, -1))))
    (made,) = engine.launches
    assert made.kind == "matmul" and made.params["bias"] is True and made.inputs == ((4, 16), (16, 8))
    assert engine.reads == ((-1, -1),)
    other = wired((product((4, 16), (16, 8)), (-1, -1)), (pointwise("add", 2, (4, 8)), (0, -1)))
    assert kinds(as_engine(other)) == ["matmul", "add"]


def test_means_over_images_are_pools() -> None:
    mean = KernelInvocation("mean", "", (IMAGE,), (1, 16, 1, 1), "float32", {"dim": (2, 3), "keepdim": True}, 1, 1)
    (made,) = as_engine(wired((mean, (-1,)))).launches
    assert (made.kind, made.params) == ("avg_pool2d", {"kernel_size": (8, 8), "stride": (1, 1), "padding": (0, 0)})
    rows = msgspec.structs.replace(mean, output=(1, 16, 8, 1), params={"dim": (3,), "keepdim": True})
    assert kinds(as_engine(wired((rows, (-1,))))) == ["mean"]


def test_half_precision_halves_bytes_and_copies_the_image_that_is_handed_in() -> None:
    plain = wired((convolution(), (-1,)), (pointwise("exp"), (0,)), (convolution(), (-1,)))
    full, half = as_engine(plain), as_engine(plain, "float16")
    assert kinds(half) == ["clone", *kinds(full)]
    assert [launch.dtype for launch in half.launches] == ["float16"] * 4
    assert [2 * launch.bytes for launch in half.launches[1:]] == [launch.bytes for launch in full.launches]
    assert half.reads == ((-1,), (0,), (1,), (-1,))


def sized(kind: str, shapes: list[Shape], out: Shape, **params: Any) -> KernelInvocation:
    moved = 4 * sum(map(numel, (*shapes, out)))
    return KernelInvocation(kind, kind, tuple(shapes), out, "float32", params, numel(out), moved)


def filters(channels: int, made: int, side: int = 8, *, kernel: int = 1, groups: int = 1) -> KernelInvocation:
    weight = (made, channels // groups, kernel, kernel)
    alike = {**WEIGHTS, "weight": weight, "bias": True, "padding": (kernel // 2, kernel // 2), "groups": groups}
    return sized("conv2d", [(1, channels, side, side)], (1, made, side, side), **alike)


def swish(channels: int) -> KernelInvocation:
    return sized("silu", [(1, channels, 8, 8)], (1, channels, 8, 8))


def half(*launches: tuple[KernelInvocation, tuple[int, ...]]) -> list[str]:
    """The kinds of an engine in half precision behind some layers that are the same everywhere: copy, convolution, silu."""
    before = [(filters(3, 16), (-1,)), (swish(16), (0,))]
    made = kinds(as_engine(wired(*before, *launches), "float16"))
    assert made[:3] == ["clone", "conv2d", "silu"]  # the image's own convolution takes in no activation but a relu
    return made[3:]


def test_in_half_precision_a_convolution_takes_in_its_activation_and_the_sum_behind_it() -> None:
    add = sized("add", [(1, 16, 8, 8)] * 2, (1, 16, 8, 8))
    bottleneck = [(filters(16, 16, kernel=3), (1,)), (swish(16), (2,)), (add, (1, 3))]
    assert half(*bottleneck) == ["conv2d+silu+add"]
    assert half((filters(16, 16, kernel=3, groups=16), (1,)), (swish(16), (2,))) == ["conv2d", "silu"]


def test_parts_of_a_tensor_are_copied_to_where_they_are_convolved_and_joined() -> None:
    """YOLOv8's and YOLO11's first block of its kind: convolution, copy, two convolutions, three copies, convolution."""
    add, part = sized("add", [(1, 8, 8, 8)] * 2, (1, 8, 8, 8)), (1, 8, 8, 8)
    block = [
        (filters(16, 16), (1,)), (swish(16), (2,)),
        (filters(8, 8, kernel=3), (3,)), (swish(8), (4,)), (filters(8, 8, kernel=3), (5,)), (swish(8), (6,)), (add, (3, 7)),
        (sized("cat", [part] * 3, (1, 24, 8, 8), dim=1), (3, 3, 8)), (filters(24, 16), (9,)), (swish(16), (10,)),
    ]  # fmt: skip
    own = "conv2d+silu"
    assert half(*block) == [own, "clone", own, "conv2d+silu+add", "clone", "clone", "clone", own]


def test_convolutions_of_one_tensor_are_one_and_what_is_activated_apart_needs_no_copy_to_be_joined() -> None:
    """YOLO11's inner block: two convolutions side by side, each activation apart; what ends in a sum is copied."""
    add, side = sized("add", [(1, 8, 8, 8)] * 2, (1, 8, 8, 8)), (1, 8, 8, 8)
    block = [
        (filters(16, 8), (1,)), (swish(8), (2,)), (filters(8, 8, kernel=3), (3,)), (swish(8), (4,)), (add, (3, 5)),
        (filters(16, 8), (1,)), (swish(8), (7,)),
        (sized("cat", [side] * 2, (1, 16, 8, 8), dim=1), (6, 8)), (filters(16, 16), (9,)),
    ]  # fmt: skip
    assert half(*block) == ["conv2d", "silu", "conv2d+silu+add", "silu", "clone", "conv2d"]
    (joined,) = [
        launch for launch in as_engine(wired(*_after(block))).launches if launch.output[1] == 16 and "||" in launch.scope
    ]
    assert joined.params["weight"] == (16, 16, 1, 1) and joined.inputs == ((1, 16, 8, 8),)
    assert joined.bytes == 4 * (16 * 64 + 2 * 8 * 64)


def _after(block: list[tuple[KernelInvocation, tuple[int, ...]]]) -> list[tuple[KernelInvocation, tuple[int, ...]]]:
    return [(filters(3, 16), (-1,)), (swish(16), (0,)), *block]


def test_what_pools_and_resizes_read_or_make_is_copied_to_where_it_is_joined() -> None:
    image, large = (1, 16, 8, 8), (1, 16, 16, 16)
    pool = sized("max_pool2d", [image], image, kernel_size=(5, 5), stride=(1, 1), padding=(2, 2))
    pyramid = [
        (filters(16, 16), (1,)), (pool, (2,)), (pool, (3,)), (sized("cat", [image] * 3, (1, 48, 8, 8), dim=1), (2, 3, 4)),
        (filters(48, 16), (5,)),
    ]  # fmt: skip
    assert half(*pyramid) == ["conv2d", "max_pool2d", "max_pool2d", "clone", "clone", "conv2d"]
    up = sized("upsample_nearest2d", [image], large)
    wide = [
        (filters(16, 16, 16), (-1,)), (filters(16, 16), (1,)), (up, (3,)),
        (sized("cat", [large] * 2, (1, 32, 16, 16), dim=1), (4, 2)), (filters(32, 8, 16), (5,)),
    ]  # fmt: skip
    assert half(*wide)[-4:] == ["conv2d", "upsample_nearest2d", "clone", "conv2d"]


def test_a_join_is_no_layer_and_what_two_joins_read_is_copied_once() -> None:
    side, both = (1, 16, 8, 8), sized("cat", [(1, 16, 8, 8)] * 2, (1, 32, 8, 8), dim=1)
    fire = [(filters(16, 16, kernel=1), (1,)), (filters(16, 16, kernel=3), (1,)), (both, (2, 3)), (filters(32, 8), (4,))]
    assert half(*fire) == ["conv2d"] * 3
    engine = as_engine(wired(*_after([*fire, (both, (2, 3)), (filters(32, 4, kernel=3), (6,))])), "float16")
    assert kinds(engine)[3:] == ["conv2d", "conv2d", "conv2d", "clone", "clone", "conv2d"]
    assert engine.reads[5] == (4,) and engine.reads[-1] == (7,) and engine.launches[6].inputs == (side,)


def test_alexnets_engine_has_the_layers_that_were_published() -> None:
    model = decompose(REFERENCE / "alexnet.pt", [parse_input("1x3x224x224")], optimized=True)
    convolutions = ["conv2d_relu", "max_pool2d", "conv2d_relu", "max_pool2d", *["conv2d_relu"] * 3, "max_pool2d"]
    wanted = ["clone", *convolutions, "clone", "matmul+relu", "matmul+relu", "matmul"]
    assert kinds(as_engine(model, "float16")) == wanted


def test_what_cannot_be_fused_is_refused() -> None:
    with pytest.raises(ModelError, match="decompose the model's file again"):
        as_engine(network(convolution()))
    engine = as_engine(wired((convolution(), (-1,))))
    with pytest.raises(ModelError, match="listed as TensorRT launches it already"):
        as_engine(engine)
    assert as_engine(network()).calls == ()


@pytest.mark.parametrize("lacking", ["weight", "stride"])
def test_a_list_by_others_that_lacks_something_is_refused_in_one_line(lacking: str) -> None:
    own = convolution()
    torn = msgspec.structs.replace(own, params={name: value for name, value in own.params.items() if name != lacking})
    with pytest.raises(ModelError, match="a launch lacks a member of its kind") as caught:
        as_engine(wired((pointwise("exp"), (-1,)), (torn, (0,)), (torn, (0,))))
    assert "\n" not in str(caught.value)


def test_the_command_line_lists_an_engine_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["decompose", str(REFERENCE / "resnet18.pt"), "--input", "1x3x224x224"]
    assert main([*asked, "--as", "engine-half"]) == 0
    out = capsys.readouterr().out
    assert "TensorRT" in out and "conv2d_add_relu" in out and "batch_norm" not in out
    assert main([*asked, "--as", "engine-int8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["launches"][1]["dtype"] == "int8"
    assert main([*asked, "--as", "engine", "--fused"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_calibrated_engine_runs_convolutions_and_products_in_8_bits() -> None:
    model = decompose(REFERENCE / "resnet18.pt", [parse_input("1x3x224x224")], optimized=True)
    half, eight = as_engine(model, "float16"), as_engine(model, "int8")
    assert kinds(eight) == kinds(half) and eight.reads == half.reads
    weighed = [launch.dtype for launch in eight.launches if launch.kind.startswith(("conv2d", "matmul"))]
    assert set(weighed) == {"int8"} and len(weighed) == 21
    assert sum(launch.bytes for launch in eight.launches) == pytest.approx(
        sum(launch.bytes for launch in half.launches) / 2, rel=0.05
    )


def test_attention_of_a_calibrated_engine_stays_in_half_precision() -> None:
    parts = [
        (product((4, 16), (16, 8)), (-1, -1)), (pointwise("softmax", shape=(4, 8)), (0,)), (product((4, 8), (8, 4)), (1, -1)),
    ]  # fmt: skip
    made = as_engine(wired(*parts), "int8").launches
    assert {launch.dtype for launch in made if launch.kind != "matmul"} <= {"float16"}


@pytest.mark.shared_data
@pytest.mark.parametrize(("name", "most"), [("resnet18", 1), ("mobilenet_v2", 0)])
def test_the_rules_make_the_layers_of_engines_that_were_built(name: str, most: int) -> None:
    sample = SHARED_DATA / "tensorrt-layer-info" / f"{name}_fp16.graph.json"
    if not sample.is_file():
        pytest.skip(f"no sample engines at {Path(sample).parent}")
    built = decompose(sample, []).launches
    model = decompose(REFERENCE / f"{name}.pt", [parse_input("1x3x224x224")], optimized=True)
    made = as_engine(model, "float16").launches
    assert len(made) == len(built)

    def compared(launch: KernelInvocation) -> tuple[object, ...]:
        return launch.kind, launch.inputs, launch.output, launch.dtype, launch.params, launch.flops

    other = [one.scope for one, own in zip(built, made, strict=True) if compared(one) != compared(own)]
    # ResNet-18's last product, of one row, became a reduction of Myelin's.
    assert len(other) == most and all("MulSumAdd" in scope for scope in other)
    assert [own.bytes for own in made] == pytest.approx([one.bytes for one in built], rel=0.002)
