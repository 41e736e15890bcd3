# SPDX-License-Identifier: Apache-2.0
"""Calls that a profiler recorded are matched to launches of their kind that read as much; what is left over is told."""

from __future__ import annotations

import pytest

from jetdvfs.kernels.network import KernelInvocation, Network
from jetdvfs.profiles.lab.traces.comparing import TracedCall, compare, compare_nodes


def network(*launches: tuple[str, int], scope: str = "") -> Network:
    calls = tuple(
        KernelInvocation(kind, scope or str(place), ((1, size),), (1, size), "float32")
        for place, (kind, size) in enumerate(launches)
    )
    return Network("made", (), calls)


def call(kind: str, size: int | None, took_ms: float) -> TracedCall:
    return TracedCall(f"aten::{kind}", kind, None if size is None else ((size, 1),), took_ms)


MADE = network(("relu", 4), ("relu", 9), ("conv2d", 4), ("relu", 4))


def test_equal_calls_are_told_apart_by_their_order_and_inferences_by_the_median() -> None:
    once = [("relu", 4, 1.0), ("conv2d", 4, 3.0), ("relu", 9, 2.0), ("relu", 4, 4.0)]
    found = compare(MADE, [call(kind, size, took + 10 * turn) for turn in range(3) for kind, size, took in once], "somebody")
    assert (found.inferences, found.missing, found.others) == (3, (), {})
    assert found.measured_ms == (11.0, 12.0, 13.0, 14.0)


def test_what_is_missing_and_what_is_there_besides_is_told() -> None:
    once = [call("relu", 4, 1.0), call("relu", 9, 2.0), call("conv2d", 4, 3.0), call("softmax", 4, 5.0)]
    found = compare(MADE, once * 2, "somebody")
    assert found.inferences == 2 and found.missing == (3,)
    assert found.others == {"aten::softmax": (1.0, 5.0)}


def test_without_shapes_the_kind_alone_counts() -> None:
    once = [call("relu", None, 1.0), call("relu", None, 2.0), call("conv2d", None, 3.0), call("relu", None, 4.0)]
    assert compare(MADE, once, "somebody").measured_ms == (1.0, 2.0, 3.0, 4.0)


def test_a_run_of_another_network_has_no_inference_of_this_one() -> None:
    found = compare(MADE, [call("softmax", 4, 5.0)] * 2, "somebody")
    assert found.inferences == 0 and found.missing == (0, 1, 2, 3)


def test_a_nodes_time_counts_once_for_all_that_it_launches() -> None:
    fused = network(("conv2d", 4), ("relu", 4), scope="/first/Conv")
    nodes = [("/first/Conv", "FusedConv", 2.0), ("/first/Reshape", "Reshape", 0.5), ("/first/Conv", "FusedConv", 4.0)]
    found = compare_nodes(fused, [*nodes, ("/first/Reshape", "Reshape", 0.5)], "somebody")
    assert found.measured_ms == pytest.approx((3.0, 0.0)) and found.missing == ()
    assert found.others == {"Reshape": (1.0, 0.5)}


def test_calls_on_other_element_types_and_casts_are_told() -> None:
    cast = TracedCall("aten::_to_copy", "to", ((4, 1),), 0.5, types=("float32",))
    bare = TracedCall("aten::_to_copy", "to", (), 0.1)
    half = TracedCall("aten::relu", "relu", ((4, 1),), 2.0, inner=(cast, cast, bare), types=("bfloat16",))
    mixed = TracedCall("aten::relu", "relu", ((9, 1),), 2.0, types=("bfloat16", "float32"))
    found = compare(network(("relu", 4), ("relu", 9)), [half, mixed], "somebody")
    assert found.missing == () and found.retyped == {0: "bfloat16"}
    assert found.others == {"aten::_to_copy": (2.0, 1.0)}
