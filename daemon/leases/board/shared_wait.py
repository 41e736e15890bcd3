# SPDX-License-Identifier: Apache-2.0
"""One pending result that several clients of the event loop wait for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class SharedWait:
    """A result that is computed once for all who wait for it, none of them longer than a bound from its beginning.

    Args:
        longest_s: bound of the wait. Clients that come later do not wait at all, so a board that hangs delays the first only.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._pending: asyncio.Future[Any] | None = None
        self._until_s = 0.0

    def begin(self, start: Callable[[], Future[Any]]) -> None:
        """Start the computation, unless one is pending."""
        if self._pending is None or self._pending.done():
            self._pending = asyncio.wrap_future(start())
            self._pending.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._until_s = time.monotonic() + self._longest_s

    async def ended(self) -> None:
        """Wait for the end of the pending computation, within the bound; its error is not raised here."""
        left_s = self._until_s - time.monotonic()
        if self._pending is not None and left_s > 0:
            await asyncio.wait({self._pending}, timeout=left_s)
