# SPDX-License-Identifier: Apache-2.0
"""Clocks that are kept up for other work on the board."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetdvfs.daemon.config import Config, load_config
from jetdvfs.daemon.errors import TargetNotAttainable, UsageError
from jetdvfs.daemon.hardware.clocks.driver import Clusters
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.daemon.leases.controller import Controller
from jetdvfs.daemon.leases.demand import LeaseProcesses
from jetdvfs.daemon.leases.demand_floors import Demand, FloorRules, Floors, floors
from jetdvfs.daemon.leases.lease import Holder
from jetdvfs.daemon.planning.lease_plan import LeasePlan, PlanRequest
from jetdvfs.daemon.planning.limits import ClockBounds, ClockLimits, Limits
from jetdvfs.daemon.planning.plan import Planning
from jetdvfs.kernels.correction.flat import flat_surface
from jetdvfs.kernels.grid import FrequencyConfiguration, FrequencyGrid
from jetdvfs.profiles.board import load_board
from jetdvfs.tests.support.boards.hardware_kernel import CPU, CPUFREQ, EMC, XAVIER, FakeClock, Kernel

GRID = XAVIER.grid
RULES = FloorRules()
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


# Under leases


class Asked:
    """Demands as a test says, in place of a meter."""

    def __init__(self) -> None:
        self.rules = RULES
        self.notes: tuple[str, ...] = ()
        self.now = Demand()
        self.leased = LeaseProcesses()

    def sample(self, leased: LeaseProcesses) -> None:
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
    _, applied = controller.hold(Holder("a", APP, 0, "app"), LeasePlan(LOW), "test")
    assert applied.verified and applied.requested == FrequencyConfiguration(1036800, 114750000, 408000000)
    assert applied.reason == (
        "lease 1 of app: test; CPU clock at least 1036.8 MHz: other work uses 680 MHz of a core of policy0; "
        "memory clock at least 408 MHz: other work uses 94 MHz of the memory clock"
    )
    assert (kernel.store[f"{CPU}/scaling_setspeed"], kernel.store[f"{EMC}/rate"]) == ("1036800", "408000000")
    assert [floor.clock for floor in controller.floors.floors] == ["cpu_khz", "emc_hz"]
    controller.tend()
    assert asked.leased == LeaseProcesses(frozenset({APP}))
    assert controller.troubles == ()
    asked.now = Demand()
    controller.tend()
    assert kernel.store[f"{CPU}/scaling_setspeed"] == "115200"
    assert controller.troubles == () and controller.floors == Floors()


def test_work_that_begins_under_a_lease_raises_the_clocks(board: tuple[Kernel, Controller, Asked]) -> None:
    kernel, controller, asked = board
    controller.hold(Holder("a", APP, 0, "app"), LeasePlan(LOW), "test")
    asked.now = Demand({"policy0": 115200.0})
    controller.tend()
    assert kernel.store[f"{CPU}/scaling_setspeed"] == "192000"
    assert controller.applied is not None
    assert controller.applied.reason == "CPU clock at least 192 MHz: other work uses 115 MHz of a core of policy0"


def test_the_operators_upper_limit_stands_above_other_works_need(tmp_path: Path) -> None:
    kernel, controller, asked = under(Config(limits=ClockLimits(cpu_khz=ClockBounds(max=499200))), tmp_path)
    asked.now = Demand({"policy0": 2e6})
    controller.tend()
    assert controller.limits().cpu_khz == (499200, 499200)
    controller.hold(Holder("a", APP, 0, "app"), LeasePlan(LOW), "test")
    assert kernel.store[f"{CPU}/scaling_setspeed"] == "499200"


def test_of_clusters_set_apart_each_runs_as_low_as_other_work_on_it_allows(tmp_path: Path) -> None:
    kernel, clock, asked = Kernel(load_board("agx-orin-64gb"), emc=("bpmp",)), FakeClock(), Asked()
    hardware = Hardware.probe(kernel, clock, baseline=tmp_path / "baseline.json", clusters=Clusters(apart=True))
    controller = Controller(hardware, Config(limits=ClockLimits(cpu_khz=ClockBounds(min=192000))), clock.monotonic, asked)
    controller.hold(Holder("a", APP, 0, "app"), LeasePlan(FrequencyConfiguration(1190400, 306000000, 665600000)), "test")

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
    controller.hold(Holder("a", APP, 0, "app"), LeasePlan(LOW), "test")
    assert kernel.store[f"{CPU}/scaling_setspeed"] == "115200"
    controller.reconfigure(Config())
    assert kernel.store[f"{CPU}/scaling_setspeed"] == "2265600"
    controller.reconfigure(Config(floors=None))
    assert kernel.store[f"{CPU}/scaling_setspeed"] == "115200"


def test_a_plan_is_made_anew_when_what_other_work_needs_changes(board: tuple[Kernel, Controller, Asked]) -> None:
    kernel, controller, asked = board

    class Slower:
        """With the memory faster, a lower GPU clock will do."""

        def plan(self, limits: Limits) -> LeasePlan:
            assert limits.emc_hz is not None
            if limits.emc_hz[0] > 1e9:
                raise TargetNotAttainable("power")
            gpu_hz = 114750000 if limits.emc_hz[0] > 204000000 else 318750000
            request = PlanRequest(Planning(), flat_surface(XAVIER.grid), "min-energy", None, None, "", simulated=True)
            return LeasePlan(FrequencyConfiguration(115200, gpu_hz, limits.emc_hz[0]), request, planner=self)

    controller.hold(Holder("a", APP, 0, "app"), Slower().plan(controller.limits()), "test")
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
