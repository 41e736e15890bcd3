# SPDX-License-Identifier: Apache-2.0
"""Hooks for applications: request clocks, and measure frames. Loads the standard library only.

::

    from jetdvfs import qos

    with qos.hold("resnet18.pt", ["1x3x224x224"], "latency_ms=20", fps=15, required=False) as lease:
        for image in camera:
            with qos.frame(lease) as frame:
                with frame.span("resize"):
                    image = resize(image)
                network(image)

A frame ends when the GPU is done; the daemon ignores frames that are launch times. Without ``wait``, a frame waits for
PyTorch's current stream if the application has used CUDA through PyTorch; with another CUDA library, pass a function that
waits, or ``wait=False`` if the block does (``output.cpu()``).

``@qos.frame(lease)`` makes a frame of every call of a function, ``qos.timed(network, lease)`` of every call of a module.

With ``required=False`` the application also runs without a daemon, and gets its lease once there is one. A lost lease is held
again by the next daemon. Nothing waits for the daemon within the block; its end takes about a second at most.

``lease.change(target="latency_ms=30")`` changes the target, the rate, or the model.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Protocol, TypeVar, cast

from .wire.persistent_lease import PersistentLease

__all__ = ["frame", "hold", "timed"]

F = TypeVar("F", bound=Callable[..., Any])

hold = PersistentLease


def __dir__() -> list[str]:
    return sorted(__all__)


class FrameReceiver(Protocol):
    def report(self, latency_ms: float) -> None: ...


_ASYNCHRONOUS = ("tensorrt", "pycuda.driver", "cupy", "jax", "tensorflow")
_warned: set[str] = set()


def _wait_for_gpu() -> None:
    """Wait for the current thread's GPU work, as far as its libraries tell; warn once if they do not."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        if not cuda.is_current_stream_capturing():
            event = cuda.Event(blocking=True)  # the CPU sleeps meanwhile
            event.record()
            event.synchronize()
        return
    loaded = next((name for name in _ASYNCHRONOUS if name in sys.modules), None)
    if loaded is not None and loaded not in _warned:
        _warned.add(loaded)
        import logging

        text = "frames end without waiting for the GPU (%s is loaded): give qos.frame(lease, wait=FUNCTION), or wait=False"
        logging.getLogger("jetdvfs").warning(text, loaded)


class frame:
    """Times one frame, for a thread to report; never waits for the daemon.

    A frame that ends in an exception is not reported. As a decorator, every call is a frame. Afterwards ``latency_ms`` and
    ``spans`` hold its times.

    Args:
        wait: called at the end; returns when the GPU is done, as ``torch.cuda.synchronize``. None waits for PyTorch's current
            CUDA stream, if used; False does not wait.
    """

    __slots__ = ("_lease", "_start", "_wait", "latency_ms", "spans")

    def __init__(self, lease: FrameReceiver, wait: Callable[[], object] | Literal[False] | None = None) -> None:
        self._lease = lease
        self._wait = _wait_for_gpu if wait is None else wait
        self._start = 0.0
        self.latency_ms = 0.0
        self.spans: dict[str, float] = {}

    def __enter__(self) -> frame:
        self._start = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and self._wait is not False:
            self._wait()
        self.latency_ms = (time.perf_counter() - self._start) * 1e3
        if kind is None:
            self._lease.report(self.latency_ms)

    def __call__(self, function: F) -> F:
        lease, wait = self._lease, self._wait

        @functools.wraps(function)
        def framed(*args: Any, **kwargs: Any) -> Any:
            with frame(lease, wait):
                return function(*args, **kwargs)

        return cast(F, framed)

    def span(self, name: str) -> span:
        """Time a part of the frame, such as pre-processing: ``spans[name]``, in ms, added up."""
        return span(self.spans, name)


class span:
    __slots__ = ("_name", "_spans", "_start")

    def __init__(self, spans: dict[str, float], name: str) -> None:
        self._spans, self._name, self._start = spans, name, 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        took_ms = (time.perf_counter() - self._start) * 1e3
        self._spans[self._name] = self._spans.get(self._name, 0.0) + took_ms


class timed:
    """A module, or another callable, whose every call is a frame; all else is the module's own."""

    def __init__(
        self, module: Callable[..., Any], lease: FrameReceiver, wait: Callable[[], object] | Literal[False] | None = None
    ) -> None:
        self._timed = module
        self._lease = lease
        self._wait = wait

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with frame(self._lease, self._wait):
            return self._timed(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timed, name)
