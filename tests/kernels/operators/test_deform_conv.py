# SPDX-License-Identifier: Apache-2.0
"""torchvision's deformable convolution, of which PyTorch knows no shapes by itself."""

from __future__ import annotations

import io

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import ShapeError
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.tests.support.models.handmade import archive, forward

CALL = "ops.torchvision.deform_conv2d(x, w, o, m, None, 2, 2, 1, 1, 1, 1, 1, 1, True)"
MODEL = archive(forward(f"return {CALL}", arguments="x: Tensor, w: Tensor, o: Tensor, m: Tensor"))


def test_its_products_are_those_of_a_plain_one_and_it_reads_offsets_and_mask_too() -> None:
    texts = ("1x3x8x8", "4x3x3x3", "1x18x4x4", "1x9x4x4")
    (launch,) = decompose(io.BytesIO(MODEL), [parse_input(text) for text in texts]).launches
    assert (launch.kind, launch.inputs, launch.output) == (
        "deform_conv2d", ((1, 3, 8, 8), (1, 18, 4, 4), (1, 9, 4, 4)), (1, 4, 4, 4)
    )  # fmt: skip
    assert launch.flops == 2 * 4 * 16 * 27
    assert launch.bytes == 4 * (3 * 64 + 18 * 16 + 9 * 16 + 4 * 27 + 4 * 16)


def test_offsets_for_another_size_are_refused() -> None:
    with pytest.raises(ShapeError, match="deform_conv2d to 4x4 with offsets of shape 1x18x8x8"):
        decompose(io.BytesIO(MODEL), [parse_input(text) for text in ("1x3x8x8", "4x3x3x3", "1x18x8x8", "1x9x4x4")])
