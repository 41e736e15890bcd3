# SPDX-License-Identifier: Apache-2.0
"""The GPU's devfreq files as Linux 4.9 behaves (drivers/devfreq/devfreq.c), JetPack 4's kernel.

Limits are kept and shown as they were written; one on the wrong side of the other is EINVAL, zero means no limit. A clock
that the upper limit cuts goes to the highest rate below it, any other to the lowest that is not below what is wanted.
"""

from __future__ import annotations

import errno

from ..attributes import refusal
from ..parsing import scan_unsigned
from .devfreq import SimulatedGpu


class SimulatedGpu49(SimulatedGpu):
    """The GPU under 4.9. Heat limits its clock in hardware, which its limits do not show."""

    _low_hz: int | None = None
    _high_hz: int | None = None

    @property
    def shown(self) -> tuple[int, int]:
        low = self.clock.rates[0] if self._low_hz is None else self._low_hz
        return low, self.clock.rates[-1] if self._high_hz is None else self._high_hz

    @property
    def limits(self) -> tuple[int, int]:
        low, high = self.shown
        top = self.cooled_hz or self.clock.rates[-1]
        high = min(high, top) if high else top
        return min(low, high), high

    def _set_low(self, text: str) -> float:
        value, high = scan_unsigned(text), self.shown[1]
        if value and high and value > high:
            raise refusal(errno.EINVAL)
        self._low_hz = value
        return self._update()

    def _set_high(self, text: str) -> float:
        value, low = scan_unsigned(text), self.shown[0]
        if value and low and value < low:
            raise refusal(errno.EINVAL)
        self._high_hz = value
        return self._update()

    def _round(self, wanted: float) -> int:
        low, high = self.limits
        if wanted >= high:
            return self.clock.at_most(high)
        return self.clock.at_least(max(wanted, low))
