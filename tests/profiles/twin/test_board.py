# SPDX-License-Identifier: Apache-2.0
"""How the simulated board moves: clocks, work, energy, heat and faults, in virtual time."""

from __future__ import annotations

import errno
import statistics
import threading
from itertools import pairwise

import pytest

from jetdvfs.kernels.engine.fusing import ENGINE_TYPES, engine_of
from jetdvfs.kernels.network import KernelInvocation, Network
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.errors import TwinError
from jetdvfs.profiles.reference import reference_network
from jetdvfs.profiles.twin.frames import FrameCost, FrameStream, blended, speeds
from jetdvfs.profiles.twin.silicon.chip import Clocks
from jetdvfs.profiles.twin.silicon.silicon import Silicon, execute
from jetdvfs.profiles.twin.simulated_board import SimulatedBoard, simulated_board
from jetdvfs.tests.support.boards.twin_fakes import (
    DEVFREQ,
    EMC,
    GPU,
    INA,
    POLICY,
    Shell,
    VirtualClock,
    fake_board,
    small_network,
)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def board(clock: VirtualClock) -> SimulatedBoard:
    return fake_board(clock)


@pytest.fixture
def shell(board: SimulatedBoard) -> Shell:
    return Shell(board)


def elapsed_ms(clock: VirtualClock, shell: Shell, value: object, path: str) -> float:
    start = clock.time
    shell.echo(value, path)
    return 1e3 * (clock.time - start)


def test_writers_wait_as_long_as_was_measured_and_only_when_a_clock_moves(clock: VirtualClock, shell: Shell) -> None:
    shell.echo("userspace", f"{POLICY}/scaling_governor")
    shell.echo("userspace", f"{DEVFREQ}/governor")
    shell.echo(1, f"{EMC}/mrq_rate_locked")
    for value, path, expected in (
        (1728000, f"{POLICY}/scaling_setspeed", 1.4),
        (905250000, f"{DEVFREQ}/userspace/set_freq", 5.3),
        (1600000000, f"{EMC}/rate", 8.7),
    ):
        assert elapsed_ms(clock, shell, value, path) == pytest.approx(expected, rel=0.25)
        assert elapsed_ms(clock, shell, value, path) == 0.0


def test_a_cpu_limit_returns_at_once_and_the_clock_follows(clock: VirtualClock, board: SimulatedBoard, shell: Shell) -> None:
    assert elapsed_ms(clock, shell, 2265600, f"{POLICY}/scaling_min_freq") == 0.0
    assert shell.cat(f"{POLICY}/scaling_cur_freq") == "2265600"
    assert shell.cat(f"{POLICY}/cpuinfo_cur_freq") == "1190400"
    clock.sleep(0.003)
    assert shell.cat(f"{POLICY}/cpuinfo_cur_freq") == "2265600"


@pytest.mark.parametrize("rate", [1377000000, 675750000, 318750000])
def test_frames_take_longer_at_a_lower_clock(board: SimulatedBoard, shell: Shell, rate: int) -> None:
    shell.pin_gpu(rate)
    frames = board.infer(small_network(), frames=50)
    assert sorted(frames.latencies_s)[25] == pytest.approx(0.010 * 1377e6 / rate, rel=0.02)


def test_a_frame_that_a_clock_change_overtakes_takes_a_time_in_between(
    clock: VirtualClock, board: SimulatedBoard, shell: Shell
) -> None:
    shell.pin_gpu(114750000)
    clock.at(clock.time + 0.060, lambda: shell.echo(1377000000, f"{DEVFREQ}/userspace/set_freq"))
    frame = board.infer(small_network())
    # Half of 120 ms at the old clock, 5 ms until the new one comes, the rest at a twelfth of the time.
    assert frame.latencies_s[0] == pytest.approx(0.060 + 0.005 + 0.055 / 12, abs=0.015)


def test_the_podgov_raises_the_gpu_under_load_and_lowers_it_afterwards(
    clock: VirtualClock, board: SimulatedBoard, shell: Shell
) -> None:
    board.infer(small_network(), frames=None, seconds=1.0)
    assert shell.cat(f"{DEVFREQ}/cur_freq") == "1377000000"
    assert int(shell.cat(f"{GPU}/load")) > 900
    assert int(shell.cat(f"{EMC}/rate")) > 204000000
    clock.sleep(1.0)
    assert shell.cat(f"{DEVFREQ}/cur_freq") == "114750000"
    assert shell.cat(f"{EMC}/rate") == "204000000"


def test_a_paced_stream_keeps_its_rate_and_counts_the_idle_power_in_between(board: SimulatedBoard, shell: Shell) -> None:
    shell.pin_gpu(1377000000)
    stream = board.infer(small_network(), fps=20.0, frames=None, seconds=2.0)
    assert len(stream.latencies_s) == 40
    assert stream.closed_at - stream.opened_at == pytest.approx(2.0)
    steps = [later - earlier for earlier, later in zip(stream.started_s, stream.started_s[1:], strict=False)]
    assert steps == pytest.approx([0.05] * 39)
    busy = sum(stream.latencies_s)
    drawn = stream.closing_j[0] - stream.opening_j[0]
    assert drawn == pytest.approx(3.0 * busy + 1.0 * (2.0 - busy))


def test_frames_of_one_process_run_one_after_the_other(board: SimulatedBoard, shell: Shell) -> None:
    shell.pin_gpu(1377000000)
    streams = []
    both = [
        threading.Thread(target=lambda: streams.append(board.infer(small_network(), fps=40.0, frames=20))) for _ in range(2)
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    spans = sorted(
        (start + waited, start + latency)
        for stream in streams
        for start, waited, latency in zip(stream.started_s, stream.waited_s, stream.latencies_s, strict=True)
    )
    assert len(spans) == 40
    assert all(end <= begin + 1e-9 for (_, end), (begin, _) in pairwise(spans))


def test_processes_share_the_gpu_slice_by_slice(board: SimulatedBoard, shell: Shell) -> None:
    shell.pin_gpu(1377000000)
    streams: dict[int, FrameStream] = {}
    handed_in = threading.Barrier(2)

    def run(pid: int) -> None:
        once = iter([handed_in.wait])

        def wait_for_the_other() -> bool:
            """BoardConstraints when this run's frames are handed in, and before time goes on."""
            for wait in once:
                wait()
            return False

        streams[pid] = board.infer(small_network(), fps=40.0, frames=20, pid=pid, abandoned=wait_for_the_other)

    both = [threading.Thread(target=run, args=(pid,)) for pid in (1, 2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    together_s = [late for stream in streams.values() for late in stream.latencies_s]
    waited_s = [late for stream in streams.values() for late in stream.waited_s]
    # Alone a frame takes 10 ms.
    assert sum(together_s) - sum(waited_s) == pytest.approx(40 * 0.010, rel=0.05)
    assert max(together_s) <= 2.3 * 0.010 and max(waited_s) > 0.001


def test_who_asks_for_little_of_the_gpu_gets_it_and_the_others_share_what_is_left() -> None:
    assert speeds([0.4, 0.5]) == [1.0, 1.0]
    assert speeds([1.0, 1.0]) == [0.5, 0.5]
    assert speeds([0.2, 0.8, 0.8]) == pytest.approx([1.0, 0.5, 0.5])
    assert speeds([0.0, 1.0]) == [1.0, 1.0]


def test_what_runs_at_the_same_time_adds_to_idling_as_fast_as_it_runs() -> None:
    one, other = FrameCost(0.01, (3.0,), 0.2, 1.0, 10e9), FrameCost(0.02, (5.0,), 0.4, 1.0, 20e9)
    both = blended([one, other], [0.5, 0.5], (1.0,))
    assert both.watts == pytest.approx([4.0]) and both[2:] == pytest.approx((0.3, 1.0, 15e9))
    assert blended([one], [1.0], (1.0,)) is one


def test_sensor_readings_and_energy_agree(clock: VirtualClock, board: SimulatedBoard, shell: Shell) -> None:
    before = board.rails.joules
    start, readings = clock.time, []
    for _ in range(400):
        readings.append(int(shell.cat(f"{INA}/in1_input")) * int(shell.cat(f"{INA}/curr1_input")) / 1e6)
        clock.sleep(0.010)
    with board.present():
        energy = board.rails.joules[0] - before[0]
    assert energy == pytest.approx(clock.time - start, rel=1e-6)
    assert sum(readings) / len(readings) == pytest.approx(1.0, rel=0.02)
    assert all(round(1e6 * watts / 19000) % 8 == 0 for watts in readings)


def test_a_sensor_that_averages_more_samples_is_less_noisy(clock: VirtualClock, shell: Shell) -> None:
    def spread() -> float:
        seen = []
        for _ in range(200):
            clock.sleep(0.010)
            seen.append(int(shell.cat(f"{INA}/curr1_input")))
        return statistics.pstdev(seen)

    noisy = spread()
    shell.echo(64, f"{INA}/samples")
    clock.sleep(1.0)
    assert spread() < 0.7 * noisy


def test_work_heats_the_board_and_the_fan_cools_it(clock: VirtualClock, board: SimulatedBoard, shell: Shell) -> None:
    zone = "/sys/class/thermal/thermal_zone1"
    assert shell.cat(f"{zone}/type") == "GPU-therm"
    idle = int(shell.cat(f"{zone}/temp"))
    board.infer(small_network(), frames=None, seconds=60.0)
    loaded = int(shell.cat(f"{zone}/temp"))
    assert loaded > idle + 2000
    shell.echo(255, "/sys/class/hwmon/hwmon2/pwm1")
    board.infer(small_network(), frames=None, seconds=60.0)
    assert int(shell.cat(f"{zone}/temp")) < loaded
    with pytest.raises(OSError, match="Invalid"):
        shell.echo(256, "/sys/class/hwmon/hwmon2/pwm1")


def test_a_scripted_refusal_happens_as_often_as_asked(board: SimulatedBoard, shell: Shell) -> None:
    board.faults.refuse(f"{POLICY}/scaling_max_freq", errno.EBUSY, times=2)
    for _ in range(2):
        with pytest.raises(OSError) as caught:
            shell.echo(1344000, f"{POLICY}/scaling_max_freq")
        assert caught.value.errno == errno.EBUSY
    shell.echo(1344000, f"{POLICY}/scaling_max_freq")
    assert shell.cat(f"{POLICY}/scaling_max_freq") == "1344000"


def test_a_stuck_clock_takes_requests_and_does_not_move(clock: VirtualClock, board: SimulatedBoard, shell: Shell) -> None:
    board.faults.stick("gpu")
    shell.pin_gpu(1377000000)
    clock.sleep(1.0)
    assert shell.cat(f"{DEVFREQ}/userspace/set_freq") == "1377000000"
    assert shell.cat(f"{DEVFREQ}/cur_freq") == "114750000"
    board.faults.stick("cpu", 564000)
    assert shell.cat(f"{POLICY}/scaling_cur_freq") == "1190400"
    assert shell.cat(f"{POLICY}/cpuinfo_cur_freq") == "564000"
    board.faults.clear()
    clock.sleep(0.1)
    assert shell.cat(f"{DEVFREQ}/cur_freq") == "1377000000"


def test_rails_fall_silent_files_vanish_and_reads_hang(clock: VirtualClock, board: SimulatedBoard, shell: Shell) -> None:
    board.faults.silence("GPU")
    clock.sleep(0.1)
    assert shell.cat(f"{INA}/curr1_input") == "0"
    assert shell.cat(f"{INA}/curr3_input") != "0"
    board.faults.vanish(board.tree.resolve(DEVFREQ))
    with pytest.raises(OSError, match="No such file"):
        shell.cat(f"{DEVFREQ}/cur_freq")
    board.faults.slow_down("/sys/devices/virtual/thermal/thermal_zone0/temp", 2.0)
    start = clock.time
    shell.cat("/sys/class/thermal/thermal_zone0/temp")
    assert clock.time - start == pytest.approx(2.0)


@pytest.mark.parametrize(
    "request_",
    [
        {"kind": "explode"},
        {"kind": "refuse"},
        {"kind": "refuse", "path": "/x", "errno": "NO"},
        {"kind": "stuck", "clock": "dla"},
    ],
)
def test_a_fault_that_makes_no_sense_is_named(board: SimulatedBoard, request_: dict[str, str]) -> None:
    with pytest.raises(TwinError, match="fault"):
        board.faults.script(request_)


def test_there_is_no_silicon_for_an_individual_below_zero() -> None:
    with pytest.raises(TwinError, match="node"):
        simulated_board("agx-xavier", node=-1)


def test_individuals_differ_in_what_their_rails_draw() -> None:
    drawn = {simulated_board("agx-xavier", node, VirtualClock()).watts for node in range(3)}
    assert len(drawn) == 3


@pytest.mark.parametrize("way", ENGINE_TYPES)
def test_engines_run_applications_networks_where_that_is_asked_for(way: str) -> None:
    engine, dtype = engine_of(way)
    network = reference_network("resnet18")
    board = simulated_board("agx-xavier", 2, VirtualClock(), engine=engine, dtype=dtype)
    stream = board.infer(network, frames=20)
    true = execute(network, Silicon(2, engine=engine, dtype=dtype), Clocks.of([board.configuration]), board.thermal.hottest_c)
    assert statistics.median(stream.latencies_s) == pytest.approx(float(true.latency_s[0]), rel=0.05)


def test_a_network_that_the_silicon_does_not_know_is_refused_to_whom_asks_and_to_nobody_else() -> None:
    board = simulated_board("agx-xavier", 2, VirtualClock())
    unknown = KernelInvocation("linalg_inv_ex", "", ((8, 8),), (8, 8), "float32", {})
    with pytest.raises(TwinError, match="knows no kernels of kind 'linalg_inv_ex'"):
        board.infer(Network("inverse", (), (unknown,)))
    assert Shell(board).cat(f"{POLICY}/scaling_governor")
    assert board.infer(small_network()).done


def test_frames_cost_what_the_silicon_says_at_the_clocks_that_are_set() -> None:
    relu = KernelInvocation("relu", "relu", ((1, 64, 112, 112),), (1, 64, 112, 112), "float32", {}, 802816, 6422528)
    network = Network("relus", (), (relu,) * 40)
    board = simulated_board("agx-xavier", 2, VirtualClock())
    shell = Shell(board)
    shell.echo("performance", f"{POLICY}/scaling_governor")
    shell.pin_gpu(675750000)
    shell.echo(1, f"{EMC}/mrq_rate_locked")
    shell.echo(800000000, f"{EMC}/rate")
    stream = board.infer(network, frames=40)
    true = execute(network, Silicon(2), Clocks.of([board.configuration]), board.thermal.hottest_c)
    assert statistics.median(stream.latencies_s) == pytest.approx(float(true.latency_s[0]), rel=0.02)
    drawn = [after - before for before, after in zip(stream.opening_j, stream.closing_j, strict=True)]
    seen = dict(zip(board.rails.rails, drawn, strict=True))
    expected = Silicon(2).sensed(true.rail_energy_j)
    for rail in ("GPU", "CPU", "SOC", "VDDRQ"):
        assert seen[rail] / sum(stream.latencies_s) == pytest.approx(float(expected[rail][0] / true.latency_s[0]), rel=0.02)


def test_every_path_that_the_board_file_names_is_there(board: SimulatedBoard) -> None:
    description = load_board("agx-xavier")
    emc, gpu, rails = (description.section(name) for name in ("emc", "gpu", "rails"))
    for path in (emc["bpmp"], emc["tables"], emc["cap"], *emc["activity"], *gpu["devfreq"], gpu["device"], rails["driver"]):
        assert board.tree.exists(board.tree.resolve(path)), path
