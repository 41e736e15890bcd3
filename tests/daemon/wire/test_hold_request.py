# SPDX-License-Identifier: Apache-2.0
"""A request is one value: the interface, the client's options and the daemon have the same members of it."""

from __future__ import annotations

import pytest

from jetdvfs.daemon.errors import UsageError
from jetdvfs.daemon.wire.calls import PUBLIC
from jetdvfs.daemon.wire.hold_request import HoldOptions, HoldRequest
from jetdvfs.daemon.wire.interface import members

REQUEST = HoldRequest(
    "n1", "latency_ms=20", fps=15.0, confidence=0.9, method="sum", beside={"host_ms": 2.0}, reason="a test", app="viewer",
    ceiling_c=70.0, battery_wh=50.0, trust_frames=True,
)  # fmt: skip


def test_the_interface_takes_every_member_of_a_request() -> None:
    (parameters,) = (method.parameters for method in PUBLIC.methods if method.name == "Hold")
    declared = set(HoldRequest._fields)
    assert set(members(parameters)) == declared | {"configuration_text"}
    assert set(HoldOptions.__annotations__) == declared - {"network", "target"}


def test_a_request_that_was_sent_is_read_as_it_was() -> None:
    assert HoldRequest.read(REQUEST.parameters()) == REQUEST
    clocks = HoldRequest(configuration="max,612,max", app="viewer")
    assert clocks.parameters()["configuration_text"] == "max,612,max"
    assert HoldRequest.read(clocks.parameters()) == clocks


def test_a_call_with_fewer_members_sends_those_alone() -> None:
    assert REQUEST.members(("target", "fps")) == {"target": "latency_ms=20", "fps": 15.0}


def test_options_beside_a_whole_request_and_two_configurations_are_refused() -> None:
    with pytest.raises(UsageError, match="fps: already in the request"):
        HoldRequest.of(REQUEST, {"fps": 30.0})
    with pytest.raises(UsageError, match="either configuration or configuration_text"):
        HoldRequest.read({"configuration": {"cpu_khz": 1, "gpu_hz": 1, "emc_hz": 1}, "configuration_text": "max"})
