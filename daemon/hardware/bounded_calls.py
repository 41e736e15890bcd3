# SPDX-License-Identifier: Apache-2.0
"""Bounded waits for calls that may hang (a firmware, a bus, a stuck service), and retries."""

from __future__ import annotations

import contextlib
import posixpath
import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ...profiles.timing import Clock
from ..errors import HardwareHangs, TransientError

T = TypeVar("T")


class _Call:
    def __init__(self, name: str, function: Callable[[], Any]) -> None:
        self.name = name
        self.ended = False
        self._over = threading.Lock()  # held until the call returns; an Event costs several times as much
        self._over.acquire()
        self._function = function
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error
        self.ended = True
        self._over.release()

    def wait(self, longest_s: float) -> bool:
        """True if it returned in time; call once."""
        return self._over.acquire(timeout=longest_s)

    def outcome(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result


class BoundedCalls:
    """Makes calls on its own thread, and waits a bounded time for each.

    While a call hangs, none into the same directory is made: other files of the device would hang too.
    """

    def __init__(self, longest_s: float) -> None:
        self.longest_s = longest_s
        self._calls: queue.SimpleQueue[_Call | None] | None = None
        self._stuck: dict[str, _Call] = {}

    @property
    def hanging(self) -> tuple[str, ...]:
        return tuple(call.name for call in tuple(self._stuck.values()) if not call.ended)

    def call(self, path: str, doing: str, function: Callable[[], T]) -> T:
        place = posixpath.dirname(path)
        before = self._stuck.get(place)
        if before is not None:
            if not before.ended:
                raise HardwareHangs(before.name)
            del self._stuck[place]
        call = _Call(f"{path}: {doing} hangs", function)
        if not self._returns(call):
            self._stuck[place] = call
            raise HardwareHangs(call.name)
        result: T = call.outcome()
        return result

    def call_each(self, paths: Iterable[str], doing: str, function: Callable[[str], T], most_s: float) -> dict[str, T]:
        """Results by path of as many calls as ``most_s`` allows, without failing or hanging ones."""
        found: dict[str, T] = {}
        begun: list[str] = []
        still = {place for place, call in self._stuck.items() if not call.ended}
        until_s = time.monotonic() + most_s

        def run() -> None:
            for path in paths:
                if time.monotonic() >= until_s:
                    break
                if posixpath.dirname(path) not in still:
                    begun.append(path)
                    with contextlib.suppress(OSError):
                        found[path] = function(path)

        call = _Call(doing, run)
        if self._returns(call, most_s):
            call.outcome()
        elif begun:
            call.name = f"{begun[-1]}: {doing} hangs"
            self._stuck[posixpath.dirname(begun[-1])] = call
        return dict(found)

    def _returns(self, call: _Call, more_s: float = 0.0) -> bool:
        if self._calls is None:
            self._calls = queue.SimpleQueue()
            threading.Thread(target=_work, args=(self._calls,), name="board-files", daemon=True).start()
        self._calls.put(call)
        if not (in_time := call.wait(self.longest_s + more_s)):
            self.end()
        return in_time

    def end(self) -> None:
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None


def _work(calls: queue.SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        call.run()


def retried(call: Callable[[], T], clock: Clock, *, longest_s: float, pause_s: float) -> T:
    """Result of a call, retried for ``longest_s`` after the first failure, at pauses that double from ``pause_s``.

    Raises:
        TransientError: the last one; :class:`HardwareHangs` at once, as it may yet take effect.
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
