# SPDX-License-Identifier: Apache-2.0
"""Version 2 of the silicon: what goes on around a kernel is felt, and libraries are uneven."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.kernels.network import HostOp, KernelInvocation, Network
from jetdvfs.profiles.board import list_boards, load_board
from jetdvfs.profiles.lab.compare.fit import product
from jetdvfs.profiles.lab.measure.meters.simulated import TwinMeter
from jetdvfs.profiles.reference import reference_network
from jetdvfs.profiles.twin.silicon.chip import Chip, Clocks, LibraryUnevenness, load_chip
from jetdvfs.profiles.twin.silicon.irregular import mixed, seeds, spread, uniform
from jetdvfs.profiles.twin.silicon.silicon import Silicon, execute

STREAM = KernelInvocation("relu", "", ((16_000_000,),), (16_000_000,), "float32", {})


def top(board: str) -> Clocks:
    return Clocks.of([load_board(board).grid.top])


def even(board: str = "agx-xavier") -> Chip:
    """A chip whose library takes no better choice for one shape than for its neighbours."""
    chip = load_chip(board)
    alike = {kind: LibraryUnevenness(0.0, 0.0, 0.0, 0.0) for kind in chip.detail.irregular}
    return replace(chip, detail=replace(chip.detail, irregular=alike))


def watts(silicon: Silicon, call: KernelInvocation, rail: str, *, zeros: bool = False) -> float:
    done = silicon.kernels([call], top(silicon.board), zeros=zeros)
    return float(done.energy_j[rail][0, 0] / done.seconds[0, 0])


def test_zeros_cost_less_power_than_random_operands() -> None:
    silicon = Silicon(None, "agx-thor")
    call = product(1024, 1024, 1024, dtype="int8")
    assert watts(silicon, call, "VDD_GPU", zeros=True) < 0.8 * watts(silicon, call, "VDD_GPU")


def test_a_kernel_draws_less_inside_a_network_whose_values_are_not_random() -> None:
    silicon = Silicon(None)
    calls = [product(512, 512, 64 * size) for size in range(1, 9)]
    alone, inside = (silicon.kernels(calls, top("agx-xavier"), cold=cold) for cold in (False, True))
    ratio = inside.energy_j["GPU"] / alone.energy_j["GPU"]
    assert (ratio < 1.0).all() and np.ptp(ratio) > 0.02


@pytest.mark.parametrize("board", ["tx2", "xavier-nx", "orin-nano-8gb", "nano"])
def test_a_module_s_regulators_are_best_in_the_middle_of_their_range(board: str) -> None:
    silicon, clocks = Silicon(None, board), top(board)
    (rail,) = load_board(board).total_rails
    domains = [0.2, 2.0, 4.0, 30.0]
    drawn = silicon.chip.detail.regulators[rail]
    shares = [(out + drawn.fixed_w + drawn.share * out + drawn.per_w * out**2) / out for out in domains]
    assert shares[0] > shares[1] > shares[2] < shares[3]
    # What is drawn for work rises with what is drawn already.
    slow = Clocks(clocks.cpu_hz, clocks.gpu_hz, clocks.emc_hz * 0.5)
    parts = [name for name in silicon.rails if name != rail]
    idle = silicon.idle_rails_w(clocks)
    assert idle[rail] > sum(idle[name] for name in parts)
    assert silicon.idle_rails_w(slow)[rail] < idle[rail]


def test_idle_and_work_add_up_to_what_the_regulator_draws_for_both() -> None:
    silicon, clocks = Silicon(None, "tx2"), top("tx2")
    own = silicon.chip.detail.regulators["VDD_IN"]

    def behind(drawn: float) -> float:
        return float(max(np.roots([own.per_w, 1.0 + own.share, own.fixed_w - drawn])))

    idle = float(silicon.idle_rails_w(clocks)["VDD_IN"][0])
    both_w = idle + watts(silicon, STREAM, "VDD_IN")
    parts = (
        watts(silicon, STREAM, "VDD_SYS_GPU") + watts(silicon, STREAM, "VDD_SYS_SOC") + watts(silicon, STREAM, "VDD_SYS_DDR")
    )
    assert behind(both_w) - behind(idle) == pytest.approx(parts, rel=1e-6)


def test_dram_is_refreshed_more_often_when_hot_which_costs_bandwidth_and_power() -> None:
    second = Silicon(None)
    clocks = top("agx-xavier")
    cool, warm, hot, hottest = (
        float(second.kernels([STREAM], clocks, temperature_c=celsius).seconds[0, 0]) for celsius in (45.0, 80.0, 90.0, 100.0)
    )
    assert cool == warm < hot < hottest < 1.3 * cool
    dram = [second.idle_rails_w(clocks, celsius)["VDDRQ"][0] for celsius in (25.0, 45.0, 90.0, 100.0)]
    assert dram == sorted(dram) and dram[0] < dram[1] < dram[2] < dram[3]
    network = reference_network("vgg16")
    assert execute(network, second, clocks, 100.0).latency_s > execute(network, second, clocks, 45.0).latency_s


@pytest.mark.parametrize("board", list_boards())
def test_others_traffic_slows_what_streams_and_not_what_computes(board: str) -> None:
    silicon, clocks = Silicon(None, board), top(board)
    traffic = 0.3 * silicon.chip.memory.dram_bytes_per_cycle * float(clocks.emc_hz[0])
    alone, loaded = (
        silicon.kernels([STREAM, product(1, 64, 64)], clocks, others_bytes_s=bytes_s).seconds[:, 0]
        for bytes_s in (0.0, traffic)
    )
    assert loaded[0] > 1.1 * alone[0]
    assert loaded[1] < 1.05 * alone[1]


def test_what_the_host_s_calls_move_is_felt_by_kernels_and_what_the_gpu_moves_by_the_host() -> None:
    silicon, clocks = Silicon(None, "nano"), top("nano")
    few, many = (Network("", (), (STREAM, *[HostOp("view", "")] * count)) for count in (1, 100))
    running = [execute(network, silicon, clocks).gpu_busy_s[0] for network in (few, many)]
    assert 1.01 * running[0] < running[1] < 1.5 * running[0]
    assert silicon.waits(clocks, np.array([20e9])) > silicon.waits(clocks, np.array([1e9])) > 1.0


@pytest.mark.parametrize("board", list_boards())
@pytest.mark.parametrize("name", ["resnet18", "shufflenet_v2_x1_0"])
def test_no_network_is_slower_for_a_faster_host(board: str, name: str) -> None:
    """A host that waits for the GPU leaves it the memory, whatever its clock."""
    grid = load_board(board).grid
    run = execute(reference_network(name), Silicon(3, board), Clocks.over(grid))
    latency_s = run.latency_s.reshape(grid.shape)
    assert (np.diff(latency_s, axis=0) < 0.02 * latency_s[1:]).all()


def test_libraries_are_uneven_over_shapes_the_same_way_each_time() -> None:
    silicon, clocks = Silicon(None), top("agx-xavier")
    first = Silicon(None, chip=even())
    calls = [product(256, 256, 2048 + 8 * step) for step in range(64)]
    ratio = silicon.kernels(calls, clocks).seconds / first.kernels(calls, clocks).seconds
    assert 0.005 < np.std(np.log(ratio)) < 0.1
    assert (silicon.kernels(calls[:1], clocks).seconds == Silicon(None).kernels(calls[:1], clocks).seconds).all()


def test_individuals_take_other_choices_near_a_tie_and_other_chips_others_everywhere() -> None:
    calls = [product(256, 256, 2048 + 8 * step) for step in range(64)]

    def uneven(node: int, board: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        old, new = (Silicon(node, board, chip=chip).kernels(calls, top(board)).seconds[:, 0] for chip in (even(board), None))
        ratio = np.log(new / old)
        return np.asarray(ratio - ratio.mean())

    one, other, elsewhere = uneven(0, "agx-xavier"), uneven(1, "agx-xavier"), uneven(0, "xavier-nx")
    assert np.corrcoef(one, other)[0, 1] > 0.6
    assert abs(np.corrcoef(one, elsewhere)[0, 1]) < 0.5
    assert not np.allclose(one, other, atol=1e-4)


def test_what_looks_random_is_even_and_spread_as_it_says() -> None:
    exact, near = seeds([product(64, 64, 8 * size) for size in range(1, 4000)])
    assert len(set(exact.tolist())) == 3999 and len(set(near.tolist())) < 60
    for values in (uniform(exact), uniform(mixed(exact, 7, 3.0))):
        assert abs(values.mean() - 0.5) < 0.03 and values.min() >= 0.0 and values.max() < 1.0
    assert abs(spread(exact).mean()) < 0.06 and abs(spread(exact).std() - 1.0) < 0.05
    assert np.corrcoef(uniform(exact), uniform(mixed(exact, 7)))[0, 1] < 0.06


def test_issuing_costs_by_shape() -> None:
    calls = [product(1, 64, 64 + 8 * step) for step in range(40)]
    taken_s = Silicon(None).issue_s(calls, top("agx-xavier"))[:, 0]
    assert 0.006 < np.std(np.log(taken_s)) < 0.03  # as on five desktop GPUs


def test_timing_a_kernel_by_itself_adds_to_it_more_at_low_cpu_clocks() -> None:
    clocks = Clocks(np.array([2.2656e9, 0.5e9]), np.full(2, 1.377e9), np.full(2, 2.133e9))
    second = Silicon(None)
    fast, slow = np.broadcast_to(second.timing_s(clocks), 2)
    assert 0 < fast < slow < 60e-6
    small = product(1, 64, 64)
    meter = TwinMeter(Silicon(0))
    measured = float(np.median(meter.kernel_times_ms([small] * 50, [load_board("agx-xavier").grid.top] * 50)))
    assert measured > 1e3 * float(Silicon(0).kernels([small], top("agx-xavier")).seconds[0, 0]) + 1e3 * fast / 2


@pytest.mark.parametrize("board", ["orin-nano-8gb", "agx-thor"])
def test_over_current_protection_takes_pulses_from_heavy_products_that_no_clock_shows(board: str) -> None:
    silicon = Silicon(None, board)
    heavy = product(4096, 4096, 4096, dtype="float32" if board == "orin-nano-8gb" else "int8")
    clocks = top(board)
    low = Clocks(clocks.cpu_hz, 0.4 * clocks.gpu_hz, clocks.emc_hz)
    per_cycle = {
        zeros: [float(silicon.kernels([heavy], at, zeros=zeros).seconds[0, 0] * at.gpu_hz[0]) for at in (clocks, low)]
        for zeros in (False, True)
    }
    assert per_cycle[False][0] > 1.08 * per_cycle[False][1]
    assert per_cycle[False][0] > per_cycle[True][0]
    limit = silicon.chip.detail.limiter
    assert limit is not None
    rail = silicon.busy_rails[0] if board == "agx-thor" else "VDD_CPU_GPU_CV"
    assert watts(silicon, heavy, rail) < 1.2 * limit.watts
