# SPDX-License-Identifier: Apache-2.0
"""What shipped profiles say of kernels drawn at random, of all kinds, shapes and element types, measured ones or not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from jetdvfs.kernels.cost.model import kernel_costs, surface
from jetdvfs.kernels.network import DTYPE_BYTES, Call, KernelInvocation, Network, numel
from jetdvfs.profiles.bundle.bundle import Bundle, load_bundle
from jetdvfs.profiles.lab.measure.size_variation import MAKERS, SizeVariation
from jetdvfs.profiles.lab.measure.variation import MANY, Variations
from jetdvfs.profiles.lab.train.listed_networks import left_out_networks, trained_networks
from jetdvfs.profiles.lab.train.production import KINDS
from jetdvfs.profiles.reference import reference_network
from jetdvfs.profiles.twin.silicon.chip import Clocks
from jetdvfs.profiles.twin.silicon.silicon import Silicon

_ROUNDING = 1e-5
_NEXT_TO_NOTHING = 20_000  # FLOPs and bytes: what takes such kernels their time is the launch
_OF_TYPES = 0.02  # by so much models may differ over the types of kernels that the board takes as long for


@pytest.fixture(scope="module", params=["agx-xavier-sim", "agx-orin-64gb-sim", "nano-sim", "tx2-sim"])
def bundle(request: pytest.FixtureRequest) -> Bundle:
    return load_bundle(request.param)


def drawn(seed: int, each: int) -> Network:
    """Kernels of all kinds, their sizes, batches and types at random, as one network."""
    variations = Variations([*trained_networks(), *left_out_networks(), reference_network("mobilenet_v2")], seed)
    return Network("drawn", (), tuple(kernel for kind in KINDS for kernel in variations.draw(kind, each)))


BY_IMAGE = ("conv2d", "batch_norm", "relu", "add", "max_pool2d", "avg_pool2d", "group_norm", "silu", "gelu")


def twice(kernel: KernelInvocation) -> KernelInvocation:
    """The same on twice as many images; what it moves at least, its weights once."""
    inputs = tuple((2 * shape[0], *shape[1:]) if len(shape) == 4 else shape for shape in kernel.inputs)
    output = (2 * kernel.output[0], *kernel.output[1:])
    more = DTYPE_BYTES[kernel.dtype] * (sum(map(numel, (*inputs, output))) - sum(map(numel, (*kernel.inputs, kernel.output))))
    return replace(kernel, inputs=inputs, output=output, flops=2 * kernel.flops, bytes=kernel.bytes + more)


def in_half(call: Call) -> Call:
    return replace(call, dtype="float16", bytes=call.bytes // 2) if isinstance(call, KernelInvocation) else call


def test_no_kernel_takes_longer_at_a_higher_clock(bundle: Bundle) -> None:
    costs = kernel_costs(drawn(int(np.random.default_rng().integers(1 << 30)), 12), bundle.cost)
    assert np.isfinite(costs.gpu_ms).all() and (costs.gpu_ms > 0).all()
    for axis in (1, 2, 3):
        rise = np.diff(costs.gpu_ms, axis=axis) / costs.gpu_ms.max(axis=(1, 2, 3), keepdims=True)
        worst = int(np.unravel_index(rise.argmax(), rise.shape)[0])
        assert rise.max() <= _ROUNDING, costs.kernels[worst]


@pytest.mark.parametrize("name", ["vit_b_16", "smollm_step"])
def test_no_network_nobody_measured_is_faster_where_a_clock_falls(bundle: Bundle, name: str) -> None:
    (network,) = (network for network in left_out_networks() if network.name == name)
    latency_ms = surface(network, bundle.cost).latency_ms
    for axis in range(3):
        assert (np.diff(latency_ms, axis=axis) <= _ROUNDING * latency_ms.max()).all()


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_half_precision_is_nowhere_slower_than_single_precision(bundle: Bundle, name: str) -> None:
    single = reference_network(name)
    half = replace(single, calls=tuple(map(in_half, single.calls)))
    assert (surface(half, bundle.cost).latency_ms <= (1 + _OF_TYPES) * surface(single, bundle.cost).latency_ms).all()


Pairs = Sequence[tuple[KernelInvocation, KernelInvocation]]


def least_ratios(bundle: Bundle, pairs: Pairs) -> NDArray[np.float64]:
    """By how much less the second of each pair takes where the board picks a better algorithm for it, else 1."""
    grid = bundle.cost.grid
    corners = [grid.configuration(tuple(place)) for place in product(*((0, size // 2, size - 1) for size in grid.shape))]
    silicon = Silicon(None, bundle.manifest.board)
    once, both = (silicon.kernels(list(calls), Clocks.of(corners), cold=True).seconds for calls in zip(*pairs, strict=True))
    return np.asarray(np.minimum(1.0, (both / once).min(axis=1)))


def predicted_ratios(bundle: Bundle, pairs: Pairs) -> NDArray[np.float64]:
    """How many times as long the second of each pair is predicted to take as the first, ``(pairs, n_cpu, n_gpu, n_emc)``."""
    costs = kernel_costs(Network("pairs", (), tuple(kernel for pair in pairs for kernel in pair)), bundle.cost)
    took = costs.gpu_ms[costs.order]
    return np.asarray(took[1::2] / took[::2], np.float64)


def test_twice_as_many_images_cost_less_only_where_the_board_does_them_otherwise(bundle: Bundle) -> None:
    """But for kernels of microseconds, which models know to a tenth or so."""
    drawn_ones = [kernel for kernel in drawn(11, 12).launches if kernel.kind in BY_IMAGE]
    working = [kernel for kernel in drawn_ones if kernel.flops + kernel.bytes > _NEXT_TO_NOTHING]
    pairs = [(kernel, twice(kernel)) for kernel in working if len(kernel.output) == 4]
    assert len(pairs) > 50
    for pair, ratio, least in zip(pairs, predicted_ratios(bundle, pairs), least_ratios(bundle, pairs), strict=True):
        assert ratio.min() > 0.8 * least and np.median(ratio) > 0.9 * least, (pair[0], ratio.min(), least)


class OneDoubled(SizeVariation):
    """All sizes as they are but one of those that a maker asks for by itself, which is doubled."""

    def __init__(self, which: int) -> None:
        super().__init__(np.random.default_rng(0), 0.0)
        self._left = which

    def anew(self, size: int) -> int:
        self._left -= 1
        return 2 * size if self._left == -1 else size


@pytest.mark.parametrize("kind", ["conv2d", "matmul"])
def test_wider_and_deeper_products_hardly_ever_cost_less_where_they_do_not_on_the_board(bundle: Bundle, kind: str) -> None:
    """At any of the grid's corners, by more than a tenth; on boards some do, where a library has another way for them."""
    calls = [call for call in Variations(trained_networks(), 11, MANY).draw(kind, 250) if call.kind == kind]
    pairs = [(call, more) for number, call in enumerate(calls) if (more := MAKERS[kind](call, OneDoubled(number % 2), 1))]
    pairs = [(once, more) for once, more in pairs if more.flops > once.flops]
    assert len(pairs) > 150
    cpu, gpu, emc = np.ix_(*((0, size // 2, size - 1) for size in bundle.cost.grid.shape))
    predicted = predicted_ratios(bundle, pairs)[:, cpu, gpu, emc].min(axis=(1, 2, 3))
    assert np.mean(predicted < 0.9 * least_ratios(bundle, pairs)) < 0.02
