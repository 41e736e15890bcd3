# SPDX-License-Identifier: Apache-2.0
"""Decomposition of the ten networks of MIRAGE held against PyTorch's dispatcher."""

from __future__ import annotations

import functools
from importlib.util import find_spec
from typing import Any

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.network import HostOp, Network, TensorSpec
from jetdvfs.tests.support.paths import REFERENCE

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of decomposition; it is not installed")
if find_spec("torchvision") is None:
    pytest.skip("the networks are torchvision's; it is not installed", allow_module_level=True)

from jetdvfs.tests.support.models import oracle  # noqa: E402
from jetdvfs.tests.support.speed import multiples_of_unpickling  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::Warning")]

SIDES = oracle.MIRAGE_NETWORKS
LARGE = {"densenet161", "inception_v3"}


def image(batch: int, side: int) -> list[TensorSpec]:
    return [TensorSpec((batch, 3, side, side))]


def differences(network: Network, expected: Network) -> list[str]:
    """The first launches that differ, for a message one can read."""
    pairs = zip(network.launches, expected.launches, strict=False)
    found = [f"{place}: {ours}\n   PyTorch: {theirs}" for place, (ours, theirs) in enumerate(pairs) if ours != theirs]
    if len(network.launches) != len(expected.launches):
        found.append(f"{len(network.launches)} launches, PyTorch has {len(expected.launches)}")
    return found[:3]


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in SIDES]
)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def thin(name: str) -> Any:
    return oracle.without_weights(oracle.build(name))


@pytest.mark.parametrize(("batch", "grown"), [(1, 0), (8, 32)])
def test_scripted_network_is_what_pytorch_dispatches(name: str, batch: int, grown: int) -> None:
    side = SIDES[name] + grown
    expected = oracle.mirage_network(name, batch, side)
    assert differences(decompose(REFERENCE / f"{name}.pt", image(batch, side)), expected) == []


def test_network_scripted_by_this_pytorch_is_what_it_dispatches(name: str, thin: Any) -> None:
    network = decompose(oracle.archive_of(thin, "script"), image(1, SIDES[name]))
    assert differences(network, oracle.mirage_network(name)) == []


def test_traced_network_is_what_pytorch_dispatches_at_any_batch_and_image_size(name: str, thin: Any) -> None:
    side = 299 if name == "inception_v3" else 64  # traced small; the inputs below are others
    stream = oracle.archive_of(thin, "trace", [torch.zeros(1, 3, side, side)])
    for batch, size in ((1, SIDES[name]), (4, SIDES[name] + 32)):
        network = decompose(stream, image(batch, size))
        assert differences(network, oracle.mirage_network(name, batch, size)) == []


def test_host_only_calls_of_a_scripted_network_are_pytorchs_views() -> None:
    ours = decompose(REFERENCE / "shufflenet_v2_x1_0.pt", image(1, 224))
    theirs = oracle.mirage_network("shufflenet_v2_x1_0")
    assert [call.name for call in ours.calls if isinstance(call, HostOp)] == [
        call.name for call in theirs.calls if isinstance(call, HostOp)
    ]


@pytest.mark.alone
def test_densenet161_takes_a_few_times_as_long_as_unpickling_thousands_of_records() -> None:
    decomposing = functools.partial(decompose, REFERENCE / "densenet161.pt", image(1, 224))
    assert multiples_of_unpickling(decomposing, tries=5) < [5.0]
