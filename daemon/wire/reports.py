# SPDX-License-Identifier: Apache-2.0
"""Frames on their way to the daemon: noted on the application's path, sent on another one."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Protocol


class StaysBehind(Protocol):
    """What lives in the process that made it only."""

    def after_fork(self) -> None:
        """In the child: let go of everything, without a word to anybody and without waiting for any lock."""
        ...


# The interpreter has one such hook for the whole process, and none can be taken back.
_living: weakref.WeakSet[StaysBehind] = weakref.WeakSet()


def stays_behind(one: StaysBehind) -> None:
    """Have ``after_fork`` called in every child, for as long as the object lives."""
    _living.add(one)


def _in_child() -> None:
    for one in list(_living):
        one.after_fork()


os.register_at_fork(after_in_child=_in_child)


COUNTED = "JETDVFS_FRAMES"
"""The environment's name for the socket that latencies are sent to."""
FRAMES_KEPT = 4096
FRAMES_SENT = 256
EVERY_S = 0.25
QUICK_S = 0.02
"""How often where frames are late, so that the daemon can do something about it; for a while, and then not for a while."""
_QUICK_FOR_S, _QUICK_AGAIN_S = 2.0, 10.0
_ENDING_S = 0.5
_QUIET_ROUNDS = 20


class Reporter:
    """Sends latencies from a thread of its own, which starts with the first of them.

    Noting one never waits: where the daemon takes none, the oldest are dropped.

    Args:
        send: takes up to ``FRAMES_SENT`` latencies in ms and never waits; False where they cannot be taken now.
        limit_ms: from where on a frame is late, if anywhere.

    Attributes:
        dropped: how many were noted and never sent, for want of a daemon that takes them.
    """

    def __init__(self, send: Callable[[Sequence[float]], bool], limit_ms: float | None = None) -> None:
        self.dropped = 0
        self._send = send
        self._limit_ms = math.inf if limit_ms is None else limit_ms
        self._quick = limit_ms is not None  # whether the first frames are in time is told soon
        self._frames: deque[float] = deque(maxlen=FRAMES_KEPT)
        self._leaving: list[float] = []
        self._sending = threading.Lock()
        # True asks the thread to end. Putting something into it neither waits nor takes a lock of Python's.
        self._wakeups: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._asleep = True
        stays_behind(self)

    def note(self, latency_ms: float) -> None:
        """Note a frame."""
        frames = self._frames
        if len(frames) == FRAMES_KEPT:
            self.dropped += 1
        frames.append(latency_ms)
        if self._asleep:
            self._wake()
        elif not self._quick:
            with contextlib.suppress(TypeError):  # what is no latency is dropped where it is sent
                if latency_ms > self._limit_ms:
                    self._quick = True
                    self._wakeups.put(False)

    def limit(self, limit_ms: float | None) -> None:
        """From where on a frame is late from now on."""
        self._limit_ms = math.inf if limit_ms is None else limit_ms

    def flush(self) -> bool:
        """Send what is noted, as far as it is taken now; whether all was."""
        with self._sending:
            while self._leaving or self._frames:
                while self._frames and len(self._leaving) < FRAMES_SENT:
                    self._leaving.append(self._frames.popleft())
                if not self._send(self._leaving):
                    return False
                self._leaving = []
        return True

    def end(self) -> None:
        """Send what is noted, as far as it is taken now, and end the thread."""
        self._asleep = False
        self._wakeups.put(True)
        if self._thread is not None:
            self._thread.join(_ENDING_S)

    def abandon(self) -> None:
        """The same without waiting for the thread."""
        self._asleep = False
        self._wakeups.put(True)

    def after_fork(self) -> None:
        self._asleep, self._thread = False, None
        self._frames.clear()
        self._leaving = []
        self._sending = threading.Lock()

    def _wake(self) -> None:
        self._asleep = False
        if self._thread is not None:
            self._wakeups.put(False)
            return
        self._thread = threading.Thread(target=self._run, name="jetdvfs-reports", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no more threads, or the interpreter ends: then there are no reports
            self._thread = None

    def _run(self) -> None:
        # Signals are the application's.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        ending, quiet, quick_s = False, 0, 0.0
        while not ending:
            every_s = QUICK_S if self._quick and quick_s < _QUICK_FOR_S else EVERY_S
            with contextlib.suppress(Empty):
                ending = self._wakeups.get(timeout=None if self._asleep else every_s)
            quick_s = quick_s + every_s if self._quick else 0.0
            if quick_s > _QUICK_AGAIN_S:
                self._quick = False
            quiet = 0 if self._frames or self._leaving else quiet + 1
            self.flush()
            # To be woken costs the application's path more than to look now and then.
            self._asleep = quiet >= _QUIET_ROUNDS and not ending
            if self._asleep and self._frames:
                self._asleep = False
        self.dropped += len(self._leaving) + len(self._frames)


def counting(environment: Mapping[str, str] = os.environ) -> Callable[[Sequence[float]], bool] | None:
    """What sends latencies in ms to whoever measures this process; None where nobody does."""
    path = environment.get(COUNTED)
    if not path:
        return None
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def send(latencies_ms: Sequence[float]) -> bool:
        with contextlib.suppress(OSError, struct.error, TypeError):
            sock.sendto(struct.pack(f"<{len(latencies_ms)}d", *latencies_ms), path)
        return True

    return send
