# SPDX-License-Identifier: Apache-2.0
"""Worker that measures each network on a processor in a forked process, relative to short reference work.

A shared processor's speed varies by the second.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....adapt.torch_worker import RefusedRequest, Run, main
from .kernel_worker import KernelWorker

_WARM_UP, _LEAST = 2, 5
#: Reference work, and its weight: a matrix product, a copy, convolutions with their activations.
REFERENCES = {"product": 0.4, "copy": 0.2, "convolutions": 0.4}
# mallopt(3)
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -3, -4, -8
_GIVEN_BACK_BYTES = 128 << 10
_PR_SET_PDEATHSIG = 1  # prctl(2)


class NetworkWorker(KernelWorker):
    actions = (*KernelWorker.actions, "references", "fresh")

    def __init__(self, torch: Any, device: str) -> None:
        super().__init__(torch, device)
        if self.clock != "thread":
            raise RefusedRequest("networks are measured on one thread of the processor; valid: --device cpu --threads 1")
        self._references = self._work()

    def references(self, request: dict[str, Any]) -> dict[str, Any]:
        """Median time of each reference work in ms, over ``timings`` runs."""
        found = [self._taken() for _ in range(int(request["timings"]))]
        return {"ms": {name: statistics.median(one[name] for one in found) for name in REFERENCES}}

    def fresh(self, request: dict[str, Any]) -> dict[str, Any]:
        """Latency in ms and memory in MiB of a model file in its own process, scaled by ``references_ms``."""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            self._answer_alone(request, writing)
        os.close(writing)
        with os.fdopen(reading) as file:
            text = file.read()
        _, status = os.waitpid(child, 0)
        if not text:
            raise RefusedRequest(f"{request['path']}: the process that measured it ended with status {status}")
        answer: dict[str, Any] = json.loads(text)
        if "error" in answer:
            raise RefusedRequest(answer["error"])
        return answer

    def _answer_alone(self, request: dict[str, Any], writing: int) -> None:
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            try:
                answer = self._measured(request)
            except Exception as error:  # any error is reported to the parent
                answer = {"error": f"{type(error).__name__}: {error}"}
            with os.fdopen(writing, "w") as file:
                json.dump(answer, file)
        finally:
            os._exit(0)

    def _measured(self, request: dict[str, Any]) -> dict[str, Any]:
        libc = ctypes.CDLL(None)
        # Freed memory is returned at once. By default, glibc raises these thresholds with freed sizes, and
        # the heap's size then depends on all earlier work.
        for name in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            libc.mallopt(name, _GIVEN_BACK_BYTES)
        libc.mallopt(_M_TOP_PAD, 0)
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.malloc_trim(0)
        before = _memory_kib("RssAnon")
        Path("/proc/self/clear_refs").write_text("5")  # the highest so far is forgotten
        run = self._network_of(request)
        for _ in range(_WARM_UP):
            run()
        # Code of libraries is paged in from their files as it is needed, and shared by processes.
        highest = _memory_kib("VmHWM") - _memory_kib("RssFile") - _memory_kib("RssShmem")
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)
        return {**self._relative(run, request), "peak_mib": (highest - before) / 1024}

    def _relative(self, run: Run, request: dict[str, Any]) -> dict[str, Any]:
        nominal: Mapping[str, float] = request["references_ms"]
        run()
        self._taken()
        found: list[float] = []
        raw: list[float] = []
        spent_ms, before = 0.0, _slowness(self._taken(), nominal)
        while len(found) < int(request["timings"]) and (len(found) < _LEAST or spent_ms < 1e3 * float(request["seconds"])):
            start = self._now()
            run()
            raw.append(1e3 * (self._now() - start))
            after = _slowness(self._taken(), nominal)
            found.append(raw[-1] / ((before + after) / 2))
            spent_ms, before = spent_ms + raw[-1], after
        return {"ms": statistics.median(found), "as_timed_ms": statistics.median(raw), "timings": len(found)}

    def _taken(self) -> dict[str, float]:
        found = {}
        for name, run in self._references.items():
            start = self._now()
            run()
            found[name] = 1e3 * (self._now() - start)
        return found

    def _work(self) -> dict[str, Run]:
        torch = self.torch
        functional = torch.nn.functional
        left, right, source = self._random((256, 256)), self._random((256, 256)), self._random((1 << 19,))
        target = torch.empty_like(source)
        image, dense = self._random((1, 32, 28, 28)), self._random((32, 32, 3, 3))
        deep, thin = self._random((1, 64, 28, 28)), self._random((64, 1, 3, 3))

        def product() -> None:
            for _ in range(3):
                torch.mm(left, right)

        def copy() -> None:
            for _ in range(2):
                target.copy_(source)

        def convolutions() -> None:
            for _ in range(3):
                torch.relu(functional.conv2d(image, dense, padding=1))
                torch.relu(functional.conv2d(deep, thin, padding=1, groups=64))

        return {"product": product, "copy": copy, "convolutions": convolutions}


def _slowness(taken: Mapping[str, float], nominal: Mapping[str, float]) -> float:
    return sum(weight * taken[name] / nominal[name] for name, weight in REFERENCES.items())


def _memory_kib(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise RefusedRequest(f"/proc/self/status has no {name}")


def start(arguments: Sequence[str]) -> int:
    return main(arguments, NetworkWorker)


if __name__ == "__main__":
    raise SystemExit(start(sys.argv[1:]))
