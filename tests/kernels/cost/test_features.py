# SPDX-License-Identifier: Apache-2.0
"""What kernel models are told about a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.kernels.cost.features import MODELLED_KINDS, columns, feature_names, feature_rows
from jetdvfs.kernels.errors import CostModelError
from jetdvfs.kernels.network import KernelInvocation
from jetdvfs.tests.support.profiles.analytic import conv2d, matmul, relu

IMAGE = (2, 64, 28, 28)


def image_kernel(kind: str, output: tuple[int, ...] = IMAGE, *, inputs: int = 1, **params: Any) -> KernelInvocation:
    return KernelInvocation(kind, "block", (IMAGE,) * inputs, output, "float32", params, 100_352, 802_816)


def convolution(
    kind: str, image: tuple[int, ...], output: tuple[int, ...], weight: tuple[int, ...], groups: int, **params: Any
) -> KernelInvocation:
    more = {"weight": weight, "groups": groups, "dilation": (1,) * (len(weight) - 2), "bias": True, **params}
    return KernelInvocation(kind, "", (image,), output, "float32", more, 1_000_000, 100_000)


EXAMPLES = {
    "conv2d": conv2d(),
    "batch_norm": image_kernel("batch_norm", affine=True),
    "matmul": matmul(),
    "relu": image_kernel("relu"),
    "hardtanh": image_kernel("hardtanh"),
    "cat": image_kernel("cat", (2, 128, 28, 28), inputs=2, dim=1),
    "max_pool2d": image_kernel(
        "max_pool2d", (2, 64, 14, 14), kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), dilation=(1, 1), ceil_mode=False
    ),
    "avg_pool2d": image_kernel("avg_pool2d", (2, 64, 14, 14), kernel_size=(2, 2), stride=(), padding=(0, 0), ceil_mode=False),
    "adaptive_avg_pool2d": image_kernel("adaptive_avg_pool2d", (2, 64, 7, 7), output_size=(7, 7)),
    "mean": image_kernel("mean", (2, 64, 1, 1), dim=(2, 3), keepdim=True),
    "add": image_kernel("add", inputs=2),
    "clone": image_kernel("clone"),
    "layer_norm": image_kernel("layer_norm", normalized_shape=(28,), affine=True),
    "group_norm": image_kernel("group_norm", groups=8, affine=True),
    "softmax": image_kernel("softmax", dim=1),
    "attention": image_kernel("attention", inputs=3, mask=False, causal=True),
    "conv1d": convolution("conv1d", (2, 64, 100), (2, 32, 50), (32, 64, 3), 1, stride=(2,)),
    "conv3d": convolution("conv3d", (2, 64, 8, 28, 28), (2, 64, 8, 28, 28), (64, 1, 3, 3, 3), 64, stride=(1, 1, 1)),
    "conv_transpose2d": convolution(
        "conv_transpose2d", IMAGE, (2, 32, 56, 56), (64, 8, 2, 2), 4, stride=(2, 2), output_padding=(0, 0)
    ),
}


def named(kernel: KernelInvocation, kind: str | None = None) -> dict[str, float]:
    kind = kind or kernel.kind
    return dict(zip(feature_names(kind), feature_rows(kind, [kernel])[0].tolist(), strict=True))


@pytest.mark.parametrize("kind", MODELLED_KINDS)
def test_every_modelled_kind_has_finite_features_and_leaves_the_clocks_open(kind: str) -> None:
    names, rows = feature_names(kind), feature_rows(kind, [EXAMPLES[kind]] * 3)
    assert names[-3:] == ("cpu_mhz", "gpu_mhz", "emc_mhz")
    assert len(set(names)) == len(names)
    assert rows.dtype == np.float32 and rows.shape == (3, len(names))
    assert np.isnan(rows[:, -3:]).all() and np.isfinite(rows[:, :-3]).all()
    assert (rows[:, :-3] == rows[0, :-3]).all()


def test_work_and_matrix_dimensions_of_a_convolution() -> None:
    features = named(conv2d(64, 56))
    assert features["log2_flops"] == pytest.approx(np.log2(2 * 64 * 56 * 56 * 64 * 9))
    assert features["log2_intensity"] == pytest.approx(features["log2_flops"] - features["log2_bytes"], rel=1e-5)
    assert 2 ** features["log2_m"] == pytest.approx(56 * 56, rel=1e-5)
    assert 2 ** features["log2_k"] == pytest.approx(64 * 9, rel=1e-5)
    assert (features["n_alignment"], features["width_alignment"], features["depthwise"]) == (32, 8, 0)
    assert features["tile_use_128"] == pytest.approx(56 * 56 * 64 / (25 * 128 * 128))


def test_traffic_of_a_convolution_in_tiles() -> None:
    features = named(conv2d(64, 56))
    rows, columns, taps = 56 * 56, 64, 64 * 9
    read_and_written = rows * taps * 1 + taps * columns * 49 + rows * columns  # one column of 64-wide tiles, 49 rows of them
    assert 2 ** features["log2_traffic_64"] == pytest.approx(4 * read_and_written, rel=1e-4)
    assert features["log2_intensity_64"] == pytest.approx(features["log2_flops"] - features["log2_traffic_64"], rel=1e-4)
    image, weights = 64 * 56 * 56, 64 * 64 * 9
    assert features["weight_share"] == pytest.approx(weights / (2 * image + weights))
    assert features["output_share"] == pytest.approx(image / (2 * image + weights))
    assert 2 ** features["log2_unfolding"] == pytest.approx(9, rel=1e-4)
    assert 2 ** features["log2_reread_64"] == pytest.approx((2 * image + 49 * weights) / (2 * image + weights), rel=1e-4)


def test_only_what_winograd_can_do_has_its_tiles() -> None:
    features = named(conv2d(64, 56))
    assert features["winograd"] == 1
    assert 2 ** features["log2_winograd_tiles_4"] == pytest.approx(14 * 14, rel=1e-4)
    assert features["winograd_use_4"] == 1
    depthwise = named(conv2d(64, 56, groups=64))
    assert depthwise["winograd"] == depthwise["log2_winograd_bytes_2"] == 0


def test_depthwise_convolutions_are_told_from_dense_ones() -> None:
    features = named(conv2d(64, 56, groups=64))
    assert (features["depthwise"], features["in_channels_per_group"], features["log2_groups"]) == (1, 1, 6)


def test_unbatched_images_are_batches_of_one() -> None:
    batched = EXAMPLES["max_pool2d"]
    one = replace(batched, inputs=((1, 64, 28, 28),), output=(1, 64, 14, 14))
    assert named(one) == pytest.approx(named(replace(one, inputs=((64, 28, 28),), output=(64, 14, 14))), nan_ok=True)


def test_a_pools_empty_stride_is_its_kernel() -> None:
    features = named(EXAMPLES["avg_pool2d"])
    assert (features["stride_height"], features["stride_width"]) == (2, 2)


def test_a_mean_knows_what_it_reduces() -> None:
    negative = replace(EXAMPLES["mean"], params={"dim": (-1, -2), "keepdim": True})
    assert named(negative) == pytest.approx(named(EXAMPLES["mean"]), nan_ok=True)
    everything = replace(EXAMPLES["mean"], params={"dim": None, "keepdim": False}, output=())
    assert 2 ** named(everything)["log2_reduced"] == pytest.approx(2 * 64 * 28 * 28, rel=1e-5)


def test_convolutions_of_any_dimensions_are_told_as_the_products_they_are() -> None:
    line, depthwise, transposed = (named(EXAMPLES[kind]) for kind in ("conv1d", "conv3d", "conv_transpose2d"))
    assert [line[f"log2_{name}"] for name in "mnk"] == pytest.approx(np.log2([2 * 50, 32, 64 * 3]))
    assert line["stride"] == 2 and line["taps"] == 3 and not line["depthwise"]
    assert depthwise["depthwise"] == 1 and depthwise["taps"] == 27
    assert depthwise["log2_k"] == pytest.approx(np.log2(27)) and depthwise["log2_n"] == 0
    assert [transposed[f"log2_{name}"] for name in "mnk"] == pytest.approx(np.log2([2 * 28 * 28, 8 * 4, 64 / 4]))


def test_norms_are_told_by_what_they_normalise_together() -> None:
    elements = np.log2(np.prod(IMAGE))
    layers, groups, over_channels = (named(EXAMPLES[kind]) for kind in ("layer_norm", "group_norm", "softmax"))
    assert layers["log2_normalized"] == pytest.approx(np.log2(28)) and layers["log2_elements"] == pytest.approx(elements)
    assert groups["log2_normalized"] == pytest.approx(np.log2(64 * 28 * 28 / 8))
    assert over_channels["log2_normalized"] == pytest.approx(np.log2(64)) and over_channels["log2_last"] == layers["log2_last"]


def test_half_precisions_of_one_size_are_told_apart() -> None:
    half, brain = (named(replace(relu(), dtype=dtype)) for dtype in ("float16", "bfloat16"))
    assert half["element_bytes"] == brain["element_bytes"] == 2 and half["bfloat16"] != brain["bfloat16"]


def test_a_model_may_be_told_less_than_is_known() -> None:
    names = feature_names("relu")
    assert columns("relu", names[2:]) == list(range(2, len(names)))
    assert columns("relu", (names[4], names[1], *names[-3:])) == [4, 1, *range(len(names) - 3, len(names))]
    with pytest.raises(
        CostModelError, match=r"relu: its features are not those of this release \(unknown: log2_age; known: log2"
    ):
        columns("relu", ("log2_age", *names))
    with pytest.raises(CostModelError, match="a name twice, or the clocks not at the end"):
        columns("relu", names[::-1])


def test_broadcasting_shows() -> None:
    scaled = KernelInvocation("add", "", (IMAGE, (64, 1, 1)), IMAGE, "float32", {}, 1, 1)
    assert named(scaled)["broadcast"] == 1 and named(EXAMPLES["add"])["broadcast"] == 0


def test_pointwise_kernels_of_any_kind_fit_the_elementwise_family() -> None:
    assert named(relu(kind="silu"), "elementwise") == pytest.approx(named(relu()), nan_ok=True)


def test_kernels_equal_in_shape_but_not_in_work_are_not_mixed_up() -> None:
    assert named(relu())["log2_flops"] != named(replace(relu(), flops=1))["log2_flops"]


def test_unknown_kinds_and_misshapen_kernels_are_refused_by_name() -> None:
    with pytest.raises(CostModelError, match="'lstm' has no features; valid: conv2d, batch_norm"):
        feature_names("lstm")
    with pytest.raises(CostModelError, match=r"conv2d 'stem': .*KeyError\('weight'\)"):
        feature_rows("conv2d", [replace(conv2d(scope="stem"), params={"groups": 1})])
    with pytest.raises(CostModelError, match="max_pool2d 'block'"):
        feature_rows("max_pool2d", [replace(EXAMPLES["max_pool2d"], inputs=((4, 4),))])
    with pytest.raises(CostModelError, match="mean 'block'"):
        feature_rows("mean", [replace(EXAMPLES["mean"], params={"dim": "channels"})])
