# SPDX-License-Identifier: Apache-2.0
"""cpufreq files as Linux 4.9 behaves, JetPack 4's kernel: limits in the wrong order are refused, and nothing waits."""

from __future__ import annotations

import errno

from ..attributes import refusal
from ..parsing import scan_unsigned
from .cpufreq import SimulatedCpuPolicy


class SimulatedCpuPolicy49(SimulatedCpuPolicy):
    """One cpufreq policy under 4.9: a lower limit above the upper one, or the other way round, is EINVAL.

    Limits are kept cut to the clock's range, so that a limit that was cut does not come back with the range.
    """

    def _set_low(self, text: str) -> float:
        value = scan_unsigned(text, bits=32)
        if value > self.limits[1]:
            raise refusal(errno.EINVAL)
        self._asked_low = max(value, self.clock.rates[0])
        self._apply_limits()
        return 0.0

    def _set_high(self, text: str) -> float:
        value = scan_unsigned(text, bits=32)
        if value < self.limits[0]:
            raise refusal(errno.EINVAL)
        self._asked_high = min(value, self.clock.rates[-1])
        self._apply_limits()
        return 0.0
