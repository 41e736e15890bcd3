# SPDX-License-Identifier: Apache-2.0
"""Version 1 of the simulated silicon: calibrated, plausible over its clocks, different from node to node, and frozen."""

from __future__ import annotations

import ast
from typing import Any

import msgspec
import numpy as np
import pytest

from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.network import Call, HostOp, KernelInvocation, Network
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.errors import BoardDescriptionError, TwinError
from jetdvfs.profiles.lab.measure.meters.simulated import TwinMeter
from jetdvfs.profiles.lab.measure.sampling import MOST_ELEMENTS, MOST_MACS, Sampler, random_configurations
from jetdvfs.profiles.lab.paper.published import PAPER, TOLERANCE, measure
from jetdvfs.profiles.reference import reference_names, reference_network
from jetdvfs.profiles.twin.silicon.chip import Chip, Clocks, LibraryUnevenness, load_chip
from jetdvfs.profiles.twin.silicon.silicon import LAUNCH_QUEUE, Silicon, execute
from jetdvfs.tests.support.paths import ROOT, SHARED_DATA

GRID = load_board("agx-xavier").grid
TOP = Clocks.of([GRID.top])


@pytest.fixture(scope="module")
def networks() -> dict[str, Network]:
    return {name: reference_network(name) for name in reference_names()}


def conv(channels: int, side: int, filters: int, kernel: int, groups: int = 1) -> KernelInvocation:
    params: dict[str, Any] = {
        "weight": (filters, channels // groups, kernel, kernel),
        "bias": False,
        "stride": (1, 1),
        "padding": (kernel // 2, kernel // 2),
        "dilation": (1, 1),
        "groups": groups,
    }
    return KernelInvocation("conv2d", "", ((1, channels, side, side),), (1, filters, side, side), "float32", params)


def pointwise(kind: str, elements: int) -> KernelInvocation:
    return KernelInvocation(kind, "", ((1, elements),), (1, elements), "float32", {})


def even() -> Chip:
    """A chip whose library takes no better choice for one shape than for its neighbours."""
    chip = load_chip("agx-xavier")
    alike = {kind: LibraryUnevenness(0.0, 0.0, 0.0, 0.0) for kind in chip.detail.irregular}
    return msgspec.structs.replace(chip, detail=msgspec.structs.replace(chip.detail, irregular=alike))


def at(cpu: int = -1, gpu: int = -1, emc: int = -1) -> FrequencyConfiguration:
    return FrequencyConfiguration(GRID.cpu_khz[cpu], GRID.gpu_hz[gpu], GRID.emc_hz[emc])


@pytest.mark.parametrize("name", PAPER)
def test_inference_time_at_top_clocks_is_the_papers(name: str, networks: dict[str, Network]) -> None:
    row = measure(networks[name], nodes=5)
    assert abs(row.error(PAPER[name])) < TOLERANCE
    # The paper times kernels one by one, which adds up to more than the network: compare shares of all kernels' time.
    ours, theirs = row.shares[0] / row.all_kernels, PAPER[name].shares[0] / PAPER[name].all_kernels
    assert abs(ours - theirs) < (0.2 if name == "shufflenet_v2_x1_0" else 0.1)


def test_shufflenet_is_bound_by_the_host_and_the_others_by_the_gpu(networks: dict[str, Network]) -> None:
    busy = {name: execute(net, Silicon(), TOP) for name, net in networks.items()}
    share = {name: float(run.gpu_busy_s[0] / run.latency_s[0]) for name, run in busy.items()}
    assert 0.38 < share.pop("shufflenet_v2_x1_0") < 0.5
    assert min(share.values()) > 0.9


def test_low_cpu_clocks_turn_small_networks_into_host_bound_ones(networks: dict[str, Network]) -> None:
    run = execute(networks["mobilenet_v2"], Silicon(), Clocks.of([at(cpu=0), at()]))
    assert run.gpu_busy_s[0] / run.latency_s[0] < 0.2
    assert run.latency_s[0] > 8 * run.latency_s[1]


def test_every_rail_of_an_inference_draws_at_least_its_idle_energy(networks: dict[str, Network]) -> None:
    clocks = Clocks.over(GRID)
    silicon = Silicon(4)
    run = execute(networks["resnet18"], silicon, clocks)
    idle = silicon.idle_rails_w(clocks)
    assert set(run.rail_energy_j) == set(silicon.rails)
    for rail, energy in run.rail_energy_j.items():
        assert np.all(energy >= idle[rail] * run.latency_s * 0.999)
    total = sum(run.rail_energy_j[rail] for rail in ("GPU", "CPU", "SOC", "VDDRQ")) / run.latency_s
    assert 12 < total[-1] < 25
    assert total[0] < 3


def test_latency_never_falls_when_only_the_gpu_clock_falls(networks: dict[str, Network]) -> None:
    run = execute(networks["googlenet"], Silicon(2), Clocks.over(GRID))
    latency = run.latency_s.reshape(GRID.shape)
    assert np.all(np.diff(latency, axis=1) < 0.025 * latency[:, 1:])  # libraries choose otherwise at other clocks


def test_a_full_launch_queue_makes_the_host_wait() -> None:
    long = conv(256, 56, 256, 3)
    many = Network("many", (), (long,) * (LAUNCH_QUEUE + 400))
    run = execute(many, Silicon(), TOP)
    assert run.gpu_busy_s[0] == pytest.approx(run.latency_s[0], rel=0.02)
    few = execute(Network("few", (), (HostOp("view", ""),)), Silicon(), TOP)
    assert few.gpu_busy_s[0] == 0 and few.latency_s[0] == pytest.approx(few.host_busy_s[0], rel=0.5)


def test_memory_clock_matters_to_streams_and_gpu_clock_to_arithmetic() -> None:
    silicon = Silicon()
    clocks = Clocks.of([at(), at(emc=2), at(gpu=5)])
    stream = silicon.kernels([pointwise("relu", 8_000_000)], clocks).seconds[0]
    product = silicon.kernels([conv(256, 56, 256, 3)], clocks).seconds[0]
    assert stream[1] > 2 * stream[0] and stream[2] < 1.35 * stream[0]
    assert product[1] < 1.6 * product[0] and product[2] > 1.7 * product[0]


def test_bandwidth_has_its_knee_near_700_mhz_at_the_top_memory_clock() -> None:
    stream = pointwise("relu", 8_000_000)
    seconds = Silicon().kernels([stream], Clocks.of([at(gpu=index) for index in range(len(GRID.gpu_hz))])).seconds[0]
    rate = 64e6 / seconds
    assert rate[-1] / rate[7] < 1.12  # 829 MHz is nearly as good as 1377
    assert rate[7] / rate[2] > 1.8  # 319 MHz is not


def test_arithmetic_that_the_chip_does_in_blocks_costs_in_steps() -> None:
    filters = np.arange(64, 600)
    seconds = Silicon(chip=even()).kernels([conv(256, 28, int(count), 1) for count in filters], TOP).seconds[:, 0]
    steps = np.diff(seconds) / seconds[:-1]
    assert np.max(steps) > 0.05  # a block too many
    assert np.median(np.abs(steps)) < 0.02  # and in between, little


def test_nodes_differ_as_the_papers_did(networks: dict[str, Network]) -> None:
    clocks = Clocks.of([at(cpu=14, gpu=7, emc=4), at()])

    def spread(name: str) -> tuple[float, float]:
        latency_s, power_w = [], []
        for node in range(13):
            silicon = Silicon(node)
            run = execute(networks[name], silicon, clocks)
            rails = silicon.sensed(run.rail_energy_j)
            latency_s.append(run.latency_s)
            power_w.append(sum(rails[rail] for rail in ("GPU", "CPU", "SOC", "VDDRQ")) / run.latency_s)
        latency, power = (float(np.mean(np.ptp(x, axis=0) / np.median(x, axis=0))) for x in (latency_s, power_w))
        return latency, power

    time_vgg, power_vgg = spread("vgg16")
    time_shuffle, power_shuffle = spread("shufflenet_v2_x1_0")
    assert time_vgg < 0.06 < time_shuffle < 0.2
    assert 0.15 < power_vgg < 0.27
    assert 0.18 < power_shuffle < 0.38


def test_the_same_node_is_always_the_same_chip_and_any_number_is_a_node() -> None:
    call = conv(64, 56, 64, 3)
    again = [Silicon(1_000_003).kernels([call], TOP).seconds[0, 0] for _ in range(2)]
    assert again[0] == again[1]
    assert again[0] != Silicon(1_000_004).kernels([call], TOP).seconds[0, 0]


def test_silicon_refuses_boards_it_is_not() -> None:
    with pytest.raises(BoardDescriptionError, match="agx-xavier"):
        Silicon(0, "orin-nano")
    with pytest.raises(TwinError, match="non-negative"):
        Silicon(-1)


def test_heat_shows_as_leakage_only() -> None:
    cool, hot = (Silicon().idle_rails_w(TOP, temperature) for temperature in (45.0, 80.0))
    assert hot["GPU"][0] > 1.3 * cool["GPU"][0]
    assert hot["VDDRQ"][0] == cool["VDDRQ"][0]  # refreshed no more often below 85 degrees


def test_meter_is_reproducible_and_close_to_the_truth() -> None:
    silicon = Silicon(3)
    call = conv(128, 28, 128, 3)
    configurations = random_configurations(GRID, 300, np.random.default_rng(0))
    clocks = Clocks.of(configurations)
    truth = 1e3 * (silicon.kernels([call], clocks).seconds[0] + silicon.timing_s(clocks))
    measured = TwinMeter(silicon, 5).kernel_times_ms([call] * 300, configurations)
    assert np.array_equal(measured, TwinMeter(silicon, 5).kernel_times_ms([call] * 300, configurations))
    assert not np.array_equal(measured, TwinMeter(silicon, 6).kernel_times_ms([call] * 300, configurations))
    assert 0.002 < np.std(measured / truth) < 0.02
    assert abs(np.median(measured / truth) - 1) < 0.005


def test_meter_power_is_what_its_sensor_can_say() -> None:
    silicon = Silicon(3)
    configurations = random_configurations(GRID, 300, np.random.default_rng(0))
    rails = TwinMeter(silicon).idle_rails_mw(configurations)
    truth = silicon.sensed(silicon.idle_rails_w(Clocks.of(configurations)))
    for rail in silicon.rails:
        assert np.all(np.abs(rails[rail] - 1e3 * truth[rail]) < silicon.sensor_step_mw[rail] / 2 + 0.09 * 1e3 * truth[rail])


def test_repeating_a_small_kernel_takes_as_long_as_issuing_it() -> None:
    power = TwinMeter(Silicon()).kernel_powers([pointwise("relu", 100)] * 2, [at(cpu=0), at()])
    assert np.all(power.period_ms >= power.gpu_ms * 0.95)
    assert power.period_ms[0] == pytest.approx(power.host_ms[0])
    assert power.gpu_ms[0] < 0.2 * power.period_ms[0]


def test_host_time_does_not_depend_on_the_gpu() -> None:
    calls: list[Call] = [conv(512, 28, 512, 3), HostOp("view", "")]
    fast, slow = TwinMeter(Silicon()).host_time_ms(calls, [at(), at(gpu=0)])
    assert fast == pytest.approx(slow, rel=0.1)
    assert fast < 0.1


def test_sampled_kernels_stay_in_the_networks_ranges(networks: dict[str, Network]) -> None:
    sampler = Sampler(list(networks.values()), seed=1)
    widest = max(launch.inputs[0][1] for net in networks.values() for launch in net.launches if launch.kind == "batch_norm")
    for kind in sampler.kinds:
        calls = sampler.draw(kind, 200, real_share=0.5)
        assert {call.kind for call in calls} == {kind}
        assert all(call.flops <= 2 * MOST_MACS and np.prod(call.output) <= MOST_ELEMENTS for call in calls)
        assert all(call.bytes > 0 for call in calls)
    assert max(call.inputs[0][1] for call in sampler.draw("batch_norm", 500)) <= 1.1 * widest + 1
    assert [c.signature for c in Sampler(list(networks.values()), 7).draw("cat", 20)] == [
        c.signature for c in Sampler(list(networks.values()), 7).draw("cat", 20)
    ]


def test_sampled_kernels_count_work_as_decomposition_does(networks: dict[str, Network]) -> None:
    """Per element of output, a random kernel's FLOPs and bytes are those of a real one with the same parameters."""
    only = Network("one", (), tuple(networks["vgg16"].launches[:1]))
    real = only.launches[0]
    for drawn in Sampler([only]).draw("conv2d", 50):
        weights, pixels = real.params["weight"], np.prod(drawn.output[2:])
        assert isinstance(weights, tuple)
        per_pixel = drawn.inputs[0][1] * drawn.output[1] * weights[2] * weights[3]
        assert drawn.flops == 2 * per_pixel * pixels
        assert drawn.bytes == 4 * (np.prod(drawn.inputs[0]) + np.prod(drawn.output) + per_pixel + drawn.output[1])
    first = real.inputs[0][1] * real.output[1] * 9
    assert real.flops == 2 * first * np.prod(real.output[2:])
    assert real.bytes == 4 * (np.prod(real.inputs[0]) + np.prod(real.output) + first + real.output[1])


def test_silicon_shares_no_formula_with_the_predictor() -> None:
    """No cost model is imported, and the predictor's own work counts are never read."""
    files = sorted((ROOT / "profiles" / "twin" / "silicon").glob("*.py"))
    assert len(files) >= 6
    for file in (*files, ROOT / "profiles" / "lab" / "measure" / "meters" / "simulated.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert not set((node.module or "").split(".")) & {"features", "roofline", "cost", "ensemble", "timeline"}, file
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("flops", "bytes"), f"{file}:{node.lineno}"


def test_counts_of_work_in_an_invocation_change_nothing() -> None:
    call = conv(64, 56, 64, 3)
    lying = msgspec.structs.replace(call, flops=10**15, bytes=1)
    assert Silicon().kernels([call], TOP).seconds[0, 0] == Silicon().kernels([lying], TOP).seconds[0, 0]


@pytest.mark.shared_data
def test_bandwidth_follows_a_measured_tx2_over_both_clocks() -> None:
    """Relative to its own top, streaming bandwidth behaves like a real Jetson's (it peaks at other absolute clocks)."""
    file = SHARED_DATA / "tx2-dvfs" / "mixbench_tx2_roofline_long.csv.gz"
    if not file.exists():
        pytest.skip(f"measured data not found at {file}")
    import csv
    import gzip

    rates: dict[tuple[float, float], list[float]] = {}
    with gzip.open(file, "rt") as stream:
        for row in csv.DictReader(stream):
            if row["precision"] == "fp32" and row["compute_iters"] == "0":
                rates.setdefault((float(row["gpu_hz"]), float(row["emc_hz"])), []).append(float(row["gbps"]))
    median = {key: float(np.median(values)) for key, values in rates.items()}
    gpus, emcs = (sorted({key[axis] for key in median}) for axis in (0, 1))
    stream_call = pointwise("relu", 16_000_000)

    def rate(gpu: float, emc: float) -> float:
        return 1.0 / float(Silicon().kernels([stream_call], Clocks(*(np.array([v]) for v in (2e9, gpu, emc)))).seconds[0, 0])

    for gpu in (gpus[4], gpus[6], gpus[-1]):
        real = median[gpu, emcs[-1]] / median[gpus[-1], emcs[-1]]
        ours = rate(gpu, 2.133e9) / rate(gpus[-1], 2.133e9)
        assert ours == pytest.approx(real, rel=0.2)
    for emc in (emc for emc in emcs if emc > 200e6):
        real = median[gpus[-1], emc] / median[gpus[-1], emcs[-1]]
        ours = rate(gpus[-1], emc * 2133 / 1866) / rate(gpus[-1], 2.133e9)
        assert ours == pytest.approx(real, rel=0.2)
