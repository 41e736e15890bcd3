# SPDX-License-Identifier: Apache-2.0
"""What other work on the board uses, as its counters tell it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from jetdvfs.daemon.leases.demand import DemandMonitor, LeaseProcesses
from jetdvfs.daemon.leases.demand_floors import Demand, FloorRules
from jetdvfs.tests.support.boards.hardware_kernel import CPU, XAVIER, FakeClock, Kernel

(ACTIVITY,) = XAVIER.section("emc")["activity"]
#: The process id of the application that holds the lease.
APP = 4711


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
        leased: LeaseProcesses | None = None,
    ) -> Demand:
        for _ in range(round(seconds / 0.5)):
            self.pass_time(0.5, busy or {})
            for pid, (share, cpu) in (threads or {}).items():
                self.threads[pid] = (self.threads.get(pid, (0.0, 0))[0] + 50 * share, cpu)
            self.waited_us += 500_000 * waiting
            self.kernel.store[ACTIVITY] = str(round(memory_hz / 1000))
            self.show()
            self.meter.sample(leased or LeaseProcesses())
        return self.meter.demand()

    def pass_time(self, seconds: float, busy: Mapping[int, float]) -> None:
        self.clock.sleep(seconds)
        for cpu in range(8):
            self.idle[cpu] += 100 * seconds * (1 - busy.get(cpu, 0.0))
        self.show()

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


@pytest.mark.parametrize(("late_s", "readings"), [(0.3, 1), (0.3, 3), (1.2, 3)])
def test_counters_that_a_busy_board_shows_late_do_not_hide_other_work(busy: Busy, late_s: float, readings: int) -> None:
    late: list[str] = []

    def hold_up(path: str) -> None:
        if path == "/proc/stat" and len(late) < readings:
            late.append(path)
            busy.pass_time(late_s, {5: 0.4})

    busy.meter.sample(LeaseProcesses())
    busy.pass_time(0.5, {5: 0.4})
    busy.kernel.hold_up = hold_up
    busy.meter.sample(LeaseProcesses())
    assert len(late) == readings
    assert busy.meter.demand().cpu_khz["policy0"] == pytest.approx(0.4 * 2265600, rel=0.05)


def test_counters_that_cannot_be_read_are_asked_for_once(busy: Busy) -> None:
    asked: list[str] = []

    def hold_up(path: str) -> None:
        if path == "/proc/stat":
            asked.append(path)
            busy.clock.sleep(1.0)

    del busy.kernel.store["/proc/stat"]
    busy.kernel.hold_up = hold_up
    busy.meter.sample(LeaseProcesses())
    assert len(asked) == 1


def test_what_the_leased_application_runs_is_not_other_works(busy: Busy) -> None:
    leased = LeaseProcesses(frozenset({APP}))
    busy.run(1, leased=leased)
    own = {APP: (0.9, 2)}
    assert busy.run(15, {2: 0.9}, own, leased=leased).cpu_khz["policy0"] < 0.03 * 2265600
    assert busy.run(3, {2: 0.9, 4: 0.3}, own, leased=leased).cpu_khz["policy0"] == pytest.approx(0.3 * 2265600, rel=0.05)


def test_a_core_that_other_work_fills_is_taken_to_need_more(busy: Busy) -> None:
    busy.kernel.store[f"{CPU}/scaling_cur_freq"] = "268800"
    assert busy.run(1, {3: 1.0}).cpu_khz["policy0"] == 1.5 * 268800


def test_a_thread_that_moves_between_cores_is_not_taken_for_other_work(busy: Busy) -> None:
    leased = LeaseProcesses(frozenset({APP}))
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
    assert busy.run(60, memory_hz=500e6, leased=LeaseProcesses(frozenset({APP}))).emc_hz == 90e6


def test_other_work_never_uses_more_memory_than_all_together(busy: Busy) -> None:
    busy.run(3, memory_hz=90e6)
    leased = LeaseProcesses(frozenset({APP}))
    assert busy.run(5, memory_hz=40e6, leased=leased).emc_hz == 90e6
    assert busy.run(10, memory_hz=40e6, leased=leased).emc_hz == 40e6


def test_between_the_frames_of_a_paced_application_other_works_memory_is_seen(busy: Busy) -> None:
    leased = LeaseProcesses(frozenset({APP}), paced=True)
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
    leased = LeaseProcesses(frozenset({APP}))
    assert busy.run(30, memory_hz=900e6, leased=leased).emc_hz == 80e6


def test_where_the_gpu_never_idles_the_least_that_is_counted_is_other_works(busy: Busy) -> None:
    busy.gpu = 0.8
    for hz in (300e6, 200e6):
        busy.run(5, memory_hz=hz)
    assert busy.run(1, memory_hz=250e6).emc_hz == 200e6


def test_under_a_lease_other_works_memory_is_seen_while_the_gpu_idles(busy: Busy) -> None:
    leased = LeaseProcesses(frozenset({APP}))
    busy.gpu = 0.0
    busy.run(3)
    busy.gpu = 1.0
    busy.run(3, memory_hz=500e6, leased=leased)
    busy.gpu = 0.0
    assert busy.run(0.5, memory_hz=400e6, leased=leased).emc_hz == 0.0  # the last frame is still in the average
    assert busy.run(0.5, memory_hz=120e6, leased=leased).emc_hz == 120e6


def test_waiting_counts_only_above_what_it_was_before_the_lease(busy: Busy) -> None:
    leased = LeaseProcesses(frozenset({APP}))
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
    busy.meter.sample(LeaseProcesses())
    assert busy.meter.demand().emc_hz is None
    assert busy.meter.notes == (f"{ACTIVITY} cannot be read: no memory clock is kept up for other work",)


@pytest.mark.parametrize("text", ["", "cpu0", "cpu0 1 2", "nonsense\n\ncpu0 0 0 0 5 x", "cpu9999 0 0 0 1 1"])
def test_counters_that_make_no_sense_are_no_demand(busy: Busy, text: str) -> None:
    busy.kernel.store["/proc/pressure/cpu"] = text
    for _ in range(3):
        busy.clock.sleep(0.5)
        busy.kernel.store["/proc/stat"] = text
        busy.meter.sample(LeaseProcesses())
    assert busy.meter.demand().cpu_khz.get("policy0", 0.0) == 0.0
