# SPDX-License-Identifier: Apache-2.0
"""Clocks that somebody else changes while a lease is held: noticed, named, yielded to, set again."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetdvfs.daemon.config import Config
from jetdvfs.daemon.hardware.clocks.driver import Clusters
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.daemon.hardware.power_modes import CONF, STATUS
from jetdvfs.daemon.leases.controller import Controller
from jetdvfs.daemon.leases.drift import CALM_S, COOLS_S, FIRST_WAIT_S, LONGEST_WAIT_S, Backoff
from jetdvfs.daemon.leases.lease import Holder, Lease
from jetdvfs.daemon.planning.lease_plan import LeasePlan
from jetdvfs.daemon.system.sleep import SleepDetector
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.tests.support.boards.hardware_kernel import CAP, CPU, CPUFREQ, EMC, GPU, FakeClock, Kernel
from jetdvfs.tests.support.daemons.board_daemon import CPU as CPU_FILES
from jetdvfs.tests.support.daemons.board_daemon import EMC as EMC_FILES
from jetdvfs.tests.support.daemons.board_daemon import GPU as GPU_FILES
from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon, eventually, served_board

HELD = FrequencyConfiguration(1190400, 675750000, 1331200000)
MODES = """
< PARAM TYPE=CLOCK NAME=GPU >
MAX_FREQ /sys/devices/17000000.gv11b/devfreq/17000000.gv11b/max_freq
< POWER_MODEL ID=0 NAME=MAXN >
GPU MAX_FREQ -1
< POWER_MODEL ID=1 NAME=MODE_10W >
GPU MAX_FREQ 520000000
"""


class Held:
    """A board in memory with one lease; ``tick`` lets half a second pass and the controller look."""

    def __init__(self, kernel: Kernel, folder: Path, configuration: FrequencyConfiguration = HELD) -> None:
        self.kernel, self.clock = kernel, FakeClock()
        self.hardware = Hardware.probe(kernel, self.clock, baseline=folder / "baseline.json")
        self.asleep_s = 0.0
        sleep = SleepDetector(self.clock.monotonic, lambda: self.clock.monotonic() + self.asleep_s)
        self.controller = Controller(self.hardware, Config(), self.clock.monotonic, slept=sleep.over)
        self.lease: Lease = self.controller.hold(Holder("somebody", 1, 0, "app"), LeasePlan(configuration), "test")[0]
        kernel.written.clear()

    def tick(self, seconds: float = 0.5) -> tuple[str, ...]:
        for _ in range(round(seconds / 0.5)):
            self.clock.sleep(0.5)
            self.controller.tend()
        return self.controller.troubles


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(Kernel(), tmp_path)


def test_a_board_that_stays_as_set_is_left_alone(held: Held) -> None:
    assert held.tick(30) == ()
    assert held.kernel.written == []


def test_a_clock_that_was_set_otherwise_is_named_then_set_again(held: Held) -> None:
    held.kernel.take(f"{CPU}/scaling_setspeed", "2265600")
    first, second = held.tick()
    assert first == "CPU clock: set to 2265.6 MHz by another program; 1190.4 MHz was held"
    assert second == "clocks set by other programs are left to them for 2 s more"
    assert held.kernel.written == []
    assert held.tick(FIRST_WAIT_S) == ()
    assert held.hardware.current() == HELD


def test_a_lower_limit_raised_above_what_is_held_is_undone_too(held: Held) -> None:
    held.kernel.take(f"{GPU}/min_freq", "1377000000")
    held.kernel.measure[f"{GPU}/cur_freq"] = "1377000000"
    assert held.tick()[0] == "GPU clock: set to 1377 MHz by another program; 675.75 MHz was held"
    del held.kernel.measure[f"{GPU}/cur_freq"]
    assert held.tick(FIRST_WAIT_S) == ()
    assert int(held.kernel.store[f"{GPU}/min_freq"]) <= HELD.gpu_hz
    assert held.hardware.current() == HELD


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (f"{CPU}/scaling_governor", "schedutil", "CPU clock: taken over (schedutil); 1190.4 MHz was held"),
        (f"{GPU}/governor", "nvhost_podgov", "GPU clock: taken over (nvhost_podgov); 675.75 MHz was held"),
        (f"{EMC}/mrq_rate_locked", "0", "memory clock: taken over (unlocked); 1331.2 MHz was held"),
        (f"{EMC}/rate", "800000000", "memory clock: set to 800 MHz by another program; 1331.2 MHz was held"),
    ],
)
def test_every_clock_is_watched(held: Held, path: str, value: str, text: str) -> None:
    held.kernel.take(path, value)
    assert text in held.tick()
    assert held.tick(FIRST_WAIT_S) == ()
    assert held.hardware.current() == HELD


def test_who_insists_is_left_alone_for_longer_and_longer(held: Held) -> None:
    taken_back, waits = held.clock.now, []
    for _ in range(5):
        held.kernel.take(f"{GPU}/governor", "nvhost_podgov")
        while held.kernel.store[f"{GPU}/governor"] != "userspace":
            held.tick()
        waits.append(held.clock.now - taken_back)
        taken_back = held.clock.now
    assert [round(wait) for wait in waits] == [2, 4, 8, 16, 32]


def test_a_clock_that_stays_taken_is_logged_once_and_not_as_it_counts_down(
    held: Held, caplog: pytest.LogCaptureFixture
) -> None:
    held.kernel.take(f"{GPU}/governor", "nvhost_podgov")
    assert len({held.tick() for _ in range(3)}) > 1
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "GPU clock: taken over (nvhost_podgov); 675.75 MHz was held"
    ]


def test_waiting_ends_at_five_minutes_and_begins_anew_after_a_calm_minute() -> None:
    clock = FakeClock()
    backoff = Backoff(clock.monotonic)

    def waited() -> float:
        started = clock.now
        while not backoff.due():
            clock.sleep(1)
        return clock.now - started

    assert max(waited() for _ in range(12)) == LONGEST_WAIT_S
    backoff.settle()
    clock.sleep(CALM_S)
    assert waited() == FIRST_WAIT_S


def test_what_others_set_is_theirs_when_the_lease_ends_before_it_was_set_again(held: Held) -> None:
    held.kernel.take(f"{CPU}/scaling_governor", "performance")
    held.tick()
    held.controller.release(held.lease)
    assert held.kernel.store[f"{CPU}/scaling_governor"] == "performance"
    assert held.kernel.store[f"{GPU}/governor"] == "nvhost_podgov"


def test_limits_that_are_lowered_are_obeyed_at_once_and_left_when_they_are_raised(held: Held) -> None:
    held.kernel.take(f"{GPU}/max_freq", "318750000")
    held.tick()
    assert held.hardware.current().gpu_hz == 318750000
    assert held.tick() == ("GPU clock: 675.75 MHz is needed, the limits in force allow 318.75 MHz",)
    held.kernel.written.clear()
    held.tick(20)
    assert held.kernel.written == []
    held.kernel.take(f"{GPU}/max_freq", "1377000000")
    assert held.tick(1) == ()
    assert held.hardware.current() == HELD


def test_a_power_mode_below_what_is_held_is_obeyed(tmp_path: Path) -> None:
    kernel = Kernel()
    kernel.store |= {CONF: MODES, STATUS: "pmode:0000"}
    held = Held(kernel, tmp_path)
    kernel.store[STATUS] = "pmode:0001"
    kernel.take(f"{GPU}/max_freq", "520000000")
    held.tick(1)
    assert held.hardware.current().gpu_hz == 420750000
    kernel.take(f"{GPU}/max_freq", "1377000000")
    assert held.tick() == ("GPU clock: 675.75 MHz is needed, the limits in force allow 420.75 MHz",)


def test_a_clock_that_is_only_slow_is_named_and_nothing_is_written(held: Held) -> None:
    held.kernel.measure[f"{CPU}/cpuinfo_cur_freq"] = "597600"
    assert held.tick(60) == ("CPU clock: set to 1190.4 MHz, measured 597.6 MHz: throttled, or stuck",)
    assert held.kernel.written == []
    del held.kernel.measure[f"{CPU}/cpuinfo_cur_freq"]
    assert held.tick() == ()


def test_limits_lowered_against_heat_are_not_taken_for_somebodys(tmp_path: Path) -> None:
    kernel, zone = Kernel(), "/sys/class/thermal/thermal_zone0"
    kernel.store |= {f"{zone}/trip_point_0_type": "passive", f"{zone}/trip_point_0_temp": "90000"}
    held = Held(kernel, tmp_path)
    kernel.store[f"{zone}/temp"] = "91000"
    kernel.measure |= {f"{CPU}/scaling_max_freq": "806400", f"{CPU}/cpuinfo_cur_freq": "806400"}
    hot = "CPU clock: set to 1190.4 MHz, cut down: CPU-therm is past its passive trip at 90 C"
    assert held.tick(30) == (hot,)
    kernel.store[f"{zone}/temp"] = "60000"
    (cooling,) = held.tick(COOLS_S - 1)
    assert cooling.startswith(
        "CPU clock: set to 1190.4 MHz, still cut down after heat (CPU-therm is past its passive trip at 90 C)"
    )
    assert kernel.written == []
    kernel.measure.clear()
    assert held.tick() == ()


def test_limits_that_stay_low_long_after_heat_are_somebodys(tmp_path: Path) -> None:
    kernel, zone = Kernel(), "/sys/class/thermal/thermal_zone0"
    kernel.store |= {f"{zone}/trip_point_0_type": "passive", f"{zone}/trip_point_0_temp": "90000"}
    held = Held(kernel, tmp_path)
    kernel.store[f"{zone}/temp"] = "91000"
    kernel.measure |= {f"{CPU}/scaling_max_freq": "806400", f"{CPU}/cpuinfo_cur_freq": "806400"}
    held.tick(5)
    kernel.store[f"{zone}/temp"] = "60000"
    held.tick(COOLS_S + 2)
    assert held.controller.applied is not None and held.controller.applied.requested.cpu_khz == 806400


def test_limits_of_ours_that_heat_lowers_are_given_back_whole(tmp_path: Path) -> None:
    kernel, zone = Kernel(gpu_userspace=False), "/sys/class/thermal/thermal_zone0"
    kernel.store |= {f"{zone}/trip_point_0_type": "passive", f"{zone}/trip_point_0_temp": "90000"}
    held = Held(kernel, tmp_path)
    kernel.store[f"{zone}/temp"] = "91000"
    cut = {f"{GPU}/{name}": "318750000" for name in ("min_freq", "max_freq", "cur_freq")}
    kernel.measure |= cut
    hot = "GPU clock: set to 675.75 MHz, cut down: CPU-therm is past its passive trip at 90 C"
    assert held.tick(10) == (hot,)
    assert kernel.written == []
    held.controller.hold(Holder("other", 2, 0, "app"), LeasePlan(HELD._replace(gpu_hz=828750000)), "while it is hot")
    assert kernel.store[f"{GPU}/max_freq"] == "828750000"
    held.controller.restore()
    kernel.measure.clear()
    assert (kernel.store[f"{GPU}/min_freq"], kernel.store[f"{GPU}/max_freq"]) == ("114750000", "1377000000")


def test_a_cluster_that_goes_offline_and_comes_back_is_followed(tmp_path: Path) -> None:
    kernel = Kernel(load_board("orin-nano-8gb"), emc=("bpmp",))
    second = f"{CPUFREQ}/policy4"
    held = Held(kernel, tmp_path, FrequencyConfiguration(1190400, 612000000, 2133000000))
    gone = {path: kernel.store.pop(path) for path in list(kernel.store) if path.startswith(second)}
    assert held.tick(5) == ()
    assert len(held.hardware.read()["cpu_khz"]) == 1
    kernel.store |= gone | {f"{second}/scaling_governor": "schedutil"}
    assert "CPU clock: taken over (schedutil); 1190.4 MHz was held" in held.tick()
    assert held.tick(FIRST_WAIT_S) == ()
    assert kernel.store[f"{second}/scaling_governor"] == "userspace"
    held.controller.release(held.lease)
    assert kernel.store[f"{second}/scaling_governor"] == "schedutil"


def test_what_a_board_forgets_while_the_machine_sleeps_is_set_again_at_once(held: Held) -> None:
    held.asleep_s += 3600
    held.kernel.take(f"{CPU}/scaling_governor", "schedutil")
    held.kernel.take(f"{GPU}/governor", "nvhost_podgov")
    assert held.tick() == ()
    assert held.hardware.current() == HELD
    # What is taken once it is awake is left to whoever took it, as ever.
    held.kernel.take(f"{CPU}/scaling_governor", "schedutil")
    assert held.tick()[-1] == "clocks set by other programs are left to them for 2 s more"
    held.controller.release(held.lease)
    assert not held.hardware.touched


def test_a_board_that_sleeps_and_forgets_nothing_is_left_alone(held: Held) -> None:
    held.asleep_s += 3600
    assert held.tick(5) == ()
    assert held.kernel.written == []


def test_that_the_machine_slept_is_said_with_what_was_found_and_frames_from_before_say_nothing(
    held: Held, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    held.tick(30)
    held.asleep_s += 3600
    held.tick(5)
    (woken,) = [record.getMessage() for record in caplog.records if "has slept" in record.getMessage()]
    assert woken.endswith("every clock is as it was set")
    assert held.controller.changed_s > held.clock.monotonic() - 6  # as after a change of clocks
    held.asleep_s += 60
    held.kernel.take(f"{GPU}/max_freq", "520000000")
    held.kernel.take(f"{GPU}/min_freq", "520000000")
    held.tick()
    assert "GPU clock" in [record.getMessage() for record in caplog.records if "has slept" in record.getMessage()][-1]


def test_clusters_set_apart_are_watched_each_for_itself(tmp_path: Path) -> None:
    kernel, clock = Kernel(load_board("agx-orin-64gb"), emc=("bpmp",)), FakeClock()
    hardware = Hardware.probe(kernel, clock, baseline=tmp_path / "baseline.json", clusters=Clusters(apart=True))
    controller = Controller(hardware, Config(), clock.monotonic)
    controller.hold(Holder("a", 1, 0, "app"), LeasePlan(FrequencyConfiguration(1190400, 612000000, 2133000000)), "test")
    second = f"{CPUFREQ}/policy4"
    assert kernel.store[f"{second}/scaling_setspeed"] == "115200"
    kernel.take(f"{second}/scaling_governor", "schedutil")
    controller.tend()
    assert controller.troubles[0] == "CPU clock of policy4: taken over (schedutil); 115.2 MHz was held"
    clock.sleep(FIRST_WAIT_S)
    controller.tend()
    assert not list(controller.troubles)
    gone = {path: kernel.store.pop(path) for path in list(kernel.store) if path.startswith(second)}
    controller.tend()
    assert not list(controller.troubles)
    assert "policy4" not in hardware.read()
    kernel.store |= gone | {f"{second}/scaling_governor": "schedutil"}
    controller.tend()
    assert controller.troubles[0] == "CPU clock of policy4: taken over (schedutil); 115.2 MHz was held"
    controller.restore()
    assert kernel.store[f"{CPUFREQ}/policy8/scaling_governor"] == "schedutil"


def test_a_board_that_cannot_be_read_is_named_until_it_can(held: Held) -> None:
    limit = held.kernel.store.pop(f"{GPU}/max_freq")
    held.kernel.measure[f"{GPU}/cur_freq"] = "318750000"
    assert any("max_freq: reading it failed" in text for text in held.tick())
    held.kernel.store[f"{GPU}/max_freq"] = limit
    del held.kernel.measure[f"{GPU}/cur_freq"]
    assert held.tick() == ()


def test_a_cap_that_bites_is_told_from_the_start(tmp_path: Path) -> None:
    kernel = Kernel()
    held = Held(kernel, tmp_path)
    kernel.store[CAP] = "800000000"
    kernel.take(f"{EMC}/rate", "1331200000")
    held.tick(1)
    assert held.hardware.current().emc_hz == 800000000
    assert held.controller.troubles == ("memory clock: 1331.2 MHz is needed, the limits in force allow 800 MHz",)


# The real daemon


@pytest.fixture
def started() -> Iterator[tuple[Board, Daemon]]:
    if fuse.missing():
        pytest.skip(f"the simulated board needs FUSE: {fuse.missing()}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with served_board(folder / "root", "fuse") as board, Daemon(board, folder) as daemon:
            yield board, daemon


def test_within_a_second_status_names_what_somebody_else_changed(started: tuple[Board, Daemon]) -> None:
    board, daemon = started
    with daemon.client() as client:
        client.hold(configuration=HELD)
        assert not [text for text in client.status()["degraded"] if "was held" in text]
        board.write(f"{GPU_FILES}/governor", "nvhost_podgov")
        board.write(f"{CPU_FILES}/scaling_governor", "performance")
        time.sleep(0.95)
        degraded = client.status()["degraded"]
        assert "GPU clock: taken over (nvhost_podgov); 675.75 MHz was held" in degraded
        assert "CPU clock: taken over (performance); 1190.4 MHz was held" in degraded
        deadline = time.monotonic() + 5
        while board.clocks != HELD and time.monotonic() < deadline:
            time.sleep(0.1)
        assert board.clocks == HELD


def test_the_memory_stays_up_when_the_cpu_that_kept_it_up_is_limited_or_taken(started: tuple[Board, Daemon]) -> None:
    board, daemon = started
    top = FrequencyConfiguration(2265600, 1377000000, 2133000000)
    with daemon.client() as client:
        for path, value in ((f"{CPU_FILES}/scaling_max_freq", 1190400), (f"{CPU_FILES}/scaling_governor", "powersave")):
            before = board.read(path)
            with client.hold(configuration=top):
                assert board.read(f"{EMC_FILES}/mrq_rate_locked") == "0"
                board.write(path, value)
                assert eventually(lambda: board.read(f"{EMC_FILES}/mrq_rate_locked") == "1", 2.0)
                assert eventually(lambda: board.clocks.emc_hz == top.emc_hz)
                assert eventually(lambda: not [text for text in client.status()["degraded"] if "memory clock" in text])
                board.write(path, before)
            assert board.read(f"{EMC_FILES}/mrq_rate_locked") == "0"


@pytest.mark.parametrize(("set_again", "died"), [(False, False), (True, False), (True, True)])
def test_clocks_that_others_pinned_meanwhile_are_left_to_them_all_three_and_named(
    set_again: bool, died: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    kernel = Kernel()
    held = Held(kernel, tmp_path, FrequencyConfiguration(345600, 318750000, 665600000))
    # As jetson_clocks does.
    for path, value in (
        (f"{CPU}/scaling_min_freq", "1907200"),
        (f"{GPU}/min_freq", "1198500000"),
        (f"{EMC}/rate", "1600000000"),
    ):
        kernel.take(path, value)
    kernel.take(f"{EMC}/mrq_rate_locked", "1")
    if set_again:
        held.tick(2 * FIRST_WAIT_S)
        assert held.kernel.store[f"{EMC}/rate"] == "665600000"
    if died:
        hardware = Hardware.probe(kernel, held.clock, baseline=tmp_path / "baseline.json")
        held.controller = Controller(hardware, Config(), held.clock.monotonic)
        held.controller.recover()
    else:
        held.controller.release(held.lease)
    store = kernel.store
    assert (store[f"{CPU}/scaling_min_freq"], store[f"{GPU}/min_freq"]) == ("1907200", "1198500000")
    assert (store[f"{EMC}/mrq_rate_locked"], store[f"{EMC}/rate"]) == ("1", "1600000000")
    (note,) = [note for note in held.controller.notes if note.startswith("left to other programs")]
    assert all(clock in note for clock in ("CPU clock", "GPU clock", "memory clock"))
    said = [record.getMessage() for record in caplog.records]
    assert "every clock is back at its baseline" not in said
    assert any(text.startswith("clocks restored; left to other programs") for text in said)
    assert f"{EMC}/rate: left at 1600000000, which another program set" in said
    held.controller.hold(Holder("somebody", 1, 0, "app"), LeasePlan(HELD), "test")
    assert not [note for note in held.controller.notes if note.startswith("left to other programs")]


def test_clocks_that_others_put_back_as_they_were_found_are_as_found(held: Held, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    held.kernel.take(f"{EMC}/mrq_rate_locked", "0")
    held.tick(2 * FIRST_WAIT_S)
    held.controller.release(held.lease)
    assert held.kernel.store[f"{EMC}/mrq_rate_locked"] == "0"
    assert "every clock is back at its baseline" in [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("set_again", [False, True])
def test_a_memory_lock_that_others_took_past_our_limits_is_named_as_left_to_them(set_again: bool, tmp_path: Path) -> None:
    board = load_board("orin-nano-8gb")
    kernel = Kernel(board, emc=("devfreq", "bpmp"))
    lock = f"{board.section('emc')['bpmp']}/mrq_rate_locked"
    held = Held(kernel, tmp_path, FrequencyConfiguration(1190400, 612000000, 2133000000))
    kernel.take(lock, "1")
    kernel.take(f"{board.section('emc')['bpmp']}/rate", "3199000000")
    if set_again:
        held.tick(2 * FIRST_WAIT_S)
    held.controller.release(held.lease)
    assert kernel.store[lock] == "1" and kernel.store[f"{board.section('emc')['bpmp']}/rate"] == "3199000000"
    (note,) = [note for note in held.controller.notes if note.startswith("left to other programs")]
    assert "memory clock" in note
