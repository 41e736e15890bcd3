# SPDX-License-Identifier: Apache-2.0
"""The operator's limits: whatever they are and whatever the board offers, no clock goes above them by accident."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetdvfs.daemon.config import Config
from jetdvfs.daemon.errors import TargetNotAttainable, UsageError
from jetdvfs.daemon.hardware.clocks.driver import Clusters
from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.daemon.leases.controller import Controller
from jetdvfs.daemon.leases.demand import LeaseProcesses
from jetdvfs.daemon.leases.demand_floors import Demand, FloorRules
from jetdvfs.daemon.leases.lease import Holder
from jetdvfs.daemon.planning.lease_plan import LeasePlan, PlanRequest
from jetdvfs.daemon.planning.limits import ClockBounds, ClockLimits, Limits
from jetdvfs.daemon.planning.plan import Planning
from jetdvfs.kernels.correction.flat import flat_surface
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.units import AXES
from jetdvfs.profiles.board import load_board
from jetdvfs.tests.support.boards.hardware_kernel import CPU, EMC, XAVIER, FakeClock, Kernel

REQUEST = PlanRequest(Planning(), flat_surface(XAVIER.grid), "min-energy", None, None, "", simulated=True)
TOP, LOWEST = XAVIER.grid.top, FrequencyConfiguration(*(XAVIER.grid.levels(axis)[0] for axis in AXES))

hertz = st.integers(1, 3_000_000_000)
tables = st.lists(hertz, min_size=1, max_size=30, unique=True).map(lambda levels: tuple(sorted(levels)))
ends = st.one_of(st.none(), hertz)


def bounds(low: int | None, high: int | None) -> ClockBounds:
    return ClockBounds(low, high) if low is None or high is None or low <= high else ClockBounds(high, low)


class Demands:
    """Demands as a test says, in place of a meter."""

    def __init__(self, demand: Demand) -> None:
        self.rules = FloorRules()
        self.notes: tuple[str, ...] = ()
        self._demand = demand

    def sample(self, leased: LeaseProcesses) -> None:
        pass

    def demand(self) -> Demand:
        return self._demand


def controller(folder: Path, limits: ClockLimits, demand: Demand | None = None) -> tuple[Kernel, Controller]:
    kernel, clock = Kernel(), FakeClock()
    hardware = Hardware.probe(kernel, clock, baseline=folder / "baseline.json")
    return kernel, Controller(hardware, Config(limits=limits), clock.monotonic, Demands(demand or Demand()))


@given(tables, ends, ends)
def test_there_is_always_a_level_and_none_is_above_the_upper_limit_but_the_lowest(
    levels: tuple[int, ...], one: int | None, other: int | None
) -> None:
    asked = bounds(one, other)
    allowed = asked.allowed(levels)
    assert allowed and set(allowed) <= set(levels) and list(allowed) == sorted(allowed)
    if asked.max is not None:
        assert allowed == levels[:1] or allowed[-1] <= asked.max
    if fitting := [level for level in levels if (asked.min or 0) <= level <= (asked.max or level)]:
        assert list(allowed) == fitting
    else:
        assert len(allowed) == 1
        # The top is only taken where the operator's bounds are above it.
        assert allowed[0] != levels[-1] or len(levels) == 1 or (asked.min or 0) > levels[-1]


axis_bounds = st.builds(
    bounds, st.one_of(st.none(), st.integers(1, 3_000_000)), st.one_of(st.none(), st.integers(1, 3_000_000))
)


@settings(max_examples=40, deadline=None)
@given(axis_bounds, axis_bounds, axis_bounds, st.floats(0, 4e6), st.floats(0, 4e9), st.sampled_from([TOP, LOWEST]))
def test_no_clock_is_set_above_the_limits_whatever_other_work_needs(
    cpu: ClockBounds, gpu: ClockBounds, emc: ClockBounds, busy_khz: float, busy_hz: float, held: FrequencyConfiguration
) -> None:
    def in_hz(given: ClockBounds) -> ClockBounds:
        return ClockBounds(given.min and given.min * 1000, given.max and given.max * 1000)

    limits = ClockLimits(cpu, in_hz(gpu), in_hz(emc))
    with tempfile.TemporaryDirectory() as folder:
        kernel, asked = controller(Path(folder), ClockLimits(), Demand({"policy0": busy_khz}, busy_hz))
        asked.hold(Holder("a", 1, 0, "app"), LeasePlan(held), "test")
        asked.reconfigure(Config(limits=limits))
        set_now = (kernel.store[f"{CPU}/scaling_setspeed"], kernel.store[f"{kernel.gpu}/userspace/set_freq"])
        for axis, text in zip(AXES, (*set_now, kernel.store[f"{EMC}/rate"]), strict=True):
            one: ClockBounds = getattr(limits, axis)
            assert int(text) == getattr(LOWEST, axis) or int(text) <= (one.max or int(text))
        asked.restore()


def test_a_preview_is_what_a_lease_then_sets_with_the_demand_of_other_work(tmp_path: Path) -> None:
    kernel, asked = controller(tmp_path, ClockLimits(), Demand({"policy0": 1_000_000}))
    before = dict(kernel.store)
    preview = asked.preview(LeasePlan(LOWEST))
    assert preview.cpu_khz > LOWEST.cpu_khz and preview[1:] == LOWEST[1:]
    assert kernel.store == before and not len(asked.leases)
    assert asked.hold(Holder("a", 1, 0, "app"), LeasePlan(LOWEST), "test")[1].requested == preview
    with pytest.raises(UsageError, match="may not be set; nearest"):
        asked.preview(LeasePlan(FrequencyConfiguration(LOWEST.cpu_khz + 1, *LOWEST[1:])))


@pytest.mark.parametrize(
    ("given", "set_mhz", "warned"),
    [
        (ClockBounds(max=1000), 115.2, "max 1 MHz; 115.2 MHz"),
        (ClockBounds(min=9_999_999), 2265.6, "min 9999.999 MHz; 2265.6 MHz"),
        (ClockBounds(200_000, 250_000), 192.0, "min 200 MHz and max 250 MHz; 192 MHz"),
    ],
)
def test_limits_that_no_level_fits_set_the_level_below_them_and_are_named(
    tmp_path: Path, given: ClockBounds, set_mhz: float, warned: str
) -> None:
    kernel, asked = controller(tmp_path, ClockLimits())
    asked.hold(Holder("a", 1, 0, "app"), LeasePlan(TOP), "test")
    asked.reconfigure(Config(limits=ClockLimits(cpu_khz=given)))
    assert kernel.store[f"{CPU}/scaling_setspeed"] == str(round(set_mhz * 1000))
    expected = f"limits.cpu_khz: no CPU frequency that this board offers fits {warned} is set instead"
    assert asked.check_limits() == (expected,)
    assert expected in asked.notes
    assert asked.limits().cpu_khz == (set_mhz * 1000, set_mhz * 1000)
    with pytest.raises(UsageError, match=f"may not be set; nearest: {set_mhz:g} MHz"):
        asked.hold(Holder("a", 1, 0, "app"), LeasePlan(FrequencyConfiguration(1190400, *TOP[1:])), "test")
    asked.reconfigure(Config())
    assert asked.notes == ()
    assert kernel.store[f"{CPU}/scaling_setspeed"] == str(TOP.cpu_khz)


def test_a_cluster_set_apart_stays_within_the_limits_too(tmp_path: Path) -> None:
    kernel, clock = Kernel(load_board("agx-orin-64gb"), emc=("bpmp",)), FakeClock()
    hardware = Hardware.probe(kernel, clock, baseline=tmp_path / "baseline.json", clusters=Clusters(apart=True))
    asked = Controller(hardware, Config(limits=ClockLimits(cpu_khz=ClockBounds(max=1000))), clock.monotonic)
    asked.hold(Holder("a", 1, 0, "app"), LeasePlan(FrequencyConfiguration(115200, 306000000, 665600000)), "test")
    assert [kernel.store[f"{CPU[:-1]}{first}/scaling_setspeed"] for first in (0, 4, 8)] == ["115200"] * 3
    assert [text.split(" frequency")[0] for text in asked.check_limits()] == [
        "limits.cpu_khz: no CPU",
        "limits.cpu_khz: no CPU (policy4)",
        "limits.cpu_khz: no CPU (policy8)",
    ]


def test_new_limits_plan_anew_for_leases_and_say_which_target_they_keep_out_of_reach(tmp_path: Path) -> None:
    kernel, asked = controller(tmp_path, ClockLimits())

    class Faster:
        """With the GPU kept slower, a faster memory makes up for it."""

        def plan(self, limits: Limits) -> LeasePlan:
            assert limits.gpu_hz is not None
            if limits.gpu_hz[1] < 300_000_000:
                raise TargetNotAttainable("latency_ms=20 is not attainable")
            configuration = TOP._replace(gpu_hz=limits.gpu_hz[1], emc_hz=limits.emc_hz[1] if limits.emc_hz else 0)
            return LeasePlan(configuration, REQUEST, planner=self)

    asked.hold(Holder("a", 1, 0, "app"), LeasePlan(LOWEST, REQUEST, planner=Faster()), "test")
    asked.reconfigure(Config(limits=ClockLimits(gpu_hz=ClockBounds(max=675750000))))
    assert kernel.store[f"{kernel.gpu}/userspace/set_freq"] == "675750000"
    assert kernel.store[f"{EMC}/rate"] == str(TOP.emc_hz)
    asked.reconfigure(Config(limits=ClockLimits(gpu_hz=ClockBounds(max=216750000))))
    assert kernel.store[f"{kernel.gpu}/userspace/set_freq"] == "216750000"
    assert asked.notes == ("lease 1 of app: min-energy is not kept: latency_ms=20 is not attainable",)
