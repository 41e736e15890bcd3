# SPDX-License-Identifier: Apache-2.0
"""Readings that may hang (a sensor behind a stuck bus) must not take whoever asks with them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
_LONGEST_S = 0.5


class Bounded(Generic[T]):
    """Calls a function in a thread of its own for a bounded time; one that hangs is not called again until it came back.

    Args:
        read: the function.
        otherwise: what is answered while it hangs.

    Attributes:
        hangs: whether it did at the last call.
    """

    def __init__(self, read: Callable[[], T], otherwise: T, longest_s: float = _LONGEST_S) -> None:
        self._read = read
        self._otherwise = otherwise
        self._longest_s = longest_s
        self._thread: threading.Thread | None = None
        self._result: list[T] = []
        self._error: list[BaseException] = []
        self.hangs = False

    def __call__(self) -> T:
        if self._thread is None:
            self._result, self._error = [], []
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
            self._thread.join(self._longest_s)
        self.hangs = self._thread.is_alive()
        if self.hangs:
            return self._otherwise
        self._thread = None
        if self._error:
            raise self._error[0]
        return self._result[0]

    def _run(self) -> None:
        try:
            self._result.append(self._read())
        except BaseException as error:
            self._error.append(error)
