# SPDX-License-Identifier: Apache-2.0
"""Every board has its silicon, as data: its rails, its clusters, its units; and each chip's behaviour goes with its version."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from jetdvfs.kernels.network import KernelInvocation, Network
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.errors import TwinError
from jetdvfs.profiles.lab.measure.meters.simulated import TwinMeter
from jetdvfs.profiles.reference import reference_network
from jetdvfs.profiles.twin.silicon.chip import CHIPS_DIR, Clocks, load_chip
from jetdvfs.profiles.twin.silicon.silicon import Silicon, execute
from jetdvfs.tests.support.boards.own_chips import OWN_CHIPS


@pytest.fixture(scope="module")
def resnet() -> Network:
    return reference_network("resnet18")


def top(board: str) -> Clocks:
    return Clocks.of([load_board(board).grid.top])


def product(dtype: str) -> KernelInvocation:
    params = {"m": 1024, "k": 1024, "n": 1024, "batch": 1, "bias": False}
    return KernelInvocation("matmul", "", ((1024, 1024),), (1024, 1024), dtype, params)


def convolution(dtype: str) -> KernelInvocation:
    pair = dict.fromkeys(("stride", "padding", "dilation"), (1, 1))
    params: dict[str, Any] = {"weight": (256, 256, 3, 3), "bias": False, **pair, "groups": 1}
    return KernelInvocation("conv2d", "", ((16, 256, 28, 28),), (16, 256, 28, 28), dtype, params)


@pytest.mark.parametrize("board", OWN_CHIPS)
def test_a_board_s_rails_are_those_its_monitors_measure(board: str, resnet: Network) -> None:
    description = load_board(board)
    silicon = Silicon(3, board)
    assert set(silicon.rails) == {rail for monitor in description.monitors for rail in monitor.channels} - {"NC"}
    run = execute(resnet, silicon, top(board))
    idle = silicon.idle_rails_w(top(board))
    assert set(run.rail_energy_j) == set(idle) == set(silicon.rails)
    for rail, energy in run.rail_energy_j.items():
        assert energy[0] >= 0.999 * idle[rail][0] * run.latency_s[0] > 0
    for total in set(description.within.values()):
        parts = [rail for rail, above in description.within.items() if above == total]
        for rails in (idle, run.rail_energy_j):
            assert sum(float(rails[part][0]) for part in parts) < float(rails[total][0]), total


@pytest.mark.parametrize("board", OWN_CHIPS)
def test_clusters_at_one_clock_idle_as_the_board_at_that_clock(board: str) -> None:
    silicon, clocks = Silicon(1, board), top(board)
    count = len(load_board(board).cpu_policies)
    assert len(silicon.chip.clusters) == count
    together = silicon.idle_rails_w(clocks, cluster_hz=[clocks.cpu_hz] * count)
    slower = silicon.idle_rails_w(clocks, cluster_hz=[clocks.cpu_hz, *[0.5 * clocks.cpu_hz] * (count - 1)])
    for rail, power in silicon.idle_rails_w(clocks).items():
        assert together[rail] == pytest.approx(power)
        assert slower[rail] <= power
    assert count == 1 or sum(map(np.sum, slower.values())) < sum(map(np.sum, together.values()))
    with pytest.raises(TwinError, match="clusters"):
        silicon.idle_rails_w(clocks, cluster_hz=[clocks.cpu_hz] * (count + 1))


@pytest.mark.parametrize("board", OWN_CHIPS)
def test_time_and_power_fall_and_rise_with_the_clocks(board: str, resnet: Network) -> None:
    grid = load_board(board).grid
    silicon = Silicon(None, board)
    slow = Clocks(np.array([grid.cpu_khz[-1] * 1e3]), np.array([float(grid.gpu_hz[0])]), np.array([float(grid.emc_hz[-1])]))
    run, slower = execute(resnet, silicon, top(board)), execute(resnet, silicon, slow)
    assert slower.latency_s[0] > 1.5 * run.latency_s[0]
    for rail in load_board(board).total_rails:
        slowly_w, fast_w = (each.rail_energy_j[rail][0] / each.latency_s[0] for each in (slower, run))
        assert slowly_w <= fast_w * (1 + 1e-9)  # what no clock changes draws the same


def test_a_board_whose_silicon_is_not_there_or_lacks_a_rail_is_refused() -> None:
    board = load_board("nano")
    unknown = replace(board, raw={**board.raw, "twin": {"silicon": "abacus"}})
    with pytest.raises(TwinError, match=r"abacus.*valid: agx-orin-32gb"):
        Silicon(0, unknown)
    other = replace(board, raw={**board.raw, "twin": {"silicon": "tx2"}})
    with pytest.raises(TwinError, match="no rail POM_5V_CPU, POM_5V_GPU, POM_5V_IN; valid: VDD_SYS_GPU"):
        Silicon(0, other)


def test_individuals_of_every_board_differ(resnet: Network) -> None:
    for board in OWN_CHIPS:
        times = {float(execute(resnet, Silicon(node, board), top(board)).latency_s[0]) for node in range(3)}
        assert len(times) == 3
        assert max(times) < 1.2 * min(times)


def test_powering_sms_down_costs_speed_and_saves_power() -> None:
    silicon = Silicon(None, "agx-orin-64gb")
    gated = Silicon(None, "agx-orin-64gb", chip=silicon.chip.gated(6))
    clocks = top("agx-orin-64gb")
    assert (
        gated.kernels([product("float32")], clocks).seconds[0, 0]
        > 2 * silicon.kernels([product("float32")], clocks).seconds[0, 0]
    )
    assert gated.idle_rails_w(clocks)["VDD_GPU_SOC"][0] < silicon.idle_rails_w(clocks)["VDD_GPU_SOC"][0]


def test_other_programs_show_on_the_rails_of_the_cpu_and_the_memory() -> None:
    silicon, clocks = Silicon(None, "tx2"), top("tx2")
    cores = silicon.other_rails_w(clocks, cores=2.0)
    assert (
        cores["VDD_SYS_CPU"][0] == pytest.approx(2 * silicon.other_rails_w(clocks, cores=1.0)["VDD_SYS_CPU"][0])
        and cores["VDD_SYS_DDR"][0] == 0
    )
    traffic = silicon.other_rails_w(clocks, dram_bytes_s=1e10)
    assert traffic["VDD_SYS_CPU"][0] == 0 < traffic["VDD_SYS_DDR"][0] < traffic["VDD_IN"][0]


def test_execution_says_what_its_kernels_moved(resnet: Network) -> None:
    run = execute(resnet, Silicon(None, "tx2"), top("tx2"))
    weights = 4 * 11.7e6
    assert weights < run.dram_bytes[0] < 10 * weights


def test_a_sensor_s_step_follows_from_its_shunt() -> None:
    assert Silicon(0, "agx-xavier").sensor_step_mw["GPU"] == 152.0
    readings = TwinMeter(Silicon(0, "nano")).idle_rails_mw([load_board("nano").grid.top])
    assert 0 < readings["POM_5V_CPU"][0] < readings["POM_5V_IN"][0]


def test_a_chip_like_another_says_only_what_differs(tmp_path: Path) -> None:
    shutil.copytree(CHIPS_DIR, tmp_path, dirs_exist_ok=True)
    (tmp_path / "half.yaml").write_text(
        "like: agx-orin-64gb\nversion: half-1\nsm_count: 8\nmemory: {corner: 4}\n", encoding="utf-8"
    )
    half, whole = load_chip("half", tmp_path), load_chip("agx-orin-64gb")
    assert (half.sm_count, half.version, half.memory.corner) == (8, "half-1", 4.0)
    assert half.memory.efficiency == whole.memory.efficiency and half.rails == whole.rails


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("like: tx2\nversion: x-1\nsm_counts: 2\n", "line 3: sm_counts: unknown; valid: name, version, seed, sm_count"),
        ("version: x-1\n", "line 1: seed: missing; expected a whole number"),
        ("like: tx2\nmemory: {corner: sharp}\n", "line 2: memory.corner: expected a number, got .sharp."),
        ("like: tx2\nrails: {VDD_IN: {everything: 1.0}}\n", "rails.VDD_IN.everything: expected gpu, cpu, .* or other"),
        ("[not, a, mapping]\n", "chip file"),
    ],
)
def test_a_wrong_chip_file_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    shutil.copytree(CHIPS_DIR, tmp_path, dirs_exist_ok=True)
    (tmp_path / "x.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(TwinError, match=said) as caught:
        load_chip("x", tmp_path)
    assert "\n" not in str(caught.value)
