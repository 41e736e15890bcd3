# SPDX-License-Identifier: Apache-2.0
"""How long writers wait on the simulated Orin Nano Super, against a real one's transitions."""

from __future__ import annotations

import csv
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jetdvfs.tests.support.boards.twin_fakes import Shell, VirtualClock, fake_board
from jetdvfs.tests.support.paths import SHARED_DATA

MEASURED = SHARED_DATA.parent / "facts" / "calibration" / "orin_nano_super_transition_write_times.csv"
POLICY = "/sys/devices/system/cpu/cpufreq/policy0"
GPU = "/sys/class/devfreq/17000000.gpu"
EMC = "/sys/kernel/debug/bpmp/debug/clk/emc"
WRITES = {"cpu": [f"{POLICY}/scaling_setspeed"], "gpu": [f"{GPU}/max_freq", f"{GPU}/min_freq"], "emc": [f"{EMC}/rate"]}
REPEATS = 150


def wait_ms(pair: str, direction: str) -> NDArray[Any]:
    """What one change between two clocks takes, many times over."""
    clock = VirtualClock()
    shell = Shell(fake_board(clock, "orin-nano-8gb"))
    shell.echo("userspace", f"{POLICY}/scaling_governor")
    shell.echo(0, f"{POLICY}/scaling_min_freq")
    shell.echo(1, f"{EMC}/mrq_rate_locked")
    unit, high, low = pair.split("_")
    levels = (low, high) if direction == "up" else (high, low)
    waits = []
    for _ in range(REPEATS):
        for level, kept in zip(levels, (False, True), strict=True):
            paths = WRITES[unit] if level == high else WRITES[unit][::-1]
            start = clock.time
            for path in paths:
                shell.echo(level, path)
            waits += [1e3 * (clock.time - start)] if kept else []
            clock.sleep(0.1)
    return np.array(waits)


@pytest.mark.shared_data
def test_writers_wait_as_long_as_on_a_real_board() -> None:
    if not MEASURED.is_file():
        pytest.skip(f"needs {MEASURED}, measured data that is not part of the repository")
    with MEASURED.open() as file:
        rows = [row for row in csv.DictReader(line for line in file if line[0] != "#") if row["run"] == "pilot_trans"]
    assert len(rows) == 12
    for row in rows:
        waits = wait_ms(row["pair"], row["direction"])
        for name, quantile in (("write_us_p50", 0.50), ("write_us_p95", 0.95)):
            assert np.quantile(waits, quantile) == pytest.approx(float(row[name]) / 1e3, rel=0.15), (row["pair"], name)
