# SPDX-License-Identifier: Apache-2.0
"""Reports of frames: noted on the application's path, sent by a thread."""

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


class ProcessBound(Protocol):
    """An object for the process that made it only."""

    def after_fork(self) -> None:
        """In the child: let go of everything, silently and without waiting for a lock."""
        ...


# One hook for the whole process, as hooks cannot be removed.
_living: weakref.WeakSet[ProcessBound] = weakref.WeakSet()


def stays_behind(one: ProcessBound) -> None:
    """Call ``after_fork`` in every child, while the object lives."""
    _living.add(one)


def _in_child() -> None:
    for one in list(_living):
        one.after_fork()


os.register_at_fork(after_in_child=_in_child)


COUNTED = "JETDVFS_FRAMES"
FRAMES_KEPT = 4096
FRAMES_SENT = 256
EVERY_S = 0.25
QUICK_S = 0.02
"""Interval of reports while frames are late, so that the daemon can react."""
_QUICK_FOR_S, _QUICK_AGAIN_S = 2.0, 10.0
_ENDING_S = 0.5
_QUIET_ROUNDS = 20


class Reporter:
    """Sends latencies from its own thread; noting never waits, and drops the oldest if the daemon takes none.

    Args:
        send: takes up to ``FRAMES_SENT`` latencies in ms without waiting; False if it cannot now.
        limit_ms: latency from which a frame is late.
    """

    def __init__(self, send: Callable[[Sequence[float]], bool], limit_ms: float | None = None) -> None:
        self.dropped = 0
        self._send = send
        self._limit_ms = math.inf if limit_ms is None else limit_ms
        self._quick = limit_ms is not None  # report soon if the first frames are in time
        self._frames: deque[float] = deque(maxlen=FRAMES_KEPT)
        self._leaving: list[float] = []
        self._sending = threading.Lock()
        # True ends the thread. Putting never waits or takes a lock of Python's.
        self._wakeups: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._asleep = True
        stays_behind(self)

    def note(self, latency_ms: float) -> None:
        frames = self._frames
        if len(frames) == FRAMES_KEPT:
            self.dropped += 1
        frames.append(latency_ms)
        if self._asleep:
            self._wake()
        elif not self._quick:
            with contextlib.suppress(TypeError):  # invalid latencies are dropped when sent
                if latency_ms > self._limit_ms:
                    self._quick = True
                    self._wakeups.put(False)

    def limit(self, limit_ms: float | None) -> None:
        self._limit_ms = math.inf if limit_ms is None else limit_ms

    def flush(self) -> bool:
        with self._sending:
            while self._leaving or self._frames:
                while self._frames and len(self._leaving) < FRAMES_SENT:
                    self._leaving.append(self._frames.popleft())
                if not self._send(self._leaving):
                    return False
                self._leaving = []
        return True

    def end(self) -> None:
        self._asleep = False
        self._wakeups.put(True)
        if self._thread is not None:
            self._thread.join(_ENDING_S)

    def abandon(self) -> None:
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
        except RuntimeError:  # no more threads, or the interpreter ends: no reports
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
            # Waking the thread costs the application more than polling.
            self._asleep = quiet >= _QUIET_ROUNDS and not ending
            if self._asleep and self._frames:
                self._asleep = False
        self.dropped += len(self._leaving) + len(self._frames)


def counting(environment: Mapping[str, str] = os.environ) -> Callable[[Sequence[float]], bool] | None:
    path = environment.get(COUNTED)
    if not path:
        return None
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def send(latencies_ms: Sequence[float]) -> bool:
        with contextlib.suppress(OSError, struct.error, TypeError):
            sock.sendto(struct.pack(f"<{len(latencies_ms)}d", *latencies_ms), path)
        return True

    return send
