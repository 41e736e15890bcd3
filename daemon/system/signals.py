# SPDX-License-Identifier: Apache-2.0
"""Signals from outside: none of them ends the process before it has given back what it holds.

Light to load, since signals may come at once. A fault of the process's own (``SIGSEGV``, ``SIGBUS``, ``SIGFPE``, ``SIGILL``)
ends it as ever: to go on after one would be to fault again for ever, and what it leaves is given back by the next start.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

RELOADING = signal.SIGHUP
ENDING = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGPWR),
    # Of the machine or the manager, which know that something is wrong; SIGABRT is the watchdog's.
    *(signal.SIGABRT, signal.SIGXCPU, signal.SIGSYS, signal.SIGTRAP),
)
# Nobody has a reason to send these, and by default they end a process.
STRAY = (
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPIPE),
    *(signal.SIGXFSZ, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)),
    *((signal.SIGSTKFLT,) if hasattr(signal, "SIGSTKFLT") else ()),
)


class Signals:
    """Takes over every signal that would end the process, to be made first of all; those that count are kept until asked for.

    Blocking them would not do: threads that libraries start do not block them.
    """

    def __init__(self) -> None:
        self._waiting: list[int] = []
        self._told: Callable[[int], object] = self._waiting.append
        for number in STRAY:
            signal.signal(number, signal.SIG_IGN)
        for number in (*ENDING, RELOADING):
            signal.signal(number, lambda number, _: self._told(number))
        # A parent that blocks signals hands that on.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*ENDING, RELOADING))

    def tell(self, told: Callable[[int], object]) -> None:
        """Call ``told`` with each signal of ``ENDING`` and ``RELOADING``: with those that wait, and as they come from now on.

        It is called in the main thread, between any two steps of what that does.
        """
        self._told = told
        while self._waiting:
            told(self._waiting.pop(0))

    def ignore(self) -> None:
        """Let nothing that comes from now on disturb the end, that of the interpreter included."""
        for number in (*ENDING, RELOADING):
            signal.signal(number, signal.SIG_IGN)
