# SPDX-License-Identifier: Apache-2.0
"""Hooks for applications: say what is needed, measure what happens. Loads the standard library only.

::

    from jetdvfs import qos

    with qos.hold("resnet18.pt", ["1x3x224x224"], "latency_ms=20", fps=15, required=False) as lease:
        for image in camera:
            with qos.frame(lease):
                network(image)

With ``required=False`` the application runs the same where no daemon is, or none that lets it in, and has its lease as soon as
there is one. A lease that is lost with the daemon is held again with the next (``lease.held`` says how it stands now). Nothing
waits for the daemon between the start of the block and its end, and the end takes a second or so at most.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol

from .wire.kept import KeptLease

__all__ = ["frame", "hold"]

hold = KeptLease


class Reported(Protocol):
    """What frames are reported to: a lease of :func:`hold`, or of :meth:`jetdvfs.daemon.wire.client.Client.hold`."""

    def report(self, latency_ms: float) -> None: ...


class frame:
    """Times one frame of the lease's application and notes it, to be reported by another thread: it never waits.

    A frame that ends in an exception is not reported.

    After the block ``latency_ms`` says how long it took.
    """

    __slots__ = ("_lease", "_start", "latency_ms")

    def __init__(self, lease: Reported) -> None:
        self._lease = lease
        self._start = 0.0
        self.latency_ms = 0.0

    def __enter__(self) -> frame:
        self._start = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.latency_ms = (time.perf_counter() - self._start) * 1e3
        if kind is None:
            self._lease.report(self.latency_ms)
