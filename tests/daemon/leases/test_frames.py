# SPDX-License-Identifier: Apache-2.0
"""Which frames say something about the clocks they ran at, when a target counts as missed, and what is said of why."""

from __future__ import annotations

import pytest

from jetdvfs.daemon.hardware.sensors.sampled import TimedValue
from jetdvfs.daemon.leases.frames import FRAMES_KEPT, ClockSetting, FrameLog
from jetdvfs.daemon.leases.missed_targets import heavier, is_missed, shifted, why
from jetdvfs.kernels.grid import FrequencyConfiguration

LOW, HIGH = FrequencyConfiguration(1, 1, 1), FrequencyConfiguration(2, 2, 2)
ALONE: frozenset[str] = frozenset()


def test_the_first_frame_after_a_pause_or_at_other_clocks_says_nothing_about_them() -> None:
    frames = FrameLog()
    frames.report([90.0, 10.0, 11.0], 1.0, ClockSetting(LOW, 0.0))
    assert list(frames.recent_ms) == [10.0, 11.0]
    frames.report([80.0, 12.0], 5.0, ClockSetting(LOW, 0.0))
    assert list(frames.recent_ms) == [10.0, 11.0, 12.0]
    frames.report([70.0, 5.0, 6.0], 5.3, ClockSetting(HIGH, 5.01))
    assert list(frames.recent_ms) == [5.0, 6.0]
    assert (frames.first_frames, list(frames.first_ms)) == (3, [90.0, 80.0, 70.0])
    assert {seen.configuration: seen.latency_ms for seen in frames.observations(5.3, ALONE)} == {LOW: 11.0, HIGH: 5.5}


def test_frames_that_are_reported_one_by_one_count_from_the_second_on() -> None:
    frames = FrameLog()
    for number, latency_ms in enumerate((90.0, 10.0, 11.0)):
        frames.report([latency_ms], 1.0 + 0.1 * number, ClockSetting(LOW, 0.0))
    assert list(frames.recent_ms) == [10.0, 11.0]


def test_frames_that_take_seconds_or_come_seldom_tell_of_their_clocks() -> None:
    frames = FrameLog()
    for number in range(4):
        frames.report([3000.0], 3.1 * (1 + number), ClockSetting(LOW, 0.0))
    assert list(frames.recent_ms) == [3000.0] * 3
    frames = FrameLog()
    for number in range(4):
        frames.report([20.0], 4.0 * (1 + number), ClockSetting(LOW, 0.0), period_ms=4000.0)
    assert list(frames.recent_ms) == [20.0] * 3


def test_frames_that_began_before_the_clocks_were_set_are_left_out() -> None:
    frames = FrameLog()
    frames.report([10.0] * 5, 1.0, ClockSetting(LOW, 0.0))
    # Ten frames in a second, the clocks were set in the middle of it.
    frames.report([10.0] * 5 + [5.0] * 5, 2.0, ClockSetting(HIGH, 1.5))
    assert list(frames.recent_ms) == [5.0] * 4


def test_late_frames_are_counted_whatever_they_say() -> None:
    frames = FrameLog()
    frames.report([30.0, 10.0, 21.0], 1.0, None, limit_ms=20.0)
    assert (frames.reported, frames.late) == (3, 2)


def test_while_something_slows_the_board_nothing_is_learned() -> None:
    frames = FrameLog()
    frames.report([30.0, 30.0, 30.0], 1.0, ClockSetting(LOW, 0.0, disturbed=True))
    assert list(frames.recent_ms) == [30.0, 30.0] and frames.observations(1.0, ALONE) == []


def test_what_came_in_company_is_kept_apart() -> None:
    frames = FrameLog()
    frames.report([10.0, 10.0, 10.0], 1.0, ClockSetting(LOW, 0.0))
    frames.report([20.0, 20.0, 20.0], 1.2, ClockSetting(LOW, 0.0), company=frozenset({"other"}))
    assert [seen.latency_ms for seen in frames.observations(1.2, ALONE)] == [10.0]
    assert [seen.latency_ms for seen in frames.observations(1.2, frozenset({"other"}))] == [20.0]


def test_power_counts_where_it_was_read_while_frames_came_and_the_clocks_stood_still() -> None:
    frames = FrameLog()
    frames.report([10.0, 10.0], 1.0, ClockSetting(LOW, 0.0), period_ms=50.0)
    frames.power({"VDD_IN": TimedValue(4000.0, 0.9)}, ["VDD_IN"])
    assert frames.observations(1.0, ALONE)[0].power_mw is None
    frames.report([10.0, 10.0], 1.9, ClockSetting(LOW, 0.0), period_ms=50.0)
    frames.power({"VDD_IN": TimedValue(5000.0, 1.8)}, ["VDD_IN", "VDD_MISSING"])
    assert frames.observations(1.9, ALONE)[0].power_mw is None
    frames.power({"VDD_IN": TimedValue(5000.0, 1.8)}, ["VDD_IN"])
    frames.power({"VDD_IN": TimedValue(5000.0, 1.8)}, ["VDD_IN"])
    seen = frames.observations(1.9, ALONE)[0]
    assert (seen.power_mw, seen.period_ms) == (5000.0, 50.0)


def test_with_the_power_it_is_noted_how_hot_the_die_was() -> None:
    frames = FrameLog()
    for now_s, die_c in ((1.0, 60.0), (2.0, 61.0), (3.0, 65.0)):
        frames.report([10.0, 10.0], now_s, ClockSetting(LOW, 0.0))
        frames.power({"VDD_IN": TimedValue(5000.0, now_s - 0.1)}, ["VDD_IN"], lambda die_c=die_c: die_c)  # type: ignore[misc]
    assert [seen.temperature_c for seen in frames.observations(3.0, ALONE)] == [63.0]
    again = FrameLog()
    again.recall(frames.observations(3.0, ALONE), 4.0)
    assert [seen.temperature_c for seen in again.observations(4.0, ALONE)] == [63.0]


def test_a_rail_that_died_and_reads_zero_says_nothing_and_keeps_nothing_else_from_being_learned() -> None:
    frames = FrameLog()
    for now_s in (1.0, 2.0, 3.0):
        frames.report([10.0, 10.0], now_s, ClockSetting(LOW, 0.0))
        frames.power({"VDD_IN": TimedValue(0.0, now_s - 0.1)}, ["VDD_IN"])
    (seen,) = frames.observations(3.0, ALONE)
    assert (seen.latency_ms, seen.power_mw) == (10.0, None)


@pytest.mark.parametrize(
    ("latencies_ms", "confidence", "missed"),
    [
        ([30.0, 30.0], None, None),
        ([30.0, 30.0, 30.0], None, True),
        ([10.0] * 20 + [30.0] * 5 + [10.0] * 3, None, True),
        ([30.0] * 5 + [10.0] * 8, None, False),
        ([10.0] * 29 + [30.0], 0.95, False),
        ([10.0, 10.0, 10.0, 30.0] * 8, None, False),
        ([10.0, 10.0, 10.0, 30.0] * 8, 0.95, True),
    ],
)
def test_a_target_is_missed_when_most_of_the_last_frames_or_more_than_chance_allows_are_late(
    latencies_ms: list[float], confidence: float | None, missed: bool | None
) -> None:
    assert is_missed(latencies_ms, 20.0, confidence) is missed


def test_why_it_is_missed_is_said_in_the_users_words() -> None:
    def because(predicted_ms: float | None = 20.0, **known: tuple[str, ...]) -> str:
        causes = {"throttled": (), "over_current": (), "deviating": (), "company": (), **known}
        return why(26.0, predicted_ms, **causes)

    assert because() == "the prediction was wrong by 30% (20 ms predicted at these clocks)"
    assert because(26.0) == "the target is out of reach at these clocks (26 ms predicted)"
    assert because(throttled=("cpu-thermal at 99 C",)) == "throttling (cpu-thermal at 99 C)"
    assert because(over_current=("oc3 12 a minute",)) == "over-current (oc3 12 a minute)"
    assert because(deviating=("GPU clock: set to 900 MHz, measured 600 MHz",)).startswith(
        "clocks below the requested ones (GPU"
    )
    assert because(company=("lease 2 of viewer",)) == "contention (lease 2 of viewer uses the GPU, too)"


def test_reports_are_summed_up_by_rank_of_the_last_frames() -> None:
    frames = FrameLog()
    assert frames.observed() is None
    frames.report([float(value) for value in range(100, 0, -1)])
    assert frames.observed() == {"frames": 100, "mean_ms": 50.5, "p50_ms": 51.0, "p95_ms": 96.0, "last_ms": 4.5}
    frames.report([7.0] * (FRAMES_KEPT - 1) + [9.0])
    told = frames.observed()
    assert told is not None and told["frames"] == FRAMES_KEPT and told["p50_ms"] == told["p95_ms"] == 7.0
    assert told["mean_ms"] == pytest.approx(7.0 + 2.0 / FRAMES_KEPT)


def test_what_became_heavier_counts_as_such_elsewhere_and_by_its_last_frames_here() -> None:
    frames = FrameLog()
    frames.report([10.0] * 9, 1.0, ClockSetting(LOW, 0.0), period_ms=40.0)
    frames.report([6.0] * 12, 2.0, ClockSetting(HIGH, 1.0), period_ms=40.0)
    frames.report([9.0] * 5, 2.5, ClockSetting(HIGH, 1.0), period_ms=40.0)
    frames.renew()
    found = {seen.configuration: seen for seen in frames.observations(2.5, ALONE)}
    assert (found[LOW].latency_ms, found[LOW].frames, found[LOW].period_ms) == (15.0, 1, 60.0)
    assert (found[HIGH].latency_ms, found[HIGH].period_ms) == (9.0, 40.0)


def test_what_was_not_to_be_foreseen_is_of_another_load_than_all_that_was_seen_elsewhere() -> None:
    frames = FrameLog()
    frames.report([10.0] * 5, 1.0, ClockSetting(LOW, 0.0))
    frames.report([8.0] * 5, 2.0, ClockSetting(HIGH, 1.0))
    frames.renew(1.5)
    found = {seen.configuration: seen for seen in frames.observations(2.0, ALONE)}
    assert (found[LOW].latency_ms, found[LOW].frames) == (15.0, 1) and found[LOW].doubt > 0.0
    assert found[HIGH].latency_ms == 8.0 and found[HIGH].doubt == 0.0


def test_frames_from_before_the_clocks_were_set_again_do_not_hide_that_they_became_heavier_meanwhile() -> None:
    frames = FrameLog()
    frames.report([10.0] * 20, 1.0, ClockSetting(LOW, 0.0))
    frames.report([6.0] * 12, 2.0, ClockSetting(HIGH, 1.0))
    frames.report([13.0] * 4, 3.0, ClockSetting(LOW, 2.0))
    frames.renew()
    (here,) = (seen for seen in frames.observations(3.0, ALONE) if seen.configuration == LOW)
    assert here.latency_ms == 13.0


@pytest.mark.parametrize(
    ("latencies_ms", "factor"),
    [([10.0] * 8 + [15.0] * 3, 1.5), ([10.0] * 8 + [10.5] * 3, 1.0), ([15.0] * 7, 1.0), ([10.0] * 4 + [15.0] * 3, 1.0)],
)
def test_frames_are_heavier_only_than_those_before_at_the_same_clocks(latencies_ms: list[float], factor: float) -> None:
    assert heavier(latencies_ms) == factor


def test_another_load_counts_as_such_elsewhere_and_by_its_last_frames_here_be_it_lighter() -> None:
    frames = FrameLog()
    frames.report([10.0] * 9, 1.0, ClockSetting(LOW, 0.0), period_ms=40.0)
    frames.report([6.0] * 12, 2.0, ClockSetting(HIGH, 1.0), period_ms=40.0)
    frames.power({"VDD_IN": TimedValue(4000.0, 1.9)}, ["VDD_IN"])
    frames.report([4.5] * 6, 2.5, ClockSetting(HIGH, 1.0), period_ms=40.0)
    assert frames.shift() == 1.0
    frames.report([4.5], 2.6, ClockSetting(HIGH, 1.0), period_ms=40.0)
    assert frames.shift() == 0.75 and frames.shift() == 1.0
    found = {seen.configuration: seen for seen in frames.observations(2.6, ALONE)}
    assert (found[LOW].latency_ms, found[LOW].frames, found[LOW].period_ms) == (7.5, 1, 30.0)
    assert (found[HIGH].latency_ms, found[HIGH].power_mw) == (4.5, None)


@pytest.mark.parametrize(
    ("latencies_ms", "factor"),
    [
        ([10.0] * 8 + [15.0] * 8, 1.5),
        ([10.0] * 8 + [8.0] * 8, 0.8),
        ([10.0] * 8 + [10.5] * 8, 1.0),
        ([10.0] * 7 + [15.0] * 8, 1.0),
        ([10.0] * 8 + [15.0] * 7 + [10.0], 1.5),
        ([10.0] * 8 + [15.0] * 6 + [10.0] * 2, 1.0),
        ([10.0] * 24 + [8.0] * 3 + [13.0] + [8.0] * 4, 0.8),
        ([8.0, 12.0] * 6 + [12.0] * 8, 1.0),
    ],
)
def test_a_load_is_another_where_all_of_the_last_frames_but_one_differ_from_most_before(
    latencies_ms: list[float], factor: float
) -> None:
    assert shifted(latencies_ms) == factor
