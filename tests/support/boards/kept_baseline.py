# SPDX-License-Identifier: Apache-2.0
"""Hardware with a baseline, on a kernel that a test can make misbehave."""

from __future__ import annotations

from pathlib import Path

from jetdvfs.daemon.hardware.hardware import Hardware
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.support.boards.hardware_kernel import FakeClock, Kernel

LOW = FrequencyConfiguration(345600, 318750000, 665600000)
HIGH = FrequencyConfiguration(1958400, 1198500000, 1600000000)


def start(kernel: Kernel, place: Path) -> Hardware:
    """What a daemon that starts makes of the board and of what one before it left behind."""
    return Hardware.probe(kernel, FakeClock(), boards=[kernel.board], baseline=place)


def set_by_people(kernel: Kernel) -> dict[str, str]:
    """The files of limits, governors and the memory lock, as they stand."""
    names = ("scaling_governor", "scaling_min_freq", "scaling_max_freq", "governor", "min_freq", "max_freq", "mrq_rate_locked")
    return {path: value for path, value in kernel.store.items() if path.endswith(names)}
