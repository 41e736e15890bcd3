# SPDX-License-Identifier: Apache-2.0
"""Power budget of the board, from temperature ceilings and battery life."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ....profiles.board import BoardDescription
from ...errors import UsageError
from ...hardware.files import Files
from ...hardware.sensors.energy import total_mw
from ...hardware.sensors.sampled import SampledSensors
from ...hardware.sensors.thermal import hottest_mc
from ...planning.limits import BoardConstraints, LeaseConstraints, PowerBudget, heeded
from ...system.journal import BUDGET, fields
from .budget_scaling import BudgetScaling
from .temperature_ceiling import MeanPowerFile, TemperatureCeiling

if TYPE_CHECKING:
    from .battery import Battery, BatteryLife

log = logging.getLogger(__name__)

ASKED = ""
_BATTERY_EVERY_S = 5.0


class BatterySupply(Struct, frozen=True):
    battery: str | None
    left_wh: float
    hours: float
    lasts_h: float | None


class PowerBudgets:
    """Power budgets of the board. For one thread.

    Args:
        operators: users whose limits bind all leases; those of other users bind while all leases are theirs.
        mean_power: file of the board's recent power, if any.

    Attributes:
        notes: requested limits not kept now, with reasons.
    """

    def __init__(
        self,
        sensors: SampledSensors,
        description: BoardDescription,
        files: Files,
        monotonic: Callable[[], float],
        operators: Collection[int] = frozenset({0}),
        mean_power: MeanPowerFile | None = None,
    ) -> None:
        self.budget: PowerBudget | None = None
        self.supply: BatterySupply | None = None
        self.ceiling_c: float | None = None
        self.notes: tuple[str, ...] = ()
        self.capping = BudgetScaling()
        self._sensors = sensors
        self._files = files
        self._monotonic = monotonic
        self._operators = operators
        self._k_per_w = float(description.section("thermal").get("k_per_w", 0.0))
        self._drawn = mean_power
        self._ceiling = TemperatureCeiling(self._k_per_w, mean_power.read(monotonic()) if mean_power is not None else None)
        self._draining: dict[str, BatteryLife] = {}
        self._battery: Battery | None = None
        self._unread = False
        self._battery_s = float("-inf")

    def check(self, constraints: BoardConstraints) -> None:
        self._draining.pop(ASKED, None)
        if constraints.hours is not None and constraints.battery_wh is None and self._read_battery(self._monotonic()) is None:
            raise UsageError(
                f"hours={constraints.hours:g}: this board shows no battery (/sys/class/power_supply); state its charge: "
                "--battery-wh 50"
            )
        if constraints.ceiling_c is not None and self._hottest_c() is None:
            others = ", ".join(self._sensors.temperatures_mc()) or "none"
            raise UsageError(
                f"ceiling_c={constraints.ceiling_c:g}: no zone of the CPU, the GPU or the junction can be read; "
                f"zones read: {others}"
            )

    def wake(self) -> None:
        self._ceiling = TemperatureCeiling(self._k_per_w)
        self._battery_s = float("-inf")
        self._sensors.want()

    def update(self, ceiling_c: float | None, leases: Sequence[LeaseConstraints]) -> bool:
        """Update the budget by the operator's ceiling and leases, held or requested; True if changed."""
        now_s, drawn_mw = self._monotonic(), self._drawn_mw()
        if drawn_mw is not None:
            self._ceiling.see(now_s, drawn_mw, self._hottest_c())
            if self._drawn is not None and self._ceiling.drawn is not None:
                self._drawn.keep(self._ceiling.drawn)
        heard = heeded(leases, self._operators)
        lasting = {one.lease: one.asked for one in leases if one.asked.hours is not None}
        for name, one in lasting.items():
            if name not in self._draining or self._draining[name].asked != one:
                from .battery import BatteryLife

                granted = self._draining.pop(ASKED, None)  # carries on from the request
                self._draining[name] = granted or BatteryLife(now_s, one)
        self._draining = {name: one for name, one in self._draining.items() if name in lasting}
        ceilings = [one for one in (ceiling_c, *(one.asked.ceiling_c for one in heard)) if one is not None]
        self.ceiling_c = min(ceilings, default=None)
        if (self.ceiling_c is not None or lasting) and leases:
            self._sensors.want()
        self.notes = tuple(
            f"{one.label} asks for less of the board than other users' leases need: that does not count while they are held"
            for one in leases
            if one.asked.anything and one not in heard
        )
        bounds = [self._cool(now_s), self._lasting(now_s, drawn_mw, {one.lease for one in heard})]
        found = min((one for one in bounds if one is not None), key=lambda one: one.power_mw, default=None)
        capped = self.capping.update(now_s, drawn_mw, None if found is None else found.power_mw)
        if (found and found.power_mw) == (self.budget and self.budget.power_mw):
            return capped
        self.budget = found
        text = f"the board may draw {found}" if found else "the board may draw anything again"
        log.info("%s", text, extra=fields(BUDGET, reason=text))
        return True

    @property
    def reasons(self) -> tuple[str, ...]:
        return (f"the board may draw {self.budget}",) if self.budget is not None else ()

    def _cool(self, now_s: float) -> PowerBudget | None:
        ceiling_c, hottest_c = self.ceiling_c, self._hottest_c()
        if ceiling_c is None:
            self._ceiling.forget()
            return None
        if hottest_c is None:
            self.notes = (*self.notes, f"the ceiling of {ceiling_c:g} C is not watched: no zone can be read")
            limit_mw = self._ceiling.last_mw
        else:
            if hottest_c > ceiling_c:
                self.notes = (*self.notes, f"the hottest zone has {hottest_c:.1f} C, above the ceiling of {ceiling_c:g} C")
            limit_mw = self._ceiling.limit_mw(now_s, hottest_c, ceiling_c)
        if limit_mw is None:
            self.notes = (*self.notes, f"the ceiling of {ceiling_c:g} C is not planned for: its sensors cannot be read")
            return None
        return PowerBudget(limit_mw, f"so that no zone becomes hotter than {ceiling_c:g} C")

    def _lasting(self, now_s: float, drawn_mw: float | None, heard: Collection[str]) -> PowerBudget | None:
        self.supply = None
        if not self._draining:
            return None
        battery = self._read_battery(now_s)
        if self._unread and any(draining.asked.battery_wh is None for draining in self._draining.values()):
            self.notes = (*self.notes, "the charge of the battery can no longer be read; the last reading counts")
        if drawn_mw is None:
            read = self._sensors.rails_mw()
            unread = ", ".join(rail for rail in self._sensors.energy_rails if rail not in read)
            text = f"power drawn from the battery is unknown ({unread} is not read): the charge is not counted down"
            self.notes = (*self.notes, text)
        found: PowerBudget | None = None
        for name, draining in self._draining.items():
            if drawn_mw is not None:
                draining.drain(now_s, drawn_mw)
            left_wh = draining.left_wh(battery)
            if left_wh is None or name not in heard:
                continue
            remaining_mw = max((battery.drawn_mw or 0.0) - (drawn_mw or 0.0), 0.0) if battery is not None and drawn_mw else 0.0
            limit_mw, hours = draining.limit_mw(now_s, left_wh, remaining_mw), draining.hours(now_s)
            if limit_mw is None or (found is not None and limit_mw >= found.power_mw):
                continue
            found = PowerBudget(limit_mw, f"so that the {left_wh:.3g} Wh left in the battery last for {hours:.3g} h")
            spent_mw = drawn_mw + remaining_mw if drawn_mw else None
            lasts_h = 1e3 * left_wh / spent_mw if spent_mw else None
            self.supply = BatterySupply(battery.name if battery is not None else None, left_wh, hours, lasts_h)
        return found

    def _read_battery(self, now_s: float) -> Battery | None:
        if now_s - self._battery_s >= _BATTERY_EVERY_S:
            from .battery import read_battery  # only if a battery is to last

            found, self._battery_s = read_battery(self._files), now_s
            self._unread = found is None
            self._battery = found or self._battery  # the last reading counts
        return self._battery

    def _hottest_c(self) -> float | None:
        read_mc = hottest_mc(self._sensors.trips, self._sensors.temperatures_mc())
        return None if read_mc is None else read_mc / 1e3

    def _drawn_mw(self) -> float | None:
        return total_mw(self._sensors.rails_mw(), self._sensors.energy_rails)
