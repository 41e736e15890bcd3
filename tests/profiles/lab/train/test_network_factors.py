# SPDX-License-Identifier: Apache-2.0
"""What campaigns find besides kernels: what timing adds, what any launch takes, what is different inside of networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.cost.roofline import NO_FLOOR
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.network import KernelInvocation
from jetdvfs.profiles.adapt.measurements import MeasurementRows, Measurements
from jetdvfs.profiles.adapt.network_errors import NetworkMeasurement
from jetdvfs.profiles.lab.measure.campaign import CampaignSize, plan_campaign
from jetdvfs.profiles.lab.measure.meters.meter import KernelPower
from jetdvfs.profiles.lab.measure.steps import run_campaign
from jetdvfs.profiles.lab.train.host_fit import fit_floor, fit_timing_us
from jetdvfs.profiles.lab.train.kernel_models import table_of
from jetdvfs.profiles.lab.train.network_factors import ALONE, GraphMeasurement, fit_inside
from jetdvfs.tests.support.profiles.analytic import GRID, board, matmul, network, relu
from jetdvfs.tests.support.profiles.synthetic_meter import BOARD, SyntheticMeter, pointwise
from jetdvfs.tests.support.profiles.synthetic_meter import network as pointwise_network

NETWORKS = (pointwise_network("small", [20_000, 50_000]), pointwise_network("large", [700_000]))
SIZE = CampaignSize((0, 1), {}, 6, 12, 12, 4, 8)


class SlowToTime(SyntheticMeter):
    """Timing a kernel by itself takes 10 us of the timer and 30,000 cycles of the CPU; repeating it tells its own time."""

    def kernel_times_ms(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration]
    ) -> NDArray[np.float64]:
        cpu_khz = np.array([configuration.cpu_khz for configuration in configurations])
        timed: NDArray[np.float64] = super().kernel_times_ms(invocations, configurations) + 0.010 + 30_000 / cpu_khz
        return timed

    def kernel_powers(
        self, invocations: Sequence[KernelInvocation], configurations: Sequence[FrequencyConfiguration], issued: bool = False
    ) -> KernelPower:
        return SyntheticMeter(round((self.factor - 1) * 100)).kernel_powers(invocations, configurations)


def measured_by(meter: type[SyntheticMeter]) -> Measurements:
    def kernels(kind: str, count: int) -> list[KernelInvocation]:
        return [pointwise(kind, 10_000 * (number + 1)) for number in range(count)]

    return run_campaign(plan_campaign(BOARD, NETWORKS, kernels, SIZE, kinds=("relu",), temperature_c=45.0), meter)


def labels(measurements: Measurements) -> dict[bytes, float]:
    """By features and clocks."""
    table = table_of(measurements, BOARD, "relu", "time", ())
    return {row.tobytes(): label for row, label in zip(table.features, table.label, strict=True)}


def test_what_timing_adds_is_no_part_of_a_kernels_time() -> None:
    measurements = measured_by(SlowToTime)
    timing = measurements.tables["timing_us"]
    unknown = replace(measurements, tables={**measurements.tables, "timing_us": timing.where(timing.value < 0)})
    true, found, as_timed = labels(measured_by(SyntheticMeter)), labels(measurements), labels(unknown)
    assert 0.5 * len(true) < len(found) < len(true)  # of some nothing is left
    assert found == pytest.approx({row: true[row] for row in found}, abs=0.02)
    assert np.mean([as_timed[row] - true[row] for row in found]) > 0.1


def test_what_timing_adds_may_be_nothing_at_high_clocks() -> None:
    rng = np.random.default_rng(0)
    flat = rng.integers(0, GRID.size, 3000)
    cpu, gpu, _ = np.unravel_index(flat, GRID.shape)
    cpu_mhz, gpu_mhz, _ = GRID.levels_mhz()
    true = np.maximum(-8.0 + 8_000 / cpu_mhz[cpu] + 600 / gpu_mhz[gpu], 0.0)
    rows = MeasurementRows(np.zeros(3000, np.int64), np.zeros(3000, np.int64), flat, true + 0.1 * rng.standard_normal(3000))
    a, b, c = fit_timing_us(rows, GRID)
    np.testing.assert_allclose(np.maximum(a + b / cpu_mhz[cpu] + c / gpu_mhz[gpu], 0.0), true, atol=0.3)
    assert fit_timing_us(rows.where(np.zeros(3000, np.bool_)), GRID) == (0.0, 0.0, 0.0)


def test_the_floor_of_a_launch_is_found() -> None:
    gpu_mhz = np.linspace(100, 1300, 500)
    noise = np.exp(0.05 * np.random.default_rng(0).standard_normal(500))
    floor = fit_floor(gpu_mhz, (3.0 + 4000 / gpu_mhz) * noise)
    assert floor.us == pytest.approx(3.0, rel=0.1) and floor.gpu_cycles == pytest.approx(4000, rel=0.1)
    assert fit_floor(gpu_mhz[:0], gpu_mhz[:0]) == NO_FLOOR


def test_what_is_different_inside_of_networks_is_found() -> None:
    alone, inside = board(slowdown=2.0), board(slowdown=2.2)
    inside = replace(inside, host=inside.host.scaled(1.3))
    measured = []
    for net in (network(*[matmul(1000)] * 3), network(*[relu(64)] * 40), network(*[matmul(500), relu(64)] * 20)):
        true = surface(net, inside)
        measured.append(NetworkMeasurement(net, np.arange(GRID.size), true.latency_ms.ravel(), true.energy_mj.ravel()))
    found = fit_inside(alone, measured)
    assert found.host == pytest.approx(1.3, abs=0.02) and found.time == pytest.approx(1.1, abs=0.02)
    assert found.power == pytest.approx(1.0, abs=0.03)
    assert fit_inside(alone, []) == ALONE


def test_how_long_the_host_waits_for_the_memory_is_found_whatever_else_boards_differ_in() -> None:
    alone = board(slowdown=2.0, host_us=(0.0, 100_000.0, 0.0))
    inside = replace(alone, host=alone.host.scaled(1.1), waiting=0.3)
    measured = []
    for net in (network(*[matmul(1000)] * 3), network(*[matmul(100)] * 40), network(*[relu(1 << 12)] * 40)):
        for slower in (0.9, 1.1):  # two boards
            true = surface(net, replace(inside, host=inside.host.scaled(slower)))
            measured.append(NetworkMeasurement(net, np.arange(GRID.size), true.latency_ms.ravel(), true.energy_mj.ravel()))
    found = fit_inside(alone, measured)
    assert found.waiting == pytest.approx(0.3, abs=0.05) and found.host == pytest.approx(1.1, abs=0.03)


def test_how_long_kernels_wait_for_what_the_host_moves_is_found() -> None:
    alone, inside = board(slowdown=2.0), board(slowdown=2.1)
    inside = replace(inside, host=inside.host.scaled(1.1), host_traffic=0.08)
    measured = []
    for net in (network(*[matmul(1000)] * 3), network(*[relu(64)] * 40), network(*[relu(1 << 19)] * 40)):
        true = surface(net, inside)
        measured.append(NetworkMeasurement(net, np.arange(GRID.size), true.latency_ms.ravel(), true.energy_mj.ravel()))
    found = fit_inside(alone, measured)
    assert found.host_traffic == pytest.approx(0.08, abs=0.01) and found.time == pytest.approx(1.05, abs=0.01)
    assert found.host == pytest.approx(1.1, abs=0.02) and found.power == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("events", [{}, {"matmul": 3.0}])
def test_graphs_tell_the_factor_of_kernels_and_the_start_of_a_graph(events: Mapping[str, float]) -> None:
    alone = board(slowdown=2.0)
    inside = replace(board(slowdown=2.2), host=alone.host.scaled(1.3).with_us({"eager": 50.0}))
    everywhere = np.arange(GRID.size)
    measured, graphs = [], []
    for net in (network(*[matmul(1000)] * 3), network(*[relu(64)] * 40), network(*[matmul(500), relu(64)] * 20)):
        true = surface(net, inside)
        measured.append(NetworkMeasurement(net, everywhere, true.latency_ms.ravel(), true.energy_mj.ravel()))
        gpu_ms = surface(net, inside, "sum").latency_ms.ravel()
        begun_ms = (20.0 + 0.1 * sum(events.get(launch.kind, 1.0) for launch in net.launches)) / 1e3
        energy_mj = surface(net, inside, "sum").energy_mj.ravel()
        graphs.append(GraphMeasurement(net, everywhere, gpu_ms + begun_ms, gpu_ms, energy_mj))
    found = fit_inside(alone, measured, graphs, events=events)
    assert found.time == pytest.approx(1.1, abs=0.01) and found.host == pytest.approx(1.3, abs=0.03)
    assert found.power == pytest.approx(1.0, abs=0.02)
    of_kinds = {f"graph.launch.{kind}": 0.1 * count for kind, count in events.items()}
    assert found.host_us == pytest.approx({"graph": 20.0, "graph.launch": 0.1, "eager": 50.0, **of_kinds}, rel=0.1)


def test_a_gpu_with_memory_of_its_own_waits_for_no_traffic_of_the_host() -> None:
    alone = board(slowdown=2.0)
    inside = replace(board(slowdown=2.1), host=alone.host.scaled(1.1), host_traffic=0.08)
    measured = []
    for net in (network(*[matmul(1000)] * 3), network(*[relu(64)] * 40), network(*[relu(1 << 19)] * 40)):
        true = surface(net, inside)
        measured.append(NetworkMeasurement(net, np.arange(GRID.size), true.latency_ms.ravel(), true.energy_mj.ravel()))
    found = fit_inside(alone, measured, own_memory=True)
    assert found.waiting == 0.0 and found.host_traffic == 0.0
