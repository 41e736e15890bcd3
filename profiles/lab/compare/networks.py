# SPDX-License-Identifier: Apache-2.0
"""Networks that others measured and that are none of the reference networks, as launches that say what they read."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from ....kernels.network import KernelInvocation, Network, Shape, TensorSpec
from ...reference import reference_network

_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride of ResNet-50
_EXPANSION = 4


class _Writer:
    """Launches in order, and who wrote what each reads."""

    def __init__(self) -> None:
        self.launches: list[KernelInvocation] = []
        self.reads: list[tuple[int, ...]] = []

    def launch(self, kind: str, output: Shape, params: dict[str, Any], *inputs: int, given: Shape = ()) -> int:
        shapes = tuple(self.launches[number].output if number >= 0 else given for number in inputs)
        self.launches.append(KernelInvocation(kind, "", shapes, output, "float32", params))
        self.reads.append(inputs)
        return len(self.launches) - 1

    def convolution(self, source: int, image: Shape, filters: int, kernel: int, stride: int) -> int:
        """A convolution and its batch norm."""
        batch, channels, side, _ = image
        pair = {"stride": (stride, stride), "padding": (kernel // 2, kernel // 2), "dilation": (1, 1)}
        out = (batch, filters, *((side - 1) // stride + 1,) * 2)
        params = {"weight": (filters, channels, kernel, kernel), "bias": False, "groups": 1, **pair}
        made = self.launch("conv2d", out, params, source, given=image)
        return self.launch("batch_norm", out, {"affine": True}, made)

    def relu(self, source: int) -> int:
        return self.launch("relu", self.launches[source].output, {}, source)

    def shape(self, number: int) -> Shape:
        return self.launches[number].output


@lru_cache(maxsize=8)
def resnet50(batch: int = 1) -> Network:
    """ResNet-50 on images of 224 pixels, its stride in the convolutions of 3x3."""
    write = _Writer()
    image = (batch, 3, 224, 224)
    last = write.relu(write.convolution(-1, image, 64, 7, 2))
    window = {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1)}
    last = write.launch("max_pool2d", (batch, 64, 56, 56), window, last)
    for width, blocks, first in _STAGES:
        for block in range(blocks):
            stride, before = first if block == 0 else 1, last
            inner = write.relu(write.convolution(before, write.shape(before), width, 1, 1))
            inner = write.relu(write.convolution(inner, write.shape(inner), width, 3, stride))
            inner = write.convolution(inner, write.shape(inner), _EXPANSION * width, 1, 1)
            if block == 0:
                before = write.convolution(before, write.shape(before), _EXPANSION * width, 1, stride)
            last = write.relu(write.launch("add", write.shape(inner), {}, inner, before))
    last = write.launch("mean", (batch, 2048), {"dim": (2, 3), "keepdim": False}, last)
    write.launch("matmul", (batch, 1000), {"m": batch, "k": 2048, "n": 1000, "batch": 1, "bias": True}, last)
    return Network("resnet50", (TensorSpec(image),), tuple(write.launches), None, tuple(write.reads))


def folded(network: Network, dtype: str = "float32") -> Network:
    """A network whose batch norms are folded into its convolutions, in an element type."""
    kept = (call for call in network.launches if call.kind != "batch_norm")
    return Network(network.name, network.inputs, tuple(replace(call, dtype=dtype) for call in kept))


@lru_cache(maxsize=8)
def inception_v3(batch: int) -> Network:
    """Inception V3 as a frozen graph runs it."""
    return folded(reference_network("inception_v3", batch))
