# SPDX-License-Identifier: Apache-2.0
"""The GPU's power switch: after some time without work it is off, and before its first use some of its files are missing."""

from __future__ import annotations

import math
from collections.abc import Callable


class PowerGate:
    """The switch.

    Args:
        now: the board's present time.
        works: whether this system switches the GPU off at all.
        used: whether a desktop, or anything else, has used the GPU since boot.

    Attributes:
        appeared: whether it has been powered since boot; its clock's files appear then.
        used: whether anything has run on it since boot; its masks are fixed from then on.
        delay_s: how long it stays on without work.
    """

    def __init__(self, now: Callable[[], float], *, works: bool, used: bool, delay_s: float = 0.5) -> None:
        self.works = works
        self.appeared = used
        self.used = used
        self._control = "auto"
        self.delay_s = delay_s
        self._allowed = True
        self._now = now
        self._busy_until = now() if used else -math.inf

    @property
    def gated(self) -> bool:
        """Whether the GPU has no power."""
        if not self.works or not self._allowed or self._control == "on":
            return False
        return self._now() - self._busy_until > self.delay_s

    @property
    def control(self) -> str:
        """Runtime power management: ``on`` keeps it powered, ``auto`` does not."""
        return self._control

    @control.setter
    def control(self, word: str) -> None:
        self._control = word
        self.appeared = self.appeared or word == "on"

    def allow(self, allowed: bool) -> None:
        """Let it be switched off, or keep it powered."""
        self._allowed = allowed
        self.appeared = self.appeared or not allowed

    def work(self, until: float) -> None:
        """It works until then."""
        self.used = self.appeared = True
        self._busy_until = until
