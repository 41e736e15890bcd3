# SPDX-License-Identifier: Apache-2.0
"""PyTorch with a GPU that is none: kernels run on the processor, their times are those of a clock that is counted."""

from __future__ import annotations

from typing import Any


class StandInCuda:
    """What the worker asks of ``torch.cuda``, and of ``torch`` itself.

    Args:
        torch: PyTorch for the processor.
        issue_ms: how long the host takes to issue a launch, with the event after it.
        kernel_ms: how long any kernel runs.
        gpu_hz: the GPU's clock.
    """

    def __init__(self, torch: Any, issue_ms: float, kernel_ms: float, gpu_hz: float) -> None:
        self._torch, self.cuda = torch, self
        self._issue_ms, self._kernel_ms, self.gpu_hz = issue_ms, kernel_ms, gpu_hz
        self.host_ms = self.gpu_ms = 0.0
        self.slept = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def is_available(self) -> bool:
        return True

    def randn(self, shape: tuple[int, ...], device: str) -> Any:
        return self._torch.randn(shape)

    def synchronize(self) -> None:
        self.host_ms = max(self.host_ms, self.gpu_ms)

    def _sleep(self, cycles: int) -> None:
        self.gpu_ms = max(self.gpu_ms, self.host_ms) + 1e3 * cycles / self.gpu_hz
        self.slept = True

    def launch(self) -> None:
        """A kernel, unless the GPU was just sent to sleep: what is queued next is an event."""
        if not self.slept:
            self.host_ms += self._issue_ms
            self.gpu_ms = max(self.gpu_ms, self.host_ms) + self._kernel_ms
        self.slept = False

    def Event(self, enable_timing: bool) -> StandInEvent:
        return StandInEvent(self)


class StandInEvent:
    """A point in the GPU's queue."""

    def __init__(self, gpu: StandInCuda) -> None:
        self._gpu, self.at_ms = gpu, 0.0

    def record(self) -> None:
        self._gpu.launch()
        self.at_ms = self._gpu.gpu_ms

    def query(self) -> bool:
        return self.at_ms <= self._gpu.host_ms

    def elapsed_time(self, later: StandInEvent) -> float:
        return later.at_ms - self.at_ms
