# SPDX-License-Identifier: Apache-2.0
"""Signals: none ends the process before it has restored the board.

Light to load, as signals may come at once. Faults of its own (``SIGSEGV``, ``SIGBUS``, ``SIGFPE``, ``SIGILL``) still end it, as
they would repeat forever; the next start restores the board.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

RELOADING = signal.SIGHUP
ENDING = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGPWR),
    # Faults reported by the machine or the manager; SIGABRT is the watchdog's.
    *(signal.SIGABRT, signal.SIGXCPU, signal.SIGSYS, signal.SIGTRAP),
)
# Without use here, but they end a process by default.
STRAY = (
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPIPE),
    *(signal.SIGXFSZ, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)),
    *((signal.SIGSTKFLT,) if hasattr(signal, "SIGSTKFLT") else ()),
)


class Signals:
    """Takes over every signal that would end the process. Blocking would not do: threads of libraries do not block them."""

    def __init__(self) -> None:
        self._waiting: list[int] = []
        self._on_signal: Callable[[int], object] = self._waiting.append
        for number in STRAY:
            signal.signal(number, signal.SIG_IGN)
        for number in (*ENDING, RELOADING):
            signal.signal(number, lambda number, _: self._on_signal(number))
        # Blocked signals are inherited.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*ENDING, RELOADING))

    def forward(self, on_signal: Callable[[int], object]) -> None:
        """Call ``on_signal`` in the main thread, between any two steps, with each waiting or new signal of ``ENDING`` and
        ``RELOADING``.
        """
        self._on_signal = on_signal
        while self._waiting:
            on_signal(self._waiting.pop(0))

    def ignore(self) -> None:
        """Ignore all further signals, also while the interpreter ends."""
        for number in (*ENDING, RELOADING):
            signal.signal(number, signal.SIG_IGN)
