# SPDX-License-Identifier: Apache-2.0
"""Random kernels around those of networks: what is drawn for training."""

from __future__ import annotations

from collections import Counter
from math import prod

import pytest
from msgspec.structs import replace

from jetdvfs.kernels.cost.features import feature_rows
from jetdvfs.kernels.kinds import ELEMENTWISE, flops
from jetdvfs.kernels.network import DTYPE_BYTES, KernelInvocation
from jetdvfs.profiles.errors import ProfilesError
from jetdvfs.profiles.lab.measure.meters.kernel_worker import KernelWorker
from jetdvfs.profiles.lab.measure.sized_kernels import kernel_of
from jetdvfs.profiles.lab.measure.variation import MANY, MOST_ELEMENTS, MOST_FLOPS, Variations, VariationShares
from jetdvfs.profiles.lab.train.listed_networks import left_out_networks, trained_networks
from jetdvfs.profiles.lab.train.production import KINDS
from jetdvfs.tests.support.profiles.analytic import network


@pytest.fixture(scope="module")
def variations() -> Variations:
    return Variations(trained_networks(), seed=3)


def drawn(variations: Variations, kind: str, count: int = 200) -> list[KernelInvocation]:
    return variations.draw(kind, count)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "hardtanh"])
def test_kernels_of_every_model_are_drawn_whole(variations: Variations, kind: str) -> None:
    calls = drawn(variations, kind)
    feature_rows(kind, calls)  # the shapes, parameters and work fit each other
    for call in calls:
        assert call.flops == flops(call.kind, call.inputs, call.output, call.params) <= MOST_FLOPS
        sizes = [size for shape in (*call.inputs, call.output) for size in shape]
        assert all(size > 0 for size in sizes) and call.bytes > 0
        elements = 1
        for size in call.output:
            elements *= size
        assert elements <= MOST_ELEMENTS and call.bytes >= elements * DTYPE_BYTES[call.dtype] * 0.2


@pytest.mark.torch
@pytest.mark.parametrize(
    "kind", ["conv2d", "matmul", "attention", "mean", "cat", "layer_norm", "group_norm", "max_pool2d", ELEMENTWISE]
)
def test_random_kernels_can_be_run(variations: Variations, kind: str) -> None:
    worker, ran = KernelWorker(pytest.importorskip("torch"), "cpu"), 0
    for call in drawn(variations, kind, 300):
        small = call.flops < 1e7 and max(map(prod, (*call.inputs, call.output))) < 1e5
        if small and call.dtype in ("float32", "bfloat16") and call.kind in worker.hello({})["kinds"]:
            assert (
                worker.answer({"do": "issue", "calls": [call.to_json()], "order": [0], "timings": 1, "seconds": 0.0})["ms"] > 0
            )
            ran += 1
    assert ran > 5


def test_batches_types_and_forms_that_people_run_are_among_them(variations: Variations) -> None:
    convolutions = drawn(variations, "conv2d", 2000)
    forms: Counter[str] = Counter()
    for call in convolutions:
        weight, groups = call.params["weight"], call.params["groups"]
        assert isinstance(weight, tuple) and isinstance(groups, int)
        assert weight[1] * groups == call.inputs[0][1] and weight[0] == call.output[1] and not weight[0] % groups
        forms["plain" if groups == 1 else "depthwise" if weight[1] == 1 else "grouped"] += 1
    assert min(forms["plain"], forms["depthwise"], forms["grouped"]) > 10
    assert max(call.inputs[0][0] for call in convolutions) >= 32
    products = drawn(variations, "matmul", 500)
    assert {call.dtype for call in convolutions} == {"float32", "float16", "bfloat16", "int8"}
    assert {call.params["m"] == 1 for call in products} == {True, False}
    assert {len(call.inputs) for call in products} == {1, 2}


def test_the_same_seed_draws_the_same_and_another_one_others(variations: Variations) -> None:
    networks = trained_networks()
    first, again, other = (Variations(networks, seed).draw("matmul", 30) for seed in (7, 7, 8))
    assert first == again != other


def test_kernels_are_drawn_by_what_networks_spend_on_their_variety_not_by_how_many_they_have() -> None:
    plain = {"batch": 1, "height": 28, "width": 28, "stride": 1, "padding": 1, "dilation": 1, "groups": 1, "bias": 0}
    small = [{"channels": 8 + number, "filters": 16, "window": 1} for number in range(40)]
    large = {"channels": 256, "filters": 256, "window": 3}
    calls = [kernel_of("convolution", "conv2d", {**plain, **sizes}, "float32") for sizes in (*small, large)]
    some = Variations([network(*calls)], seed=1).some("conv2d", 600)
    wide = sum(call.params["weight"][2:] == (3, 3) for call in some)  # type: ignore[index]
    assert 300 <= wide <= 560 and len(some) == 600


def test_of_many_kernels_networks_at_other_batches_are_drawn_mostly_of_powers_of_two() -> None:
    variations = Variations(trained_networks(), 3, MANY)
    own = {(call.inputs[0][1:], call.params["weight"]) for call in variations.own("conv2d")}
    calls = drawn(variations, "conv2d", 1000)
    batched = [call for call in calls if call.inputs[0][0] > 1]
    powers = sum(call.inputs[0][0] in (2, 4, 8, 16, 32, 64) for call in batched)
    assert 0.7 <= powers / len(batched) < 0.95
    as_they_are = sum((call.inputs[0][1:], call.params["weight"]) in own for call in batched)
    assert as_they_are > 200


def test_kernels_of_networks_left_out_are_not_made_by_varying_others() -> None:
    one = network(kernel_of("linear", "matmul", {"m": 8, "n": 64, "k": 128, "bias": 1}, "float32"))
    at_all = {call.signature for call in Variations([one], 2, MANY).draw("matmul", 300)}
    by_four = next(call for call in Variations([one], 2, MANY).draw("matmul", 300) if call.params["m"] == 32)
    without = Variations([one], 2, MANY, without=[network(by_four)]).draw("matmul", 300)
    assert by_four.signature in at_all and by_four.signature not in {call.signature for call in without}


def test_one_model_draws_no_kernels_that_another_one_draws(variations: Variations) -> None:
    assert not {call.kind for call in variations.own(ELEMENTWISE)} & {"relu", "add", "clone"}
    assert {"gelu", "silu", "mul"} <= {call.kind for call in variations.own(ELEMENTWISE)}


def test_a_kind_that_no_network_has_is_refused_by_name() -> None:
    with pytest.raises(ProfilesError, match="no kernel of kind 'conv2d' in the networks; valid: "):
        Variations([network for network in trained_networks() if network.name == "bert_128"]).draw("conv2d", 1)


def test_no_network_that_is_left_out_is_trained_on() -> None:
    trained, left_out = ({network.digest for network in networks} for networks in (trained_networks(), left_out_networks()))
    assert len(trained) >= 60 and len(left_out) >= 10 and not trained & left_out
    families = " ".join(network.name for network in trained_networks())
    for name in ("vit_b", "convnext_", "resnext", "regnet", "yolo", "smollm"):
        assert name not in families


def test_of_many_products_some_are_of_sizes_that_people_choose() -> None:
    """Round widths and depths, as many rows as a power of two: among few they are rare."""

    def usual(draw: VariationShares) -> float:
        calls = [call for call in Variations(trained_networks(), 3, draw).draw("matmul", 1000) if len(call.inputs) == 1]
        rows = [int(call.params["m"] or 1) for call in calls]  # type: ignore[arg-type]
        round_ones = [
            m > 1 and not m & (m - 1) and not any(int(call.params[name] or 1) % 64 for name in ("n", "k"))  # type: ignore[arg-type]
            for m, call in zip(rows, calls, strict=True)
        ]
        return sum(round_ones) / len(calls)

    assert usual(replace(MANY, usual=0.35)) > usual(replace(MANY, usual=0.0)) + 0.04
