# SPDX-License-Identifier: Apache-2.0
"""What scenarios are made of."""

from __future__ import annotations

from typing import Protocol

from jetdvfs.tests.soak.stage import Stage


class Event(Protocol):
    """One thing that happens; a frozen dataclass, so that it can be printed and compared."""

    def words(self) -> str:
        """What it is, for people."""

    def play(self, stage: Stage) -> None:
        """Let it happen. What breaks a promise is noted on the stage."""
