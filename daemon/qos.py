# SPDX-License-Identifier: Apache-2.0
"""Hooks for applications: say what is needed, measure what happens. Loads the standard library only.

::

    from jetdvfs import qos

    with qos.hold("resnet18.pt", ["1x3x224x224"], "latency_ms=20", fps=15, required=False) as lease:
        for image in camera:
            with qos.frame(lease):
                network(image)

With ``required=False`` the application runs the same where no daemon is, or none that lets it in: the lease then stands for
none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any

from .errors import NoDaemon, NotPermitted
from .wire.client import Client, Configuration, HeldLease

__all__ = ["frame", "hold"]


class frame:
    """Times one frame of the lease's application and reports it. A frame that ends in an exception is not reported.

    After the block ``latency_ms`` says how long it took.
    """

    __slots__ = ("_lease", "_start", "latency_ms")

    def __init__(self, lease: HeldLease) -> None:
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


@contextmanager
def hold(
    model: str | os.PathLike[str] | None = None,
    inputs: Sequence[Any] = (),
    target: str | None = None,
    *,
    configuration: Configuration | None = None,
    fps: float | None = None,
    confidence: float | None = None,
    reason: str = "",
    required: bool = True,
    accept_boundary: Sequence[str] = (),
    socket_path: str | os.PathLike[str] | None = None,
) -> Iterator[HeldLease]:
    """Connect, load the model, and hold the clocks for its target (or a configuration) while the block runs.

    ``accept_boundary`` is that of :meth:`jetdvfs.daemon.wire.client.Client.load`.

    Raises:
        NoDaemon, NotPermitted: nobody answers, or no longer, or not to this user; unless ``required`` is false.
        DaemonError: the model or the target was refused; that is raised whatever ``required`` says.
    """
    with ExitStack() as stack:
        try:
            client = stack.enter_context(Client(socket_path))
            network = client.load(model, inputs, accept_boundary=accept_boundary) if model is not None else None
            asked = client.hold(network, target, configuration=configuration, fps=fps, confidence=confidence, reason=reason)
            lease = stack.enter_context(asked)
        except (NoDaemon, NotPermitted):
            if required:
                raise
            lease = HeldLease(None, {})
        yield lease
