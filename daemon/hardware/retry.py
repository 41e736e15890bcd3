# SPDX-License-Identifier: Apache-2.0
"""Making a call again that failed for a reason that may pass; what fails for good is told at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...profiles.timing import Clock
from ..errors import HardwareHangs, TransientError

T = TypeVar("T")


def retried(call: Callable[[], T], clock: Clock, *, longest_s: float, pause_s: float) -> T:
    """What a call returns, which is made again until it succeeds or the time is over.

    Args:
        longest_s: from the first failure on; the last try is not cut short.
        pause_s: between the first two tries; every further pause is twice as long.

    Raises:
        TransientError: the last one, once the time is over. :class:`HardwareHangs` comes at once: it was waited for already,
            and what hangs may yet take effect.
        Exception: any other one, at once.
    """
    deadline: float | None = None
    while True:
        try:
            return call()
        except HardwareHangs:
            raise
        except TransientError:
            now = clock.monotonic()
            deadline = now + longest_s if deadline is None else deadline
            if now >= deadline:
                raise
        clock.sleep(min(pause_s, deadline - now))
        pause_s *= 2
