# SPDX-License-Identifier: Apache-2.0
"""Calls that exporters of ONNX write out: explained where they are there in full, and called wrong otherwise."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jetdvfs.kernels.network import Network, TensorSpec
from jetdvfs.tests.support.models.handmade_onnx import declared, graph, model, node, tensor
from jetdvfs.tests.zoo import reference
from jetdvfs.tests.zoo.lists import CONV, PICTURE, RELU, launch, listed, ran, within
from jetdvfs.tests.zoo.rewritten import judge_rewritten

pytestmark = pytest.mark.tool


def test_of_onnx_adaptive_means_and_cells_are_explained_where_they_are_written_out_in_full() -> None:
    pool = within("adaptive_avg_pool2d", (1, 2, 2, 4), output=(1, 2, 3, 4))
    picked = [launch(kind, output=(1, 2, 3, 2, 4, 1)) for kind in ("index", "masked_fill")]
    means = [launch("add", output=(1, 2, 3, 4)), launch("div", output=(1, 2, 3, 4))]
    assert judge_rewritten(listed(*picked, *means), ran(pool), {}).why == "adaptive_avg_pool2d written out"
    assert judge_rewritten(listed(*picked, *means, means[0]), ran(pool), {}).verdict == "wrong"
    assert judge_rewritten(listed(*picked, means[0]), ran(pool), {}).verdict == "wrong"

    cell, gates = launch("lstm_cell", output=(3, 16)), launch("add", output=(3, 64))
    parts = [launch(kind, output=(3, 16)) for kind in (*["sigmoid"] * 3, *["mul"] * 3, "add", *["tanh"] * 2)]
    assert judge_rewritten(listed(gates, *parts), ran(cell), {}).why == "lstm_cell written out"
    assert judge_rewritten(listed(*parts, parts[-3]), ran(cell), {}).verdict == "wrong"


def test_of_onnx_an_adaptive_mean_of_windows_of_one_length_is_picked_and_averaged() -> None:
    pool = within("adaptive_avg_pool2d", (1, 2, 8, 8), output=(1, 2, 7, 7))
    picked, mean = launch("index", output=(7, 2, 7, 2, 1, 2)), launch("mean", output=(1, 2, 7, 7))
    assert judge_rewritten(listed(picked, mean), ran(pool), {}).why == "adaptive_avg_pool2d written out"
    even = within("adaptive_avg_pool2d", (1, 2, 14, 14), output=(1, 2, 7, 7))
    plain = launch("avg_pool2d", output=(1, 2, 7, 7))
    assert judge_rewritten(listed(plain), ran(even), {}).why == "adaptive_avg_pool2d written out"
    assert judge_rewritten(listed(plain), ran(pool), {}).verdict == "wrong"
    masked = launch("masked_fill", output=(1, 2, 7, 2, 7, 2))
    assert judge_rewritten(listed(picked, masked, mean), ran(pool), {}).verdict == "wrong"


def test_of_onnx_a_plain_recurrent_layer_is_explained_where_all_its_steps_are_there() -> None:
    layer = within("rnn", (3, 1, 4), (1, 1, 5), output=(3, 1, 5), hidden=5, layers=1, directions=1)
    layer = msgspec.structs.replace(layer, flops=2 * 3 * 4 * 5 + 2 * 3 * 5 * 5)
    before, by_step = launch("matmul", flops=120), launch("matmul", flops=50)
    step = [launch(kind, output=(1, 5)) for kind in ("add", "tanh")]
    parts = [before, *step, by_step, *step, by_step, *step, launch("cat", output=(3, 1, 5))]
    assert judge_rewritten(listed(*parts), ran(layer), {}).why == "rnn written out"
    assert judge_rewritten(listed(*parts, *step), ran(layer), {}).verdict == "wrong"
    assert judge_rewritten(listed(*parts[:3], *parts[4:6], *parts[7:]), ran(layer), {}).verdict == "wrong"
    assert judge_rewritten(listed(*parts, parts[-1]), ran(layer), {}).verdict == "wrong"


def test_of_onnx_a_relu_is_left_out_only_where_the_file_has_a_bound_from_zero_up(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="it counts the nodes of a file; it is not installed")
    bounds, clips = launch("hardtanh"), []
    for lower in (0.0, -1.0):
        nodes = (node("Clip", ["x", "lower", "upper"], ["y"]),)
        weights = tuple(tensor(name, (), struct.pack("<f", number)) for name, number in (("lower", lower), ("upper", 6.0)))
        path = tmp_path / "model.onnx"
        path.write_bytes(model(graph(nodes, (declared("x", PICTURE),), ["y"], weights)))
        clips.append(reference.nodes(path))
    rectifying, below = clips
    assert judge_rewritten(listed(CONV, bounds), ran(CONV, RELU, bounds), rectifying).why == "relu within bounds left out"
    assert judge_rewritten(listed(CONV, bounds), ran(CONV, RELU, bounds), below).verdict == "wrong"
    assert judge_rewritten(listed(CONV, bounds), ran(CONV, bounds, RELU), rectifying).verdict == "wrong"
    assert judge_rewritten(listed(CONV, bounds), ran(RELU, RELU, bounds, CONV), rectifying).verdict == "wrong"
    twice = (listed(CONV, bounds, bounds), ran(CONV, RELU, bounds, RELU, bounds))
    assert judge_rewritten(*twice, rectifying).verdict == "wrong"
    assert judge_rewritten(*twice, {"Clip from zero": 2}).why == "relu within bounds left out"


def test_of_onnx_a_square_is_what_is_multiplied_by_itself() -> None:
    product, square = within("mul", PICTURE, PICTURE), launch("pow_scalar")
    itself, others = (
        Network("made up", (TensorSpec(PICTURE),), (RELU, product), None, ((-1,), by)) for by in ((0, 0), (0, -1))
    )
    assert judge_rewritten(itself, ran(RELU, square), {}).why == "squares written out"
    assert judge_rewritten(others, ran(RELU, square), {}).verdict == "wrong"


def test_of_onnx_windows_are_picked_where_the_module_looks_at_as_many_numbers() -> None:
    row, picked = launch("clone", output=(128,)), within("index", (128,), (3, 8, 8), output=(3, 8, 8))
    pair = Network("made up", (TensorSpec(PICTURE),), (CONV, row, picked), None, ((-1,), (0,), (1,)))
    seen = msgspec.structs.replace(ran(CONV), windows=(192,))
    assert judge_rewritten(pair, seen, {}).why == "windows picked"
    assert judge_rewritten(pair, msgspec.structs.replace(seen, windows=(128,)), {}).verdict == "wrong"
    assert judge_rewritten(pair, ran(CONV), {}).verdict == "wrong"


def test_of_onnx_columns_are_picked_in_two_steps() -> None:
    columns = launch("im2col", output=(1, 72, 16))
    pieces = [launch("constant_pad_nd", output=(1, 8, 6, 6)), launch("index", output=(1, 8, 3, 4, 6))]
    pieces.append(launch("index", output=(1, 8, 3, 4, 3, 4)))
    assert judge_rewritten(listed(*pieces), ran(columns), {}).why == "im2col written out"
    assert judge_rewritten(listed(*pieces[:2], RELU), ran(columns), {}).verdict == "wrong"
    assert judge_rewritten(listed(*pieces, pieces[-1]), ran(columns), {}).verdict == "wrong"


def test_of_onnx_zeros_are_put_around_by_a_convolution_as_large_that_nothing_makes_zeros_for() -> None:
    wide: tuple[int, ...] = (1, 8, 5, 5)
    plain: dict[str, Any] = {"flops": 4096, "bias": False}
    pad = launch("constant_pad_nd", output=wide)
    after = msgspec.structs.replace(launch("conv2d", padding=(0, 0), **plain), inputs=(wide,))
    alone = msgspec.structs.replace(launch("conv2d", padding=(0, 0), **plain), inputs=(wide,))
    assert judge_rewritten(listed(RELU, alone), ran(RELU, pad, after), {}).why == "zeros put around by the convolution"
    small = msgspec.structs.replace(alone, inputs=(PICTURE,))
    assert judge_rewritten(listed(RELU, small), ran(RELU, pad, after), {}).verdict == "wrong"
    assert judge_rewritten(listed(RELU, alone), ran(RELU, pad, pad, after), {}).verdict == "wrong"
    assert judge_rewritten(listed(RELU, after), ran(pad, RELU, after), {}).verdict == "wrong"
    even = msgspec.structs.replace(launch("conv2d", padding=(1, 1), **plain), inputs=((1, 8, 3, 3),))
    assert judge_rewritten(listed(RELU, even), ran(RELU, pad, after), {}).why == "zeros put around by the convolution"
