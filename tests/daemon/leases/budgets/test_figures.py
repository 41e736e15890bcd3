# SPDX-License-Identifier: Apache-2.0
"""What a board may draw, by temperatures and batteries that are made up."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from jetdvfs.daemon.errors import UsageError
from jetdvfs.daemon.hardware.files import Files
from jetdvfs.daemon.leases.budgets.battery import Battery, BatteryLife, read_battery
from jetdvfs.daemon.leases.budgets.temperature_ceiling import MARGIN_C, MeanPower, MeanPowerFile, TemperatureCeiling
from jetdvfs.daemon.planning.limits import BoardConstraints
from jetdvfs.tests.support.boards.hardware_kernel import Kernel

AMBIENT_C, TAU_S, WANTED_MW = 25.0, 90.0, 30_000.0


def run(
    ceiling: TemperatureCeiling,
    true_k_per_w: float,
    ceiling_c: float,
    minutes: float,
    sink_c: float | None = None,
    drawn_mw: float = 5e3,
) -> tuple[list[float], list[float]]:
    """Temperatures, and limits as they changed, of a board that draws all that it may and wants 30 W."""
    sink_c = AMBIENT_C + true_k_per_w * 5 if sink_c is None else sink_c
    hottest, limits = [], [math.nan]
    for second in range(int(60 * minutes)):
        ceiling.see(float(second), drawn_mw, sink_c)
        limit_mw = ceiling.limit_mw(float(second), sink_c, ceiling_c)
        assert limit_mw is not None
        if limit_mw != limits[-1]:
            limits.append(limit_mw)
        drawn_mw = min(WANTED_MW, max(limit_mw, 3_000.0))
        sink_c += (AMBIENT_C + true_k_per_w * drawn_mw / 1e3 - sink_c) * (1 - math.exp(-1 / TAU_S))
        hottest.append(sink_c)
    return hottest, limits[1:]


@pytest.mark.parametrize("true_k_per_w", [0.7, 1.0, 1.4])
def test_a_board_settles_below_its_ceiling_whatever_its_heat_sink_without_flapping(true_k_per_w: float) -> None:
    hottest, limits = run(TemperatureCeiling(1.0), true_k_per_w, 45.0, 30)
    assert max(hottest) <= 45.0
    assert hottest[-1] > 45.0 - 2 * MARGIN_C - 2  # what may be drawn is drawn
    late = run(TemperatureCeiling(1.0), true_k_per_w, 45.0, 15)[1]
    assert len(limits) - len(late) <= 3 and len(limits) <= 20


def test_a_board_that_never_comes_near_its_ceiling_may_draw_what_it_wants() -> None:
    hottest, limits = run(TemperatureCeiling(1.0), 1.0, 90.0, 10)
    assert min(limits) > WANTED_MW and max(hottest) < 90.0


def test_a_board_whose_load_began_a_moment_before_the_daemon_stays_below_its_ceiling() -> None:
    hottest, _ = run(TemperatureCeiling(1.0), 1.0, 45.0, 30, drawn_mw=WANTED_MW)
    assert max(hottest) <= 45.0


def test_a_daemon_that_begins_anew_on_a_hot_board_knows_what_that_may_draw(tmp_path: Path) -> None:
    board, files = Kernel(), MeanPowerFile(tmp_path / "drawn.json", Kernel())
    before = TemperatureCeiling(1.0)
    for second in range(600):
        before.see(float(second), 18_000.0)
        assert before.drawn is not None
        files.keep(before.drawn)
    # The daemon is gone for five seconds, in which the board idles.
    known = MeanPowerFile(tmp_path / "drawn.json", board).read(605.0)
    assert known is not None and known.mean_mw == pytest.approx(18_000, rel=0.01)
    again, forgetful = TemperatureCeiling(1.0, known), TemperatureCeiling(1.0)
    for ceiling in (again, forgetful):
        ceiling.see(605.0, 3_000.0, 43.0)
    limit_mw = again.limit_mw(605.0, 43.0, 45.0)
    assert limit_mw is not None and 14_000 < limit_mw <= 18_000
    assert forgetful.limit_mw(605.0, 43.0, 45.0) == 3_000


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"boot_id": "other", "mean_mw": 1, "seen_s": 1}', "\x00"])
def test_what_was_kept_in_another_boot_or_is_damaged_counts_as_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "drawn.json").write_text(text)
    assert MeanPowerFile(tmp_path / "drawn.json", Kernel()).read(10.0) is None


def test_a_figure_that_cannot_be_kept_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "drawn.json"
    (path / "in the way").mkdir(parents=True)
    MeanPowerFile(path, Kernel()).keep(MeanPower(5_000.0, 1.0))
    assert [left.name for left in tmp_path.iterdir()] == ["drawn.json"]


def test_a_battery_tells_energy_or_charge_and_others_are_not_the_boards(tmp_path: Path) -> None:
    def supply(name: str, **files: object) -> None:
        folder = tmp_path / "sys/class/power_supply" / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, value in files.items():
            (folder / file).write_text(f"{value}\n")

    assert read_battery(Files(tmp_path)) is None
    supply("ac", type="Mains", online=1)
    supply("amouse", type="Battery", scope="Device", energy_now=1_000_000)
    assert read_battery(Files(tmp_path)) is None
    supply("pack", type="Battery", status="Discharging", charge_now=2_500_000, voltage_now=16_000_000, current_now=-500_000)
    assert read_battery(Files(tmp_path)) == Battery("pack", 40.0, 8_000.0)
    supply("pack", energy_now=39_000_000, power_now=7_000_000)
    assert read_battery(Files(tmp_path)) == Battery("pack", 39.0, 7_000.0)
    supply("pack", status="Charging")
    assert read_battery(Files(tmp_path)) == Battery("pack", 39.0, None)


def test_the_budget_of_a_battery_follows_what_is_left_of_it_and_of_the_time() -> None:
    draining = BatteryLife(0.0, BoardConstraints(hours=2.0, battery_wh=20.0))
    assert draining.limit_mw(0.0, draining.left_wh(None) or 0.0, 0.0) == 10_000
    draining.drain(1800.0, 4_000.0)  # less than it might: 18 Wh are left for an hour and a half
    assert draining.limit_mw(1800.0, draining.left_wh(None) or 0.0, 0.0) == 12_000
    assert draining.limit_mw(1810.0, 17.0, 0.0) == 12_000  # stands for a minute
    assert draining.limit_mw(1900.0, 17.0, 2_000.0) == pytest.approx(17 / (5300 / 3600) * 1e3 - 2_000, abs=10)
    assert draining.limit_mw(7200.0, 1.0, 0.0) is None


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"ceiling_c": 5.0}, "ceiling_c=5: expected 20 to 110 degrees Celsius"),
        ({"hours": 6.0, "battery_wh": 0.0}, "battery_wh=0: expected 0.1 to 100000 watt hours"),
        ({"battery_wh": 50.0}, "battery_wh=50: said of a target of hours, such as hours=6"),
    ],
)
def test_bad_wishes_are_refused_in_a_line(asked: dict[str, float], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        BoardConstraints(**asked)
    assert str(caught.value) == said
