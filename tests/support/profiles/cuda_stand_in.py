# SPDX-License-Identifier: Apache-2.0
"""PyTorch with a GPU that is none: kernels run on the processor, their times are those of a clock that is counted."""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

_QUEUE = 1024  # launches; a host that issues more waits


class StandInCuda:
    """The part of ``torch.cuda`` that the worker uses, and ``torch`` itself. Functions of ``torch.nn.functional`` are launches.

    Args:
        torch: PyTorch for the processor.
        issue_ms: host time to issue a launch.
        kernel_ms: GPU time of any kernel, in a stream.
        gpu_hz: the GPU's clock.
        event_ms: GPU time of an event.
        switch_ms: GPU time that a kernel takes longer after another than after one like it.
        captures: False if kernels cannot be captured in a CUDA graph.
    """

    def __init__(
        self,
        torch: Any,
        issue_ms: float,
        kernel_ms: float,
        gpu_hz: float,
        event_ms: float = 0.0,
        switch_ms: float = 0.0,
        captures: bool = True,
    ) -> None:
        self._torch, self.cuda = torch, self
        self._issue_ms, self.kernel_ms, self.gpu_hz = issue_ms, kernel_ms, gpu_hz
        self._event_ms, self._switch_ms, self._captures = event_ms, switch_ms, captures
        self._before = ""
        self._ends_ms: collections.deque[float] = collections.deque(maxlen=_QUEUE)
        self.host_ms = self.gpu_ms = 0.0
        self.graph_open: StandInGraph | None = None
        self.profiler, self.ProfilerActivity, self._profiled = self, torch.profiler.ProfilerActivity, list[str]()
        self.nn = SimpleNamespace(functional=_Launching(torch.nn.functional, self))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def is_available(self) -> bool:
        return True

    def get_device_properties(self, index: int) -> Any:
        return SimpleNamespace(L2_cache_size=4 << 20, total_memory=8 << 30)

    def get_device_name(self) -> str:
        return "NVIDIA Stand-In 0"

    def randn(self, *shape: Any, device: str) -> Any:
        return self._torch.randn(*shape)

    def randint(self, *bounds: Any, device: str) -> Any:
        return self._torch.randint(*bounds)

    def ones(self, *shape: Any, device: str) -> Any:
        return self._torch.ones(*shape)

    def neg(self, x: Any) -> Any:
        self.launch("neg")
        return -x

    def synchronize(self) -> None:
        self.host_ms = max(self.host_ms, self.gpu_ms)

    def _sleep(self, cycles: int) -> None:
        self.gpu_ms = max(self.gpu_ms, self.host_ms) + 1e3 * cycles / self.gpu_hz

    def launch(self, *kernels: str) -> None:
        """A kernel, or those of a graph."""
        if self.graph_open is not None:
            self.graph_open.launches += kernels
            return
        self.host_ms += self._issue_ms
        self._profiled += kernels
        for kernel in kernels:
            if len(self._ends_ms) == self._ends_ms.maxlen:
                self.host_ms = max(self.host_ms, self._ends_ms[0])
            self.gpu_ms = max(self.gpu_ms, self.host_ms) + self.kernel_ms + (kernel != self._before) * self._switch_ms
            self._before = kernel
            self._ends_ms.append(self.gpu_ms)

    @contextlib.contextmanager
    def profile(self, activities: Any) -> Iterator[Any]:
        self._profiled = []
        yield self

    def events(self) -> list[Any]:
        return [SimpleNamespace(name=name, device_type="DeviceType.CUDA") for name in self._profiled]

    def mark(self) -> float:
        """An event."""
        self.gpu_ms = max(self.gpu_ms, self.host_ms) + self._event_ms
        return self.gpu_ms

    def Event(self, enable_timing: bool) -> StandInEvent:
        return StandInEvent(self)

    def Stream(self) -> Any:
        return SimpleNamespace(wait_stream=lambda other: None)

    def current_stream(self) -> Any:
        return self.Stream()

    def stream(self, stream: Any) -> Any:
        return contextlib.nullcontext()

    def CUDAGraph(self) -> StandInGraph:
        return StandInGraph(self)

    @contextlib.contextmanager
    def graph(self, graph: StandInGraph) -> Iterator[None]:
        if not self._captures:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        self.graph_open = graph
        yield
        self.graph_open = None


class _Launching:
    """Functions that launch a kernel each."""

    def __init__(self, functions: Any, gpu: StandInCuda) -> None:
        self._functions, self._gpu = functions, gpu

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._functions, name)

        @functools.wraps(function)
        def launched(*args: Any, **named: Any) -> Any:
            self._gpu.launch(name)
            return function(*args, **named)

        return launched


class StandInGraph:
    """Launches that were captured."""

    def __init__(self, gpu: StandInCuda) -> None:
        self._gpu, self.launches = gpu, tuple[str, ...]()

    def replay(self) -> None:
        self._gpu.launch(*self.launches)


class StandInEvent:
    """A point in the GPU's queue."""

    def __init__(self, gpu: StandInCuda) -> None:
        self._gpu, self.at_ms = gpu, 0.0

    def record(self) -> None:
        self.at_ms = self._gpu.mark()

    def query(self) -> bool:
        return self.at_ms <= self._gpu.host_ms

    def elapsed_time(self, later: StandInEvent) -> float:
        return later.at_ms - self.at_ms
