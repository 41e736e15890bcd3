# SPDX-License-Identifier: Apache-2.0
"""Energy from power readings: between the same two moments as the time, and no mean above the peak."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jetdvfs.daemon.hardware.sensors.energy import PowerTrace, RailEnergies
from jetdvfs.daemon.leases.learning.lease_energy import SHORTEST_S, LeaseMeter


def trace(*readings: tuple[float, float]) -> PowerTrace:
    made = PowerTrace()
    for time_s, power_mw in readings:
        made.add(power_mw, time_s)
    return made


def test_readings_before_and_after_a_command_count_only_as_far_as_they_reach_into_it() -> None:
    made = trace((0.0, 1000.0), (10.0, 3000.0), (12.0, 3000.0), (30.0, 100.0))

    def between(begin_s: float, end_s: float) -> tuple[float, float]:
        energy_mj, peak_mw = made.between(begin_s, end_s) or (0.0, 0.0)
        return round(energy_mj, 6), round(peak_mw, 6)

    assert between(10.0, 12.0) == (6000.0, 3000.0)
    assert between(5.0, 10.0) == (12_500.0, 3000.0)
    assert between(40.0, 41.0) == (100.0, 100.0)
    assert made.readings(10.0, 12.0) == 2 and PowerTrace().between(0.0, 1.0) is None


@given(
    st.lists(st.floats(0.0, 50_000.0), min_size=1, max_size=12),
    st.floats(0.0, 10.0),
    st.floats(0.01, 10.0),
)
def test_a_mean_is_never_above_the_peak(powers_mw: list[float], begin_s: float, length_s: float) -> None:
    made = trace(*((float(place), power_mw) for place, power_mw in enumerate(powers_mw)))
    energy_mj, peak_mw = made.between(begin_s, begin_s + length_s) or (0.0, 0.0)
    assert energy_mj / length_s <= peak_mw * (1 + 1e-9) + 1e-9


def test_a_leases_energy_is_of_the_seconds_between_its_readings() -> None:
    meter = LeaseMeter(100.0)
    assert meter.measured(["A"]) is None
    meter.take((RailEnergies(100.2, {"A": 50.0, "B": 0.0}), RailEnergies(101.0, {"A": 80.0, "B": 5.0})))
    assert meter.measured(["A"]) is None  # less than SHORTEST_S
    meter.take((RailEnergies(160.0, {"A": 900.0, "B": 9.0}), RailEnergies(170.2, {"A": 1050.0, "B": 10.0})))
    energy_mj, seconds = meter.measured(["A", "B"]) or (0.0, 0.0)
    assert (energy_mj, round(seconds, 6)) == (1010.0, 70.0)
    assert SHORTEST_S > 0.8 and meter.measured([]) is None
