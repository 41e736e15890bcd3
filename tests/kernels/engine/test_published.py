# SPDX-License-Identifier: Apache-2.0
"""What TensorRT would fuse, against lists of layers that others published of engines that it built.

The lists are told here by what each layer does, in its order; layers that took no time, conversions between layouts and what
post-processes boxes are left out. The networks are drawn as their files are listed, with a few channels on small images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from jetdvfs.kernels.engine.fusing import as_engine
from jetdvfs.kernels.kinds import flops
from jetdvfs.kernels.network import KernelInvocation, Network, Shape, numel, tensor_bytes
from jetdvfs.tests.support.profiles.analytic import network


class Sketch:
    """A network that is drawn launch by launch; each is known by its number."""

    def __init__(self, *shape: int) -> None:
        self.given: Shape = shape
        self.launches: list[KernelInvocation] = []
        self.reads: list[tuple[int, ...]] = []

    def shape(self, number: int) -> Shape:
        return self.launches[number].output if number >= 0 else self.given

    def dtype(self, number: int) -> str:
        return self.launches[number].dtype if number >= 0 else "float32"

    def add(
        self, kind: str, reads: Sequence[int], out: Shape, *, dtype: str = "", weights: Sequence[Shape] = (), **params: Any
    ) -> int:
        inputs = [*map(self.shape, reads), *weights]
        own = dtype or self.dtype(reads[0])
        moved = sum(tensor_bytes(numel(self.shape(number)), self.dtype(number)) for number in reads)
        moved += tensor_bytes(numel(out), own) + 4 * sum(map(numel, weights))
        work = numel(out) if kind not in ("conv2d", "matmul") else flops(kind, inputs, out, params)
        self.launches.append(KernelInvocation(kind, kind, tuple(inputs), out, own, params, work, moved))
        self.reads.append((*reads, *[-1] * len(weights)))
        return len(self.launches) - 1

    def conv(
        self, x: int, filters: int, kernel: int = 1, stride: int = 1, *, groups: int = 1, of: int = 0, dtype: str = ""
    ) -> int:
        """A convolution, of so many of its tensor's channels where that is said."""
        batch, channels, *sides = self.shape(x)
        channels = of or channels
        out = (batch, filters, *((side - 1) // stride + 1 for side in sides))
        params: dict[str, Any] = {"weight": (filters, channels // groups, kernel, kernel), "bias": True, "groups": groups}
        params |= {"stride": (stride,) * 2, "padding": (kernel // 2,) * 2, "dilation": (1, 1)}
        number = self.add("conv2d", [x], out, dtype=dtype, **params)
        self._reads(number, (batch, channels, *sides))
        return number

    def _reads(self, number: int, *shapes: Shape) -> None:
        self.launches[number] = replace(self.launches[number], inputs=shapes)

    def then(self, kind: str, *reads: int, dtype: str = "", parts: Sequence[Shape] = ()) -> int:
        """A launch that keeps the shape of what it reads, or of the parts of that which are said."""
        number = self.add(kind, reads, self.shape(reads[0]), dtype=dtype)
        if parts:
            self._reads(number, *parts)
        return number

    def silu(self, x: int, filters: int, kernel: int = 1, stride: int = 1, of: int = 0) -> int:
        return self.then("silu", self.conv(x, filters, kernel, stride, of=of))

    def pool(self, x: int, kernel: int, stride: int) -> int:
        batch, channels, *sides = self.shape(x)
        out = (batch, channels, *((side - 1) // stride + 1 for side in sides))
        window: dict[str, Any] = {"kernel_size": (kernel,) * 2, "stride": (stride,) * 2, "padding": (kernel // 2,) * 2}
        return self.add("max_pool2d", [x], out, **window)

    def cat(self, *reads: int, parts: Sequence[Shape] = ()) -> int:
        """Tensors joined by their channels; of some only the parts that are said."""
        shapes = [part or self.shape(number) for number, part in zip(reads, parts or [()] * len(reads), strict=True)]
        out = (shapes[0][0], sum(shape[1] for shape in shapes), *shapes[0][2:])
        number = self.add("cat", reads, out, dim=1)
        self._reads(number, *shapes)
        return number

    def mean(self, x: int) -> int:
        return self.add("mean", [x], (*self.shape(x)[:2], 1, 1), dim=(2, 3), keepdim=True)

    def linear(self, x: int, n: int, *, rows: Shape = (), dtype: str = "") -> int:
        shape = rows or self.shape(x)
        params = {"m": shape[-2], "k": shape[-1], "n": n, "batch": numel(shape[:-2]), "bias": True}
        number = self.add("matmul", [x], (*shape[:-1], n), weights=[(shape[-1], n)], dtype=dtype, **params)
        self._reads(number, shape, (shape[-1], n))
        return number

    def network(self) -> Network:
        made = network(*self.launches)
        return Network(made.name, made.inputs, made.calls, reads=tuple(self.reads))

    def engine(self, *, half: bool = False) -> list[str]:
        """The layers by their kinds, with what is fused to them."""
        return [told(launch) for launch in as_engine(self.network(), "float16" if half else "float32").launches]


def told(launch: KernelInvocation) -> str:
    names = {"conv2d": "conv", "fused_pointwise": str(launch.params.get("kinds")), "clone": "copy", "matmul": "product"}
    fused = "+".join(str(launch.params[member]) for member in ("epilogue", "prologue") if member in launch.params)
    name = names.get(launch.kind, launch.kind.replace("conv2d_", "conv+").replace("_relu", "+relu"))
    return "+".join(filter(None, (name, fused)))


def bits(sketch: Sketch, x: int) -> int:
    return sketch.then("quantize_per_tensor", x, dtype="qint8")


def resnet(sketch: Sketch, x: int, stages: Sequence[int], *, deep: bool) -> int:
    """The blocks of a residual network in floating point, as PyTorch runs them: the shortcut's convolution last."""
    for stage, blocks in enumerate(stages):
        for block in range(blocks):
            stride, before, width = 2 if stage and not block else 1, x, 16 << stage
            if deep:
                y = sketch.then("relu", sketch.conv(x, width))
                y = sketch.then("relu", sketch.conv(y, width, 3, stride))
                y = sketch.conv(y, 4 * width)
            else:
                y = sketch.then("relu", sketch.conv(x, width, 3, stride))
                y = sketch.conv(y, width, 3)
            if sketch.shape(y) != sketch.shape(x):
                before = sketch.conv(x, sketch.shape(y)[1], 1, stride)
            x = sketch.then("relu", sketch.then("add", y, before))
    return x


def test_resnet_50_of_tensorflow_in_full_and_half_precision() -> None:
    """NVIDIA/TensorRT, trt-engine-explorer, examples/tensorflow/resnet/RTX-3090 (fp16, fp32)."""
    drawn = Sketch(8, 3, 64, 64)
    x = drawn.pool(drawn.then("relu", drawn.conv(-1, 16, 7, 2)), 3, 2)
    x = drawn.mean(resnet(drawn, x, (3, 4, 6, 3), deep=True))
    drawn.then("softmax", drawn.linear(x, 100, rows=(8, 512)))
    first = ["conv+relu", "conv+relu", "conv", "conv+add+relu"]
    other = ["conv+relu", "conv+relu", "conv+add+relu"]
    blocks = [layer for count in (3, 4, 6, 3) for layer in first + other * (count - 1)]
    layers = ["conv+relu", "max_pool2d", *blocks, "avg_pool2d", "product", "softmax"]
    assert drawn.engine() == layers
    assert drawn.engine(half=True) == ["copy", *layers]


def quantised_resnet_18(*, shortcuts: bool) -> list[str]:
    """ResNet-18 as NVIDIA's toolkit quantises it: each convolution's input, and what is added if it is said."""
    drawn = Sketch(32, 3, 64, 64)
    now = "qint8" if shortcuts else ""
    x = drawn.conv(bits(drawn, -1), 16, 7, 2, dtype=now or "float32")
    x = drawn.pool(drawn.then("relu", x, dtype=now), 3, 2)
    for stage in range(4):
        for block in range(2):
            stride, last = 2 if stage and not block else 1, stage == 3 and block == 1
            narrow = x if drawn.dtype(x) == "qint8" else bits(drawn, x)
            y = drawn.then("relu", drawn.conv(narrow, 16 << stage, 3, stride, dtype="qint8"), dtype="qint8")
            before = narrow
            if stride == 2:
                before = drawn.conv(narrow, 16 << stage, 1, 2, dtype=now or "float32")
            if shortcuts:
                before = drawn.then("dequantize", before, dtype="float32")
            elif stride == 1:
                before = x
            y = drawn.conv(y, 16 << stage, 3, dtype="float32")
            x = drawn.then("relu", drawn.then("add", y, before))
            if shortcuts and not last:
                x = bits(drawn, x)
    x = bits(drawn, drawn.mean(x))
    drawn.linear(x, 100, rows=(32, 128), dtype="float32")
    return drawn.engine(half=True)


def test_resnet_18_in_8_bits() -> None:
    """The same, examples/pytorch/resnet/A100/qat: what is added stays in floating point, so each sum is converted."""
    plain, down = ["conv+relu", "conv+add+relu"], ["conv+relu", "conv", "conv+add+relu"]
    blocks = [plain, plain, down, plain, down, plain, down, plain]
    converted = [layer for block in blocks for layer in ["quantize_per_tensor", *block]]
    layers = ["quantize_per_tensor", "conv+relu", "max_pool2d", *converted, "avg_pool2d", "quantize_per_tensor", "product"]
    assert quantised_resnet_18(shortcuts=False) == layers


def test_resnet_18_in_8_bits_with_shortcuts() -> None:
    """The same, examples/pytorch/resnet/A100/qat-residual: all stays in 8 bits but the last sum, which nothing converts."""
    plain, down = ["conv+relu", "conv+add+relu"], ["conv+relu", "conv", "conv+add+relu"]
    blocks = [layer for block in (plain, plain, down, plain, down, plain, down) for layer in block]
    layers = ["quantize_per_tensor", "conv+pool2d+relu+pool2d", *blocks, "conv+relu", "dequantize", "conv+add+relu"]
    assert quantised_resnet_18(shortcuts=True) == [*layers, "avg_pool2d", "quantize_per_tensor", "product"]


def test_mobilenet_v2_in_8_bits() -> None:
    """The same, tests/inputs/mobilenet.qat: what two layers read, and what ends in a sum, is converted by a layer."""
    drawn = Sketch(1, 3, 64, 64)

    def clipped(x: int, filters: int, kernel: int = 1, stride: int = 1, groups: int = 1, dtype: str = "qint8") -> int:
        made = drawn.conv(x, filters, kernel, stride, groups=groups, dtype=dtype)
        return drawn.then("hardtanh", made, dtype=dtype)

    wanted = ["quantize_per_tensor", "conv+hardtanh", "conv+hardtanh", "conv"]
    x = clipped(clipped(bits(drawn, -1), 32, 3, 2), 32, 3, 1, 32)
    narrow = drawn.conv(x, 16, dtype="qint8")
    for stage, repeats in enumerate((2, 3, 4, 3, 3, 1)):
        for repeat in range(repeats):
            stride, width = 2 if not repeat and stage in (0, 1, 2, 4) else 1, 24 + 8 * stage
            alone = repeats == 1
            y = clipped(clipped(narrow, 144), 144, 3, stride, 144)
            y = drawn.conv(y, width, dtype="qint8" if alone else "float32")
            x = y if not repeat else drawn.then("add", y, x)
            narrow = x if alone else bits(drawn, x)
            end = ["conv"] if alone else ["conv" if not repeat else "conv+add", "quantize_per_tensor"]
            wanted += ["conv+hardtanh", "conv+hardtanh", *end]
    x = drawn.mean(clipped(narrow, 320, dtype="float32"))
    drawn.linear(bits(drawn, x), 100, rows=(1, 320), dtype="float32")
    assert drawn.engine(half=True) == [*wanted, "conv+hardtanh", "avg_pool2d", "quantize_per_tensor", "product"]


def split_block(drawn: Sketch, x: int, width: int) -> int:
    """YOLO11's C3k2: a convolution, half of which two others read; both halves and the sum are joined."""
    x = drawn.silu(x, 2 * width)
    batch, _, *sides = drawn.shape(x)
    part = (batch, width, *sides)
    y = drawn.silu(drawn.silu(x, width, 3, of=width), width, 3)
    y = drawn.then("add", y, x, parts=[part] * 2)
    return drawn.silu(drawn.cat(x, x, y, parts=[part] * 3), 2 * width)


def test_yolo_26_in_full_precision() -> None:
    """A list of YOLO26n (version and GPU not said), as far as the pyramid's pools: parts are read where they are."""
    drawn = Sketch(1, 3, 64, 64)
    x = split_block(drawn, drawn.silu(drawn.silu(-1, 16, 3, 2), 32, 3, 2), 16)
    x = drawn.conv(x, 16)
    one = drawn.pool(x, 5, 1)
    two = drawn.pool(one, 5, 1)
    joined = drawn.silu(drawn.cat(x, one, two, drawn.pool(two, 5, 1)), 32)
    drawn.then("add", joined, drawn.then("exp", drawn.conv(-1, 32, 1, 4)))
    block = ["conv", "silu", "conv", "silu", "conv", "silu+add", "copy", "copy", "conv", "silu"]
    pools = ["conv", *["max_pool2d"] * 3, *["copy"] * 3, "conv"]
    assert drawn.engine()[: len(block) + len(pools) + 4] == ["conv", "silu", "conv", "silu", *block, *pools]


def test_yolo_v5_in_half_precision() -> None:
    """A list of YOLOv5s (TensorRT 8, GPU not said), its first blocks: the same but for a sum.

    That engine has the sum behind an activation, with the activation, in a layer of its own, which writes it to where it is
    joined; those of YOLOv8 and YOLO11 have it in the convolution, and a copy.
    """
    drawn = Sketch(10, 3, 64, 64)
    x = drawn.silu(drawn.silu(-1, 32, 6, 2), 64, 3, 2)
    one, two = drawn.silu(x, 32), drawn.silu(x, 32)
    y = drawn.silu(drawn.silu(one, 32), 32, 3)
    drawn.silu(drawn.silu(drawn.cat(drawn.then("add", one, y), two), 64), 128, 3, 2)
    made, around = drawn.engine(half=True), (["copy", "conv", "silu", "conv+silu", "conv"], ["conv+silu"] * 2)
    assert made[:5] == around[0] and made[-2:] == around[1]
    published = ["silu", "silu", "conv+silu", "conv", "silu+add"]
    assert sorted(made[5:-2]) == sorted([*published[:3], "conv+silu+add", "copy"])


def test_yolo_11s_attention_in_full_precision() -> None:
    """A list of YOLO11n from a Jetson (TensorRT 8, full precision): no kernel of attention; convolutions take in sums."""
    drawn = Sketch(1, 16, 8, 8)
    x = drawn.silu(-1, 16)
    y = drawn.conv(x, 48)
    heads: Shape = (1, 2, 64, 8)
    scores = drawn.add("matmul", [y, y], (1, 2, 64, 64), m=64, k=8, n=64, batch=2, bias=False)
    weights = drawn.then("softmax", drawn.then("mul_scalar", scores))
    y = drawn.add("matmul", [weights, y], heads, m=64, k=64, n=8, batch=2, bias=False)
    back = drawn.add("clone", [y], (1, 16, 8, 8))
    y = drawn.then("add", drawn.conv(back, 16, 3, groups=16), back)
    y = drawn.then("add", drawn.conv(y, 16), x)
    drawn.then("add", drawn.conv(drawn.silu(y, 32), 16), y)
    attention = ["product", "mul_scalar", "softmax", "product", "copy"]
    assert drawn.engine() == ["conv", "silu", "conv", *attention, "conv+add", "conv+add", "conv", "silu", "conv+add"]


def test_squeeze_and_excitation_as_exporters_take_it_apart() -> None:
    """MobileNetV3's block in a list of YOLOv5's issue 12248: products end in a relu and a clip, what follows is pointwise."""
    drawn = Sketch(1, 16, 8, 8)
    image = drawn.conv(drawn.conv(-1, 16), 16, 3, groups=16)
    x = drawn.then("relu", drawn.linear(drawn.mean(image), 4, rows=(1, 16)))
    x = drawn.then("clamp", drawn.then("add_scalar", drawn.linear(x, 16)))
    x = drawn.then("mul", image, drawn.then("div_scalar", x), parts=[(1, 16, 8, 8), (1, 16, 1, 1)])
    x = drawn.then("mul", x, drawn.then("div_scalar", drawn.then("clamp", drawn.then("add_scalar", x))))
    drawn.then("add", drawn.conv(x, 16), -1)
    layers = drawn.engine()
    assert layers[:2] == ["conv", "conv"] and layers[-1] == "conv+add"
    assert layers[2:6] == ["avg_pool2d", "product+relu", "product+hardtanh", "div_scalar"]
    assert layers[6:-1] == ["mul+add_scalar+clamp+div_scalar+mul"]


def test_mish_and_other_activations_stay_behind_convolutions_in_full_precision() -> None:
    """slim-neck-by-gsconv's issue 18: a softplus, a tanh and a product as one pointwise layer."""
    drawn = Sketch(1, 16, 8, 8)
    x = drawn.conv(-1, 16, 3)
    drawn.then("mul", x, drawn.then("tanh", drawn.then("softplus", x)))
    assert drawn.engine() == ["conv", "softplus+tanh+mul"]


def test_a_vision_transformer_in_half_precision() -> None:
    """DINOv2-small inside RF-DETR (on Turing): seven kernels a block, of which one is for three products."""
    drawn = Sketch(1, 64, 96)
    x = drawn.then("add", drawn.linear(-1, 96), -1)
    for _ in range(2):
        normal = drawn.then("layer_norm", x)
        parts = [drawn.linear(normal, 96) for _ in range(3)]
        heads: Shape = (1, 4, 64, 24)
        scores = drawn.add("matmul", parts[:2], (1, 4, 64, 64), m=64, k=24, n=64, batch=4, bias=False)
        y = drawn.then("softmax", drawn.then("mul_scalar", scores))
        y = drawn.add("matmul", [y, parts[2]], heads, m=64, k=64, n=24, batch=4, bias=False)
        y = drawn.linear(y, 96, rows=(1, 64, 96))
        x = drawn.then("add", drawn.then("mul", y, -1), x)
        y = drawn.linear(drawn.then("layer_norm", x), 384, rows=(64, 96))
        y = drawn.linear(drawn.then("gelu", y, parts=[(1, 64, 384)]), 96, rows=(1, 64, 384))
        x = drawn.then("add", drawn.then("mul", y, -1), x)
    block = ["product", "attention", "product", "layer_norm+mul+add", "product+gelu", "product", "layer_norm+mul+add"]
    drawn.then("layer_norm", x)
    made = as_engine(drawn.network(), "float16")
    assert [told(launch) for launch in made.launches] == ["product", "layer_norm+add", *block, *block]
    joined, norm = made.launches[2], made.launches[5]
    assert joined.output == (1, 64, 288) and joined.inputs == ((1, 64, 96), (96, 288))
    assert norm.bytes == 2 * 5 * 64 * 96  # reads the product, its scale and the sum so far; writes the sum and the norm


@pytest.mark.parametrize("size", [(1, 16, 1, 1), (16, 1, 1), ()])
def test_norms_that_exporters_take_apart(size: Shape) -> None:
    """DETR's ResNet-50 (farabimahmud/detr-logs-trtexec): frozen norms, as products and sums with constants, are folded."""
    drawn = Sketch(1, 16, 16, 16)
    x = drawn.conv(-1, 16, 3)
    x = drawn.add("mul", [x], drawn.shape(x), weights=[size])
    x = drawn.add("add", [x], drawn.shape(x), weights=[size])
    drawn.then("relu", drawn.then("add", x, -1))
    (made,) = as_engine(drawn.network()).launches
    assert told(made) == "conv+add+relu" and made.params["bias"] is True
    assert made.bytes == 4 * 3 * 16 * 16 * 16


@pytest.mark.parametrize("size", [(1, 1, 16, 16), (1, 16, 16, 16), (16,)])
def test_what_differs_from_pixel_to_pixel_is_not_folded(size: Shape) -> None:
    drawn = Sketch(1, 16, 16, 16)
    x = drawn.conv(-1, 16, 3)
    drawn.add("mul", [x], drawn.shape(x), weights=[size])
    assert drawn.engine() == ["conv", "mul"]


def test_a_sum_of_what_was_converted_before_it_is_a_layer() -> None:
    """TensorRT's guide to quantised networks: a conversion between a convolution and a sum keeps them apart."""
    drawn = Sketch(1, 16, 8, 8)
    x = bits(drawn, -1)
    drawn.then("add", drawn.conv(x, 16, dtype="qint8"), x)
    assert drawn.engine() == ["quantize_per_tensor", "conv", "add"]


def test_a_tensor_is_converted_once() -> None:
    drawn = Sketch(1, 16, 8, 8)
    x = drawn.then("relu", -1)
    for _ in range(2):
        drawn.conv(bits(drawn, x), 16, 3, dtype="qint8", groups=16)
    assert drawn.engine() == ["relu", "quantize_per_tensor", "conv", "conv"]
