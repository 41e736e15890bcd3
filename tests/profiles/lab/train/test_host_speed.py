# SPDX-License-Identifier: Apache-2.0
"""Latencies of networks are compared at one speed of the host, told by reference work between the inferences."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.kernels.grid import FrequencyGrid
from jetdvfs.kernels.network import KernelInvocation, Network
from jetdvfs.profiles.adapt.measurements import TABLES, MeasurementRows, Measurements
from jetdvfs.profiles.board import ChipRates
from jetdvfs.profiles.device import Device
from jetdvfs.profiles.lab.train.held_out import whole_networks


def record(cpu_khz: tuple[int, ...], references: dict[str, list[float]], kernel_ms: float = 0.0) -> Measurements:
    """Three networks of 2, 3 and 4 ms, a kernel each, whose time was measured where it is above 0."""
    launch = KernelInvocation("relu", "", ((4,),), (4,), "float32", {}, 4, 32)
    networks = tuple(Network(name, (), (launch,)) for name in ("a", "b", "c"))
    device = Device("made", FrequencyGrid(cpu_khz, (10**9,), (10**9,)), ChipRates({"float32": 1.0}, 1.0))
    none = np.zeros(3, np.int64)
    tables = {name: MeasurementRows.joined(()) for name in TABLES} | {
        "network_ms": MeasurementRows(np.arange(3), none, none, np.array([2.0, 3.0, 4.0]))
    }
    if kernel_ms:
        tables["kernel_ms"] = MeasurementRows(none[:1], none[:1], none[:1], np.array([kernel_ms]))
    about = {"reference_ms": references} if references else {}
    return Measurements("made", "", 40.0, (), (launch,), (), networks, tables, device=device, environment=about)


@pytest.mark.parametrize(
    ("cpu_khz", "references", "expected"),
    [
        ((1000,), {"a": [0.5, 0.5, 9.0], "b": [1.0], "c": [0.5]}, [2.0, 1.5, 4.0]),
        ((1000,), {"a": [1.0], "b": [1.0]}, [2.0, 3.0, 4.0]),
        ((1000,), {}, [2.0, 3.0, 4.0]),
        ((1000, 2000), {"a": [0.5], "b": [1.0], "c": [0.5]}, [2.0, 3.0, 4.0]),
    ],
)
def test_latencies_are_relative_to_the_reference_work_beside_them(
    cpu_khz: tuple[int, ...], references: dict[str, list[float]], expected: list[float]
) -> None:
    assert list(whole_networks(record(cpu_khz, references)).tables["network_ms"].value) == pytest.approx(expected)


def test_no_network_takes_less_than_its_kernels_however_slow_the_host_was() -> None:
    references = {"a": [0.5], "b": [1.0], "c": [0.5]}
    assert list(whole_networks(record((1000,), references, kernel_ms=2.5)).tables["network_ms"].value) == pytest.approx(
        [2.0, 2.5, 4.0]
    )


def test_a_network_whose_kernels_take_longer_than_its_calls_is_as_fast_on_any_host() -> None:
    references = {"a": [0.5], "b": [1.0], "c": [0.5]}
    made = record((1000,), references, kernel_ms=2.5)
    for host_us, expected in ((1000.0, [2.0, 3.0, 4.0]), (3000.0, [2.0, 2.5, 4.0])):
        none = np.zeros(1, np.int64)
        tables = {**made.tables, "host_us": MeasurementRows(none, none, none, np.array([host_us]))}
        known = replace(made, calls=made.networks[0].launches, tables=tables)
        assert list(whole_networks(known).tables["network_ms"].value) == pytest.approx(expected)
