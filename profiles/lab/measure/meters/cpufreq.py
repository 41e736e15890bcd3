# SPDX-License-Identifier: Apache-2.0
"""Processor clock by Linux cpufreq (kernel: Documentation/admin-guide/pm/cpufreq.rst): equal limits, restored at the end."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from .....kernels.grid import FrequencyConfiguration
from ....errors import MeasurementError

POLICIES = Path("sys/devices/system/cpu/cpufreq")
_LOW, _HIGH = "scaling_min_freq", "scaling_max_freq"
_KHZ = 1000

Found = TypeVar("Found")


class Cpufreq:
    """Clock of all cores. Raises MeasurementError."""

    def __init__(self, clocks_mhz: Sequence[int] = (), root: Path = Path("/")) -> None:
        self._policies = sorted((root / POLICIES).glob("policy*")) if clocks_mhz else []
        if not clocks_mhz:
            return
        if not self._policies:
            raise MeasurementError("meter: the processor's clock cannot be set here: the kernel has no cpufreq for it")
        for policy in self._policies:
            self._check(policy, clocks_mhz)
        self._found = {policy: (_number(policy / _LOW), _number(policy / _HIGH)) for policy in self._policies}

    def set(self, configuration: FrequencyConfiguration) -> None:
        """Lock the configuration's GPU clock as the processor's. Raises MeasurementError."""
        for policy in self._policies:
            khz = configuration.gpu_hz // _KHZ
            _asked(policy, functools.partial(_limit, policy, khz, khz))

    def close(self) -> None:
        policies, self._policies = self._policies, []
        for policy in policies:
            with contextlib.suppress(OSError):
                _limit(policy, *self._found[policy])

    def _check(self, policy: Path, clocks_mhz: Sequence[int]) -> None:
        if not all(os.access(policy / name, os.W_OK) for name in (_LOW, _HIGH)):
            raise MeasurementError(
                f"meter: the processor's clock cannot be set: {policy / _LOW} may not be written; run as root"
            )
        low, high = (
            _asked(policy, functools.partial(_number, policy / name)) for name in ("cpuinfo_min_freq", "cpuinfo_max_freq")
        )
        listed = policy / "scaling_available_frequencies"
        steps = sorted(int(word) // _KHZ for word in listed.read_text().split()) if listed.is_file() else []
        for mhz in clocks_mhz:
            if mhz not in steps if steps else not low <= mhz * _KHZ <= high:
                valid = ", ".join(map(str, steps)) if steps else f"{low // _KHZ} to {high // _KHZ}"
                raise MeasurementError(f"meter: {policy.name} of the processor has no clock of {mhz} MHz; valid: {valid}")


def _limit(policy: Path, low_khz: int, high_khz: int) -> None:
    """Set both limits, in an order that keeps low at most high."""
    limits = [(_LOW, low_khz), (_HIGH, high_khz)]
    for name, khz in limits[::-1] if low_khz > _number(policy / _HIGH) else limits:
        (policy / name).write_text(f"{khz}\n")


def _number(path: Path) -> int:
    return int(path.read_text())


def _asked(policy: Path, question: Callable[[], Found]) -> Found:
    try:
        return question()
    except (OSError, ValueError) as error:
        raise MeasurementError(f"meter: {policy.name} of the processor: {error}") from error
