# SPDX-License-Identifier: Apache-2.0
"""Refused kinds of the simulated silicon; costs of fused launches and of engines."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.kernels import kinds
from jetdvfs.kernels.fusion import fuse
from jetdvfs.kernels.network import KernelInvocation, Network
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.errors import TwinError
from jetdvfs.profiles.lab.train.listed_networks import calibrating_networks, left_out_networks, trained_networks
from jetdvfs.profiles.reference import reference_names, reference_network
from jetdvfs.profiles.twin.silicon.chip import Clocks, load_chip
from jetdvfs.profiles.twin.silicon.fused import PRODUCTS, product_of
from jetdvfs.profiles.twin.silicon.kinds import ROWS
from jetdvfs.profiles.twin.silicon.silicon import Silicon, execute
from jetdvfs.tests.support.boards.own_chips import OWN_CHIPS
from jetdvfs.tests.support.profiles.analytic import recurrent

#: What nobody runs in a network that has to be quick, and whose work follows from no shape that is written down.
REFUSED = """
    _cdist_forward _linalg_solve_ex _trilinear _weight_norm_interface addbmm addmv addr affine_grid_generator
    deform_conv2d histc linalg_cross linalg_inv_ex multinomial renorm
"""


@pytest.fixture(scope="module")
def resnet() -> Network:
    return reference_network("resnet18")


def top(board: str) -> Clocks:
    return Clocks.of([load_board(board).grid.top])


def ms(network: Network, silicon: Silicon) -> float:
    return 1e3 * float(execute(network, silicon, top(silicon.board)).latency_s[0])


def convolution(
    kind: str = "conv2d", side: int = 28, channels: int = 256, dtype: str = "float32", batch: int = 1, **more: Any
) -> KernelInvocation:
    shape = (batch, channels, side, side)
    params: dict[str, Any] = {"weight": (channels, channels, 3, 3), "bias": True, "groups": 1, **more}
    params |= dict.fromkeys(("stride", "padding", "dilation"), (1, 1))
    return KernelInvocation(kind, "", (shape,) * (2 if "add" in kind else 1), shape, dtype, params)


def plain(kind: str, *shape: int, inputs: int = 1) -> KernelInvocation:
    return KernelInvocation(kind, "", (shape,) * inputs, shape, "float32", {})


@pytest.mark.parametrize("board", OWN_CHIPS)
def test_every_board_has_a_chip_of_its_name(board: str) -> None:
    silicon = Silicon(None, board)
    assert re.fullmatch(rf"{board}-\d", silicon.version)


@pytest.mark.parametrize("board", ["agx-orin-64gb", "nano"])
def test_another_silicon_is_another_chip_of_the_same_rails(board: str, resnet: Network) -> None:
    own, other, again = (Silicon(None, board, perturbed=seed) for seed in (0, 1, 1))
    assert (other.version, other.rails) == (f"{own.version}~1", own.rails)
    assert ms(resnet, other) == ms(resnet, again) != ms(resnet, own)
    assert 0.4 < ms(resnet, other) / ms(resnet, own) < 2.5


def test_a_kind_that_silicon_does_not_know_is_refused_and_never_guessed() -> None:
    known = {name for name in kinds.KINDS if name in ROWS or product_of(name)}
    assert sorted(kinds.KINDS.keys() - known) == REFUSED.split()
    assert not ROWS.keys() - kinds.KINDS.keys()
    call = plain("renorm", 1, 64, 56, 56)
    with pytest.raises(TwinError, match=r"agx-xavier-\d knows no kernels of kind 'renorm'; valid: .*conv1d"):
        Silicon(None).kernels([call], top("agx-xavier"))
    with pytest.raises(TwinError, match="'renorm'"):
        Silicon(None).issue_s([call], top("agx-xavier"))


def test_every_kind_that_operators_launch_and_silicon_knows_takes_time() -> None:
    silicon = Silicon(None, "tx2")
    image = (2, 64, 28, 28)
    params: dict[str, Any] = {"m": 8, "k": 64, "n": 64, "batch": 1, "hidden": 64, "layers": 1, "directions": 1}
    params |= {"kernel_size": (2, 2), "dim": 1, "kinds": "relu+add_scalar", "outputs": 1}
    calls = [
        KernelInvocation(name, "", (image,), image, "float32", params)
        for name in ROWS
        if not product_of(name) and "conv" not in name
    ]
    assert (silicon.kernels(calls, top("tx2")).seconds > 0).all()
    assert (silicon.issue_s(calls, top("tx2")) > 0).all()


def test_a_recurrent_layer_goes_step_by_step_wherever_the_batch_stands() -> None:
    silicon, clocks = Silicon(None, "agx-xavier"), top("agx-xavier")
    layers = [recurrent(steps=100), recurrent(steps=100, batch_first=True), recurrent(steps=10)]
    first, batch_first, short = silicon.kernels(layers, clocks).seconds[:, 0]
    assert first == pytest.approx(batch_first, rel=0.2)  # shapes are uneven
    assert first > 5 * short


@pytest.mark.parametrize("board", ["tx2", "agx-orin-64gb"])
def test_a_fused_convolution_is_one_launch_with_the_products_work(board: str) -> None:
    silicon, clocks = Silicon(None, board), top(board)
    alone, fused, added = (
        silicon.kernels([convolution(kind)], clocks) for kind in ("conv2d", "conv2d_relu", "conv2d_add_relu")
    )
    apart = silicon.kernels([plain("relu", 1, 256, 28, 28), plain("add", 1, 256, 28, 28, inputs=2)], clocks).seconds.sum()
    # Two shapes of one kind differ by what the library picks for each; so much is no part of what is tested.
    uneven = 1.5
    assert alone.seconds / uneven < fused.seconds < uneven * alone.seconds
    assert added.seconds < uneven * (alone.seconds + apart)
    assert fused.launches < alone.launches  # the bias goes with it
    assert added.dram_bytes >= fused.dram_bytes


@pytest.mark.parametrize("board", OWN_CHIPS)
def test_a_fused_network_is_faster_but_not_by_the_work_of_its_products(board: str, resnet: Network) -> None:
    silicon = Silicon(None, board)
    fused = fuse(replace(resnet, operators=(), views=()))  # as if no operator worked in place
    assert 0.6 * ms(resnet, silicon) < ms(fused, silicon) < ms(resnet, silicon)


def test_pointwise_kernels_fused_into_one_cost_less_than_one_by_one() -> None:
    silicon, clocks = Silicon(None, "tx2"), top("tx2")
    shape = (1, 64, 112, 112)
    apart = silicon.kernels([plain("relu", *shape), plain("sigmoid", *shape), plain("mul", *shape, inputs=2)], clocks)
    group = KernelInvocation("fused_pointwise", "", (shape,), shape, "float32", {"kinds": "relu+sigmoid+mul", "outputs": 1})
    wider = replace(group, params={"kinds": "relu+sigmoid+mul", "outputs": 3})
    fused, written = silicon.kernels([group], clocks), silicon.kernels([wider], clocks)
    assert fused.seconds[0, 0] < 0.7 * apart.seconds.sum()
    assert written.dram_bytes[0, 0] > fused.dram_bytes[0, 0]
    with pytest.raises(TwinError, match="no pointwise kernel 'conv2d' that could be fused"):
        silicon.kernels([replace(group, params={"kinds": "relu+conv2d", "outputs": 1})], clocks)


def test_convolutions_of_other_dimensions_do_their_work() -> None:
    silicon, clocks = Silicon(None, "agx-xavier"), top("agx-xavier")
    one = KernelInvocation(
        "conv1d", "", ((1, 256, 4096),), (1, 256, 4096), "float32",
        {"weight": (256, 256, 3), "bias": False, "stride": (1,), "padding": (1,), "dilation": (1,), "groups": 1},
    )  # fmt: skip
    steps = dict.fromkeys(("stride", "padding", "dilation"), (1, 1, 1))
    three = KernelInvocation(
        "conv3d", "", ((1, 64, 16, 56, 56),), (1, 64, 16, 56, 56), "float32",
        {"weight": (64, 64, 3, 3, 3), "bias": False, **steps, "groups": 1},
    )  # fmt: skip
    # Slices of 3x3 windows may use Winograd's algorithm, with at least a quarter of the multiplications.
    for call, operations, saved in ((one, 256 * 256 * 3 * 4096, 1), (three, 64 * 64 * 27 * 16 * 56 * 56, 4)):
        peak = 512 * 1.377e9
        assert operations / saved / peak < silicon.kernels([call], clocks).seconds[0, 0] < 10 * operations / peak


@pytest.mark.parametrize("board", OWN_CHIPS)
def test_an_engine_beats_the_framework_and_narrow_types_beat_wide_ones(board: str, resnet: Network) -> None:
    eager = ms(resnet, Silicon(None, board))
    types = load_chip(board).detail.engines["tensorrt"].types
    times = [ms(resnet, Silicon(None, board, engine="tensorrt", dtype=dtype)) for dtype in types if dtype != "bfloat16"]
    assert times[0] < eager
    # On Thor 8 bits gain little over half precision, as in published engines.
    assert all(later < (1.0 if "thor" in board else 0.9) * before for before, later in pairwise(times))


def test_an_engine_launches_what_is_left_after_folding_fusing_and_planning(resnet: Network) -> None:
    silicon = Silicon(None, engine="tensorrt", dtype="float16")
    built = silicon.prepared(resnet)
    assert set(built.kinds) == {"conv2d", "max_pool2d", "mean", "matmul"}
    assert built.kinds["conv2d"] == 20 and len(built.launches) == 23
    ends = [call.params["epilogue"] for call in built.launches if call.kind == "conv2d"]
    assert ends.count("relu") == 9 and ends.count("add+relu") == 8 and ends.count("") == 3
    assert {call.dtype for call in built.launches} == {"float16"}
    assert float(silicon.issue_s(built.calls, top("agx-xavier")).sum()) < 0.3 * float(
        Silicon(None).issue_s(resnet.calls, top("agx-xavier")).sum()
    )


@pytest.mark.parametrize(("board", "copies"), [("nano", 0), ("tx2", 0), ("agx-xavier", 8), ("orin-nano-8gb", 8)])
def test_an_engine_copies_concatenated_branches_only_if_channels_are_innermost(board: str, copies: int) -> None:
    built = Silicon(None, board, engine="tensorrt", dtype="float32").prepared(reference_network("squeezenet1_0"))
    assert built.kinds.get("cat", 0) == copies and "relu" not in built.kinds


@pytest.mark.parametrize(("board", "saved"), [("xavier-nx", 1.5), ("nano", 1.1), ("tx2", 1.0), ("orin-nano-8gb", 1.0)])
def test_images_of_a_large_batch_cost_less_each_where_real_boards_showed_it(board: str, saved: float) -> None:
    silicon = Silicon(None, board)
    one, many = (convolution(side=56, batch=batch) for batch in (4, 16))
    each_s = [silicon.kernels([call], top(board)).seconds[0, 0] / call.output[0] for call in (one, many)]
    assert each_s[0] / each_s[1] == pytest.approx(saved, abs=0.2)


@pytest.mark.parametrize("board", ["agx-xavier", "tx2"])
def test_fusing_a_network_never_makes_it_slower(board: str) -> None:
    silicon, clocks = Silicon(None, board), top(board)
    for name in reference_names():
        network = reference_network(name)
        fused, plain = (execute(one, silicon, clocks) for one in (fuse(network), network))
        assert 0 < fused.latency_s[0] <= plain.latency_s[0], name
        assert all(np.isfinite(joules).all() for joules in fused.rail_energy_j.values()), name


def test_joining_many_tensors_in_one_launch_costs_less_than_one_launch_after_the_other() -> None:
    part = (1, 48, 56, 56)
    for count in (2, 8, 16, 20, 24, 25, 26, 40, 120):
        whole = (1, 48 * count, 56, 56)
        parts = (part,) * count
        joined = KernelInvocation("cat", "", parts, whole, "float32", {"dim": 1})
        normed = KernelInvocation("batch_norm", "", (whole,), whole, "float32", {"affine": True})
        fused = KernelInvocation("fused_pointwise", "", parts, whole, "float32", {"kinds": "cat+batch_norm", "outputs": 1})
        first, second, both = Silicon(None).kernels([joined, normed, fused], top("agx-xavier")).seconds[:, 0]
        assert 0 < both < first + second, count


def listed_networks() -> list[Network]:
    known = [reference_network(name) for name in reference_names()]
    return [*known, *trained_networks(), *left_out_networks(), *calibrating_networks()]


@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
def test_every_network_runs_as_an_engine_whose_launches_make_what_their_products_make(every: int) -> None:
    networks, clocks = listed_networks()[::every], top("agx-xavier")
    assert len(networks) * every > 100
    for dtype in ("float32", "float16", "int8"):
        silicon = Silicon(None, engine="tensorrt", dtype=dtype)
        for network in networks:
            (seconds,) = execute(network, silicon, clocks).latency_s
            assert 0 < seconds < np.inf, (network.name, dtype)
            made, listed = (
                {launch.output for launch in one.launches if launch.kind in PRODUCTS}
                for one in (silicon.prepared(network), network)
            )
            assert made <= listed, (network.name, dtype)


def test_an_engine_does_not_scale_a_large_tensor_in_the_launch_that_makes_a_small_one() -> None:
    """Squeeze and excitation: a sigmoid of one number for each channel, by which an image is multiplied."""
    image, gate = (1, 48, 56, 56), (1, 48, 1, 1)
    squeeze = KernelInvocation("mean", "", (image,), gate, "float32", {"dim": (2, 3)})
    weigh = KernelInvocation("sigmoid", "", (gate,), gate, "float32", {})
    scale = KernelInvocation("mul", "", (gate, image), image, "float32", {})
    excite = replace(
        convolution(channels=48),
        inputs=(gate,),
        output=gate,
        params={**convolution().params, "weight": (48, 48, 1, 1), "padding": (0, 0)},
    )
    listed = Network("squeeze", (), (squeeze, excite, weigh, scale), reads=((-1,), (0,), (1,), (2, -1)))
    built = Silicon(None, engine="tensorrt", dtype="float32").prepared(listed).launches
    assert [(launch.kind, launch.output) for launch in built] == [("mean", gate), ("conv2d", gate), ("mul", image)]


def test_an_engine_copies_no_layouts() -> None:
    call = convolution(dtype="float16")
    eager, engine = (
        Silicon(None, "agx-orin-64gb", engine=name, dtype="float16" if name else "").kernels([call], top("agx-orin-64gb"))
        for name in ("", "tensorrt")
    )
    assert engine.launches[0, 0] <= eager.launches[0, 0] - 2
    assert engine.dram_bytes[0, 0] < eager.dram_bytes[0, 0]


def test_engines_that_a_chip_does_not_have_are_refused(resnet: Network) -> None:
    with pytest.raises(TwinError, match=r"agx-xavier-\d has no engine 'onnxruntime'; valid: tensorrt"):
        Silicon(None, engine="onnxruntime", dtype="float16")
    with pytest.raises(TwinError, match="builds nothing for 'int8'; valid: float32, float16"):
        Silicon(None, "tx2", engine="tensorrt", dtype="int8")
    unread = Network("list", (), resnet.calls)
    with pytest.raises(TwinError, match="lacks its data flow"):
        execute(unread, Silicon(None, engine="tensorrt", dtype="float16"), top("agx-xavier"))


def test_volta_takes_narrow_types_on_tensor_cores_and_single_precision_on_its_lanes() -> None:
    for board in ("agx-xavier", "xavier-nx"):
        silicon, clocks = Silicon(None, board), top(board)
        full, half, eight = (
            float(silicon.kernels([convolution(dtype=dtype, channels=512)], clocks).seconds[0, 0])
            for dtype in ("float32", "float16", "int8")
        )
        assert full > 2 * half and half > 1.1 * eight
