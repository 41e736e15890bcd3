# SPDX-License-Identifier: Apache-2.0
"""What other work on the board uses, and the clocks that are kept up for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetdvfs.daemon.config import Bounds, ClockLimits, Config, load_config
from jetdvfs.daemon.controller import Controller
from jetdvfs.daemon.errors import TargetNotAttainable, UsageError
from jetdvfs.daemon.hardware.clocks.clusters import Clusters
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.daemon.leases import Holder, Need
from jetdvfs.daemon.planner import Limits
from jetdvfs.daemon.watch.demand import DemandMonitor, Leased
from jetdvfs.daemon.watch.floors import Demand, FloorRules, Floors, floors
from jetdvfs.kernels.grid import FrequencyConfiguration, FrequencyGrid
from jetdvfs.profiles.board import load_board
from jetdvfs.tests.support.boards.hardware_kernel import CPU, CPUFREQ, EMC, XAVIER, FakeClock, Kernel

GRID = XAVIER.grid
RULES = FloorRules()
(ACTIVITY,) = XAVIER.section("emc")["activity"]
LOW = FrequencyConfiguration(115200, 114750000, 204000000)
APP = 4711


# The rule


def test_nothing_is_kept_up_for_a_board_that_idles() -> None:
    assert floors(Demand({"policy0": 20_000.0}, 15e6), GRID, RULES) == Floors()
    assert floors(Demand(), GRID, RULES) == Floors()


def test_a_control_loop_keeps_the_cpu_clock_up_with_headroom() -> None:
    # 0.3 ms of every ms at 2265.6 MHz: at the floor it takes at most 0.7 of its period.
    (floor,) = floors(Demand({"policy0": 0.3 * 2265600}), GRID, RULES).floors
    assert (floor.clock, floor.least) == ("cpu_khz", 1036800)
    assert floor.reason == "CPU clock at least 1036.8 MHz: other work uses 680 MHz of a core of policy0"


def test_a_camera_keeps_the_memory_clock_up() -> None:
    (floor,) = floors(Demand(emc_hz=94e6), GRID, RULES).floors
    assert (floor.clock, floor.least) == ("emc_hz", 408000000)
    assert floor.reason == "memory clock at least 408 MHz: other work uses 94 MHz of the memory clock"


def test_tasks_that_wait_more_than_before_raise_what_is_held() -> None:
    held: dict[str, Any] = {"held_khz": {"policy0": 1190400}, "held_hz": 800000000}
    assert floors(Demand(cpu_waiting=0.09, **held), GRID, RULES) == Floors()
    cpu = floors(Demand(cpu_waiting=0.3, **held), GRID, RULES)
    assert cpu.levels == {"cpu_khz": 1574400}
    assert "tasks wait for a CPU for 30% more of the time than before" in cpu.reasons[0]
    assert floors(Demand(memory_waiting=0.3, **held), GRID, RULES).levels == {"cpu_khz": 1574400, "emc_hz": 1065600000}


def test_clusters_set_apart_have_floors_of_their_own() -> None:
    demand = Demand({"policy0": 300_000.0, "policy4": 900_000.0})
    assert floors(demand, GRID, RULES).levels == {"cpu_khz": 1344000}
    assert floors(demand, GRID, RULES, leader="policy0").levels == {"cpu_khz": 499200, "policy4": 1344000}


shares = st.floats(0, 2)


@given(st.floats(0, 4e6), st.floats(0, 3e9), shares, shares, st.floats(0, 1e6))
def test_a_floor_is_a_level_that_suffices_or_the_highest_and_never_falls_as_demand_rises(
    khz: float, hz: float, cpu: float, memory: float, more: float
) -> None:
    def of(extra: float) -> Floors:
        return floors(Demand({"policy0": khz + extra}, hz + extra, cpu, memory, {"policy0": 1190400}, 800000000), GRID, RULES)

    found = of(0.0)
    for floor in found.floors:
        assert floor.least in getattr(GRID, floor.clock)
    assert found.least("cpu_khz") >= khz or found.least("cpu_khz") in (0, GRID.cpu_khz[-1])
    assert found.least("emc_hz") >= hz or found.least("emc_hz") in (0, GRID.emc_hz[-1])
    assert all(of(more).least(clock) >= least for clock, least in found.levels.items())


# Measuring


class Busy:
    """A kernel in memory whose processes and memory are busy; ``run`` lets time pass in half seconds."""

    def __init__(self, **config: Any) -> None:
        self.kernel, self.clock = Kernel(), FakeClock()
        self.kernel.store |= {f"{CPU}/scaling_cur_freq": "2265600", ACTIVITY: "0"}
        self.idle = [0.0] * 8
        self.threads: dict[int, tuple[float, int]] = {}
        self.waited_us = 0.0
        self.gpu: float | None = None
        self.meter = DemandMonitor(self.kernel, XAVIER, self.clock.monotonic, self, FloorRules(**config))
        self.show()

    def memory_hz(self) -> int:
        return 800000000

    def gpu_load(self) -> float | None:
        return self.gpu

    def run(
        self,
        seconds: float,
        busy: dict[int, float] | None = None,
        threads: dict[int, tuple[float, int]] | None = None,
        memory_hz: float = 0.0,
        waiting: float = 0.0,
        leased: Leased | None = None,
    ) -> Demand:
        for _ in range(round(seconds / 0.5)):
            self.clock.sleep(0.5)
            for cpu in range(8):
                self.idle[cpu] += 50 * (1 - (busy or {}).get(cpu, 0.0))
            for pid, (share, cpu) in (threads or {}).items():
                self.threads[pid] = (self.threads.get(pid, (0.0, 0))[0] + 50 * share, cpu)
            self.waited_us += 500_000 * waiting
            self.kernel.store[ACTIVITY] = str(round(memory_hz / 1000))
            self.show()
            self.meter.sample(leased or Leased())
        return self.meter.demand()

    def show(self) -> None:
        lines = [f"cpu{cpu} 0 0 0 {round(idle)} 0 0 0 0 0 0" for cpu, idle in enumerate(self.idle)]
        self.kernel.store["/proc/stat"] = "\n".join(["cpu 0 0 0 0 0 0 0 0 0 0", *lines, "ctxt 1"])
        self.kernel.store["/proc/pressure/cpu"] = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={round(self.waited_us)}"
        for pid, (ticks, cpu) in self.threads.items():
            words = ["S", *["0"] * 10, str(round(ticks)), "0", *["0"] * 23, str(cpu), *["0"] * 10]
            for path in (f"/proc/{pid}/stat", f"/proc/{pid}/task/{pid}/stat"):
                self.kernel.store[path] = f"{pid} (a (strange) name) {' '.join(words)}"


@pytest.fixture
def busy() -> Busy:
    return Busy()


def test_the_busiest_core_counts_not_their_mean(busy: Busy) -> None:
    demand = busy.run(3, {0: 0.1, 5: 0.3})
    assert demand.cpu_khz["policy0"] == pytest.approx(0.3 * 2265600, rel=0.05)


def test_what_the_leased_application_runs_is_not_other_works(busy: Busy) -> None:
    leased = Leased(frozenset({APP}))
    busy.run(1, leased=leased)
    own = {APP: (0.9, 2)}
    assert busy.run(15, {2: 0.9}, own, leased=leased).cpu_khz["policy0"] < 0.03 * 2265600
    assert busy.run(3, {2: 0.9, 4: 0.3}, own, leased=leased).cpu_khz["policy0"] == pytest.approx(0.3 * 2265600, rel=0.05)


def test_a_core_that_other_work_fills_is_taken_to_need_more(busy: Busy) -> None:
    busy.kernel.store[f"{CPU}/scaling_cur_freq"] = "268800"
    assert busy.run(1, {3: 1.0}).cpu_khz["policy0"] == 1.5 * 268800


def test_a_thread_that_moves_between_cores_is_not_taken_for_other_work(busy: Busy) -> None:
    leased = Leased(frozenset({APP}))
    busy.run(1, leased=leased)
    for turn in range(20):
        demand = busy.run(0.5, {0: 0.6, 1: 0.4}, {APP: (1.0, turn % 2)}, leased=leased)
    assert demand.cpu_khz["policy0"] < 0.05 * 2265600


def test_what_this_daemon_and_its_workers_run_is_not_other_works(busy: Busy) -> None:
    busy.threads[os.getpid()] = (0.0, 3)
    busy.show()
    busy.kernel.store[f"/proc/{os.getpid()}/task/{os.getpid()}/children"] = "99 "
    busy.run(1)
    assert busy.run(12, {3: 0.5, 6: 0.8}, {os.getpid(): (0.5, 3), 99: (0.8, 6)}).cpu_khz["policy0"] < 0.03 * 2265600


def test_a_demand_is_held_for_a_while_after_it_was_last_seen(busy: Busy) -> None:
    busy.run(2, {1: 0.5}, memory_hz=100e6)
    assert busy.run(9).emc_hz == 100e6
    assert busy.run(1).cpu_khz["policy0"] > 0.4 * 2265600
    demand = busy.run(2)
    assert demand.emc_hz == 0.0
    assert demand.cpu_khz["policy0"] == pytest.approx(0.0, abs=0.03 * 2265600)


def test_while_a_lease_is_held_the_memory_that_was_used_before_stays_other_works(busy: Busy) -> None:
    busy.run(3, memory_hz=90e6)
    assert busy.run(60, memory_hz=500e6, leased=Leased(frozenset({APP}))).emc_hz == 90e6


def test_other_work_never_uses_more_memory_than_all_together(busy: Busy) -> None:
    busy.run(3, memory_hz=90e6)
    leased = Leased(frozenset({APP}))
    assert busy.run(5, memory_hz=40e6, leased=leased).emc_hz == 90e6
    assert busy.run(10, memory_hz=40e6, leased=leased).emc_hz == 40e6


def test_between_the_frames_of_a_paced_application_other_works_memory_is_seen(busy: Busy) -> None:
    leased = Leased(frozenset({APP}), paced=True)
    busy.run(3)
    for _ in range(12):
        busy.run(0.5, memory_hz=600e6, leased=leased)
        demand = busy.run(0.5, memory_hz=110e6, leased=leased)
    assert demand.emc_hz == 110e6


def test_what_an_application_moves_before_its_lease_is_not_other_works(busy: Busy) -> None:
    busy.gpu = 0.0
    busy.run(3, memory_hz=80e6)
    busy.gpu = 1.0  # it warms up
    assert busy.run(6, memory_hz=900e6).emc_hz == 80e6
    leased = Leased(frozenset({APP}))
    assert busy.run(30, memory_hz=900e6, leased=leased).emc_hz == 80e6


def test_where_the_gpu_never_idles_the_least_that_is_counted_is_other_works(busy: Busy) -> None:
    busy.gpu = 0.8
    for hz in (300e6, 200e6):
        busy.run(5, memory_hz=hz)
    assert busy.run(1, memory_hz=250e6).emc_hz == 200e6


def test_under_a_lease_other_works_memory_is_seen_while_the_gpu_idles(busy: Busy) -> None:
    leased = Leased(frozenset({APP}))
    busy.gpu = 0.0
    busy.run(3)
    busy.gpu = 1.0
    busy.run(3, memory_hz=500e6, leased=leased)
    busy.gpu = 0.0
    assert busy.run(0.5, memory_hz=400e6, leased=leased).emc_hz == 0.0  # the last frame is still in the average
    assert busy.run(0.5, memory_hz=120e6, leased=leased).emc_hz == 120e6


def test_waiting_counts_only_above_what_it_was_before_the_lease(busy: Busy) -> None:
    leased = Leased(frozenset({APP}))
    busy.run(3, waiting=0.2)
    assert busy.run(3, waiting=0.25, leased=leased).cpu_waiting == pytest.approx(0.05, abs=0.01)
    demand = busy.run(2, waiting=0.5, leased=leased)
    assert demand.cpu_waiting == pytest.approx(0.3, abs=0.01)
    assert demand.held_khz == {"policy0": 2265600}
    # Raised, it goes away; that does not mean that it may be lowered at once.
    assert busy.run(30, leased=leased).cpu_waiting == pytest.approx(0.3, abs=0.01)
    assert busy.run(31, leased=leased).cpu_waiting <= 0


def test_a_board_without_the_monitor_says_so(busy: Busy) -> None:
    notes_before = busy.meter.notes
    assert notes_before == ()
    del busy.kernel.store[ACTIVITY]
    busy.clock.sleep(0.5)
    busy.meter.sample(Leased())
    assert busy.meter.demand().emc_hz is None
    assert busy.meter.notes == (f"{ACTIVITY} cannot be read: no memory clock is kept up for other work",)


@pytest.mark.parametrize("text", ["", "cpu0", "cpu0 1 2", "nonsense\n\ncpu0 0 0 0 5 x", "cpu9999 0 0 0 1 1"])
def test_counters_that_make_no_sense_are_no_demand(busy: Busy, text: str) -> None:
    busy.kernel.store["/proc/pressure/cpu"] = text
    for _ in range(3):
        busy.clock.sleep(0.5)
        busy.kernel.store["/proc/stat"] = text
        busy.meter.sample(Leased())
    assert busy.meter.demand().cpu_khz.get("policy0", 0.0) == 0.0


# Under leases


class Asked:
    """Demands as a test says, in place of a meter."""

    def __init__(self) -> None:
        self.rules = RULES
        self.notes: tuple[str, ...] = ()
        self.now = Demand()
        self.leased = Leased()

    def sample(self, leased: Leased) -> None:
        self.leased = leased

    def demand(self) -> Demand:
        return self.now


@pytest.fixture
def board(tmp_path: Path) -> Iterator[tuple[Kernel, Controller, Asked]]:
    yield under(Config(), tmp_path)


def under(config: Config, folder: Path) -> tuple[Kernel, Controller, Asked]:
    kernel, clock, asked = Kernel(), FakeClock(), Asked()
    hardware = Hardware.probe(kernel, clock, baseline=folder / "baseline.json")
    return kernel, Controller(hardware, config, clock.monotonic, asked), asked


def test_a_lease_below_what_other_work_needs_is_raised_and_goes_down_when_that_ends(
    board: tuple[Kernel, Controller, Asked],
) -> None:
    kernel, controller, asked = board
    asked.now = Demand({"policy0": 0.3 * 2265600}, 94e6)
    controller.tend()
    _, applied = controller.hold(Holder("a", APP, 0, "app"), Need(LOW), "test")
    assert applied.verified and applied.requested == FrequencyConfiguration(1036800, 114750000, 408000000)
    assert applied.reason == (
        "lease 1 of app: test; CPU clock at least 1036.8 MHz: other work uses 680 MHz of a core of policy0; "
        "memory clock at least 408 MHz: other work uses 94 MHz of the memory clock"
    )
    assert (kernel.store[f"{CPU}/scaling_setspeed"], kernel.store[f"{EMC}/rate"]) == ("1036800", "408000000")
    assert [floor.clock for floor in controller.floors.floors] == ["cpu_khz", "emc_hz"]
    controller.tend()
    assert asked.leased == Leased(frozenset({APP}))
    assert controller.troubles == ()
    asked.now = Demand()
    controller.tend()
    assert kernel.store[f"{CPU}/scaling_setspeed"] == "115200"
    assert controller.troubles == () and controller.floors == Floors()


def test_work_that_begins_under_a_lease_raises_the_clocks(board: tuple[Kernel, Controller, Asked]) -> None:
    kernel, controller, asked = board
    controller.hold(Holder("a", APP, 0, "app"), Need(LOW), "test")
    asked.now = Demand({"policy0": 115200.0})
    controller.tend()
    assert kernel.store[f"{CPU}/scaling_setspeed"] == "192000"
    assert controller.applied is not None
    assert controller.applied.reason == "CPU clock at least 192 MHz: other work uses 115 MHz of a core of policy0"


def test_the_operators_upper_limit_stands_above_other_works_need(tmp_path: Path) -> None:
    kernel, controller, asked = under(Config(limits=ClockLimits(cpu_khz=Bounds(max=499200))), tmp_path)
    asked.now = Demand({"policy0": 2e6})
    controller.tend()
    assert controller.limits().cpu_khz == (499200, 499200)
    controller.hold(Holder("a", APP, 0, "app"), Need(LOW), "test")
    assert kernel.store[f"{CPU}/scaling_setspeed"] == "499200"


def test_of_clusters_set_apart_each_runs_as_low_as_other_work_on_it_allows(tmp_path: Path) -> None:
    kernel, clock, asked = Kernel(load_board("agx-orin-64gb"), emc=("bpmp",)), FakeClock(), Asked()
    hardware = Hardware.probe(kernel, clock, baseline=tmp_path / "baseline.json", clusters=Clusters(apart=True))
    controller = Controller(hardware, Config(limits=ClockLimits(cpu_khz=Bounds(min=192000))), clock.monotonic, asked)
    controller.hold(Holder("a", APP, 0, "app"), Need(FrequencyConfiguration(1190400, 306000000, 665600000)), "test")

    def set_now() -> list[str]:
        return [kernel.store[f"{CPUFREQ}/policy{first}/scaling_setspeed"] for first in (0, 4, 8)]

    assert set_now() == ["1190400", "192000", "192000"]
    asked.now = Demand({"policy0": 200_000.0, "policy4": 600_000.0})
    controller.tend()
    assert set_now() == ["1190400", "883200", "192000"]
    assert [(floor.clock, floor.least) for floor in controller.floors.floors] == [("cpu_khz", 345600), ("policy4", 883200)]
    asked.now = Demand()
    controller.tend()
    assert set_now() == ["1190400", "192000", "192000"]


def test_floors_can_be_switched_off(tmp_path: Path) -> None:
    kernel, controller, asked = under(Config(floors=None), tmp_path)
    asked.now = Demand({"policy0": 2e6}, 500e6)
    controller.tend()
    controller.hold(Holder("a", APP, 0, "app"), Need(LOW), "test")
    assert kernel.store[f"{CPU}/scaling_setspeed"] == "115200"
    controller.reconfigure(Config())
    assert kernel.store[f"{CPU}/scaling_setspeed"] == "2265600"
    controller.reconfigure(Config(floors=None))
    assert kernel.store[f"{CPU}/scaling_setspeed"] == "115200"


def test_a_plan_is_made_anew_when_what_other_work_needs_changes(board: tuple[Kernel, Controller, Asked]) -> None:
    kernel, controller, asked = board

    def again(limits: Limits) -> Need:
        assert limits.emc_hz is not None
        if limits.emc_hz[0] > 1e9:
            raise TargetNotAttainable("power")
        # With the memory faster, a lower GPU clock will do.
        gpu_hz = 114750000 if limits.emc_hz[0] > 204000000 else 318750000
        return Need(FrequencyConfiguration(115200, gpu_hz, limits.emc_hz[0]), "min-energy", again=again)

    controller.hold(Holder("a", APP, 0, "app"), again(controller.limits()), "test")
    assert kernel.store[f"{kernel.gpu}/userspace/set_freq"] == "318750000"
    asked.now = Demand(emc_hz=94e6)
    controller.tend()
    assert kernel.store[f"{kernel.gpu}/userspace/set_freq"] == "114750000"
    assert kernel.store[f"{EMC}/rate"] == "408000000"
    asked.now = Demand(emc_hz=400e6)
    controller.tend()
    assert kernel.store[f"{EMC}/rate"] == "1600000000"
    notes_then = controller.notes
    assert notes_then == ("lease 1 of app: min-energy is not kept: power",)
    asked.now = Demand()
    controller.tend()
    assert (kernel.store[f"{kernel.gpu}/userspace/set_freq"], kernel.store[f"{EMC}/rate"]) == ("318750000", "204000000")
    assert controller.notes == ()


# The operator's say


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", FloorRules()),
        ("floors: auto", FloorRules()),
        ("floors: off", None),
        ("floors: {cpu_share: 0.5, hold_s: 30}", FloorRules(cpu_share=0.5, hold_s=30.0)),
    ],
)
def test_the_configuration_says_what_is_kept_up(tmp_path: Path, text: str, rules: FloorRules | None) -> None:
    (tmp_path / "jetdvfsd.yaml").write_text(text)
    assert load_config(tmp_path / "jetdvfsd.yaml").floors == rules


@pytest.mark.parametrize("text", ["high", "5", "[1]", "{cpu_share: 0}", "{emc_share: 1.5}", "{hold_s: true}", "{pressure: x}"])
def test_rules_that_make_no_sense_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "jetdvfsd.yaml").write_text(f"floors: {text}")
    with pytest.raises(UsageError, match=r"jetdvfsd\.yaml, line 1: floors") as caught:
        load_config(tmp_path / "jetdvfsd.yaml")
    assert "\n" not in str(caught.value)


def test_the_grid_of_a_floor_is_the_boards_own() -> None:
    grid = FrequencyGrid((100, 200), (1,), (10, 20))
    assert floors(Demand({"policy0": 1e9}, 1e9), grid, RULES).levels == {"cpu_khz": 200, "emc_hz": 20}
