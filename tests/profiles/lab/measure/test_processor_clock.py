# SPDX-License-Identifier: Apache-2.0
"""The top clock of this machine's processor."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetdvfs.profiles.lab.measure.meters.cpu import processor_hz

CPUFREQ = "sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq"
CPUINFO = "processor\t: 0\nmodel name\t: A CPU @ 3.20GHz\ncpu MHz\t\t: {}\n"


@pytest.mark.parametrize(
    ("files", "mhz"),
    [
        ({CPUFREQ: "1190400\n", "proc/cpuinfo": CPUINFO.format("800.000")}, 1190),
        ({"proc/cpuinfo": CPUINFO.format("2596.140")}, 2596),
        ({CPUFREQ: "0\n", "proc/cpuinfo": CPUINFO.format("0.000")}, 1000),
        ({"proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 62.50\n"}, 1000),
        ({}, 1000),
    ],
)
def test_it_is_that_of_cpufreq_else_the_present_one(files: dict[str, str], mhz: int, tmp_path: Path) -> None:
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert processor_hz(tmp_path) == mhz * 1_000_000
