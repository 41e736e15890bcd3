# SPDX-License-Identifier: Apache-2.0
"""What shipped profiles say of kernels drawn at random, of all kinds, shapes and element types, measured ones or not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jetdvfs.kernels.cost.model import kernel_costs, surface
from jetdvfs.kernels.network import Call, KernelInvocation, Network
from jetdvfs.profiles.bundle.bundle import Bundle, load_bundle
from jetdvfs.profiles.bundle.finding import SHIPPED, find_bundles
from jetdvfs.profiles.measuring.variation import Variations
from jetdvfs.profiles.reference import left_out_networks, reference_network, trained_networks
from jetdvfs.profiles.training.production import KINDS

_ROUNDING = 1e-5


@pytest.fixture(scope="module", params=sorted(find_bundles([SHIPPED])))
def bundle(request: pytest.FixtureRequest) -> Bundle:
    return load_bundle(request.param)


def drawn(seed: int, each: int) -> Network:
    """Kernels of all kinds, their sizes, batches and types at random, as one network."""
    variations = Variations([*trained_networks(), *left_out_networks(), reference_network("mobilenet_v2")], seed)
    return Network("drawn", (), tuple(kernel for kind in KINDS for kernel in variations.draw(kind, each)))


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
def test_half_precision_is_nowhere_slower_than_single(bundle: Bundle, name: str) -> None:
    single = reference_network(name)
    half = replace(single, calls=tuple(map(in_half, single.calls)))
    assert (surface(half, bundle.cost).latency_ms <= (1 + _ROUNDING) * surface(single, bundle.cost).latency_ms).all()
