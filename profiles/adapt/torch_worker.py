# SPDX-License-Identifier: Apache-2.0
"""PyTorch worker of a measuring parent; requests and answers are lines of JSON.

Needs Python 3.8, its standard library and torch only: it runs in the environment or container of a board's torch. It never sets
clocks::

    python torch_worker.py [--device cpu|cuda] [--threads N]

Weights and inputs are random: zeros draw less power, and hide a kernel's limit. A request is an object whose ``do`` is one of
:attr:`Worker.actions`; an answer is an object, with ``error`` if refused.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import platform
import re
import statistics
import sys
import time
from typing import Any, Callable, Sequence

Run = Callable[[], Any]

_WARM_UP = 3
_LEAST = 5  # timings, at any duration
_REFERENCE_LAUNCHES = 64  # of the smallest kernel, host work for comparison with a network's latency
_INTERPRETER = "The following operation failed in the TorchScript interpreter"
_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE)
_TWO_DEVICES = re.compile(r"\b(same|different|two|expected) devices?\b")


class RefusedRequest(Exception):
    """Impossible request; the text says why."""


class LateRequest(RefusedRequest):
    """Request impossible at present."""


class Worker:
    """Answers requests; its caller loads torch."""

    actions: tuple[str, ...] = ("hello", "network")

    def __init__(self, torch: Any, device: str) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise RefusedRequest(f"torch {torch.__version__} here has no CUDA; valid: the --python of one that has")
        self.torch = torch
        self.device = device
        # A single thread's own time excludes other processes; the time of several threads would add up.
        alone = device == "cpu" and torch.get_num_threads() == 1
        self.clock, self._now = ("thread", time.thread_time) if alone else ("wall", time.perf_counter)
        self._last: tuple[str, Run] | None = None
        self._seen: dict[str, list[str]] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        action = request.get("do")
        if action not in self.actions:
            raise RefusedRequest(f"{action!r} is not known; valid: {', '.join(self.actions)}")
        with self.torch.no_grad():
            return dict(getattr(self, str(action))(request))

    def hello(self, request: dict[str, Any]) -> dict[str, Any]:
        torch = self.torch
        named = torch.cuda.get_device_name() if self.device == "cuda" else platform.processor() or platform.machine()
        told: dict[str, Any] = {
            "python": platform.python_version(), "torch": str(torch.__version__), "threads": torch.get_num_threads(),
            "device": self.device, "device_name": named, "clock": self.clock,
        }  # fmt: skip
        if self.device == "cuda":  # factors of kernel times
            cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
            told.update(cuda=str(torch.version.cuda), cudnn=cudnn.version(), cudnn_benchmark=bool(cudnn.benchmark))
            told.update(cudnn_tf32=bool(cudnn.allow_tf32), matmul_tf32=bool(matmul.allow_tf32))
        return told

    def network(self, request: dict[str, Any]) -> dict[str, Any]:
        """Latency of a model file in ms, first call to end of last kernel.

        On a GPU, ``reference_ms`` is the median host reference work between inferences.
        """
        run = self._network_of(request)
        told: dict[str, Any] = {"ran": sorted(set(self._ran(run)))}
        if self.device != "cuda":
            return {**told, **self._timed(run, request, waiting=True)}
        references: list[float] = []
        told.update(self._timed(run, request, waiting=True, before=lambda: references.append(self._reference_ms())))
        told["reference_ms"] = statistics.median(references)
        return told

    def _reference_ms(self) -> float:
        run = self._smallest
        self._wait()
        start = self._now()
        for _ in range(_REFERENCE_LAUNCHES):
            run()
        self._wait()
        return 1e3 * (self._now() - start)

    def _timed(self, run: Run, request: dict[str, Any], waiting: bool, before: Run = lambda: None) -> dict[str, Any]:
        found: list[float] = []
        until = time.perf_counter() + float(request.get("seconds", 1.0))
        for number in range(_WARM_UP + int(request.get("timings", 100))):
            before()
            self._wait()
            start = self._now()
            run()
            if waiting:
                self._wait()
            if number >= _WARM_UP:
                found.append(1e3 * (self._now() - start))
            if len(found) >= _LEAST and time.perf_counter() > until:
                break
        return {"ms": statistics.median(found), "timings": len(found)}

    def _wait(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    @functools.cached_property
    def _smallest(self) -> Run:
        return functools.partial(self.torch.nn.functional.relu, self._random((1,)))

    def _ran(self, run: Run) -> list[str]:
        """Kernels, copies and fills on a GPU; else PyTorch's operators, nested ones included."""
        key, cuda, activity = self._last[0] if self._last else "", self.device == "cuda", self.torch.profiler.ProfilerActivity
        if key not in self._seen:
            with self.torch.profiler.profile(activities=[activity.CPU, *([activity.CUDA] if cuda else [])]) as profiler:
                run()
                self._wait()
            ran = (one for one in profiler.events() if ("CUDA" in str(one.device_type) if cuda else one.name[:6] == "aten::"))
            self._seen[key] = sorted(one.name for one in ran)
        return self._seen[key]

    def _network_of(self, request: dict[str, Any]) -> Run:
        about = (request["path"], request["inputs"], request.get("execution", "eager"))
        return self._kept(json.dumps(about), lambda: self._loaded(*about))

    def _kept(self, key: str, make: Callable[[], Run]) -> Run:
        if self._last is None or self._last[0] != key:
            self._last = None  # frees its memory
            self._last = (key, make())
        return self._last[1]

    def _loaded(self, path: str, inputs: Sequence[dict[str, Any]], execution: str) -> Run:
        torch = self.torch
        torch.manual_seed(0)
        scripted = not path.endswith(".pt2")
        # On a GPU, the constants of a trace would be there too, and arithmetic on sizes would wait for it.
        where = "cpu" if self.device == "cpu" else None
        model = torch.jit.load(path, map_location=where) if scripted else torch.export.load(path).module()
        model = model.to(self.device)
        self._fill(model)
        given = tuple(self._random(tuple(spec["shape"]), spec["dtype"]) for spec in inputs)
        run: Run = functools.partial(model, *given)
        if scripted:
            model.eval()
            run = torch.jit.optimized_execution(False)(run)  # each operator as in the file, nothing fused
            self._check_devices(path, model, run)
        if execution == "eager":
            return run
        if execution == "frozen" and scripted:
            return functools.partial(torch.jit.freeze(model), *given)
        if execution == "graph" and self.device == "cuda":
            return self._capture(run)
        raise RefusedRequest(
            f"execution {execution!r} of {path} on {self.device}; valid: eager, frozen (TorchScript), graph (CUDA)"
        )

    def _check_devices(self, path: str, model: Any, run: Run) -> None:
        """Refuse a model whose code names another device, on which it was traced."""
        if self.device == "cpu":
            return
        try:
            run()
            self._wait()
        except RuntimeError as error:
            named = set(re.findall(r'Device = prim::Constant\[value="([^"]+)"\]', str(model.inlined_graph)))
            if not named or not _TWO_DEVICES.search(str(error)):
                raise
            raise RefusedRequest(
                f"{path}: its code names the device {', '.join(sorted(named))} that it was traced on, so it does not run on "
                f"{self.device}; trace it with model and inputs on {self.device}, or save it with torch.export "
                f"({_reason(error)})"
            ) from error

    def _capture(self, run: Run) -> Run:
        side, graph = self.torch.cuda.Stream(), self.torch.cuda.CUDAGraph()
        side.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                run()
        self._wait()
        with self.torch.cuda.graph(graph):
            run()
        return functools.partial(graph.replay)

    def _fill(self, model: Any) -> None:
        """Replace weights, which may be zeros, with random ones that keep activations finite."""
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.is_floating_point() and name.endswith(("running_var", "bn.weight")):
                tensor.data.uniform_(0.5, 1.5)
            elif tensor.is_floating_point():
                tensor.data.normal_(0.0, 1.0 / math.sqrt(max(math.prod(tensor.shape[1:]), 1)))

    def _random(self, shape: Sequence[int], dtype: str = "float32") -> Any:
        torch, kind = self.torch, getattr(self.torch, dtype, None)
        if kind is None:
            raise RefusedRequest(f"element type {dtype!r} is not one of torch's")
        if kind.is_floating_point:
            return torch.randn(tuple(shape), device=self.device).to(kind)
        if kind is torch.bool:
            return torch.rand(tuple(shape), device=self.device) < 0.5
        return torch.randint(0, 100, tuple(shape), device=self.device).to(kind)


def _reason(error: Exception) -> str:
    reasons = re.findall(r"^\w*(?:Error|Exception): .*", str(error), re.MULTILINE)
    if reasons and str(error).startswith(_INTERPRETER):
        return " ".join(reasons[-1].split())[:600]
    return " ".join(f"{type(error).__name__}: {error}".split())[:600]


def is_for_now(error: Exception) -> bool:
    """True if a failed request may succeed later: memory or time was short."""
    return isinstance(error, (LateRequest, MemoryError)) or bool(_OUT_OF_MEMORY.search(str(error)))


def main(arguments: Sequence[str], kind: Callable[[Any, str], Worker] = Worker) -> int:
    parser = argparse.ArgumentParser(description="Run networks for a parent that measures.")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=0, help="of the processor; 0: as many as torch takes")
    args = parser.parse_args(arguments)
    # Output of libraries must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    try:
        import torch

        torch.set_num_threads(args.threads or torch.get_num_threads())
        worker = kind(torch, args.device)
    except (ImportError, RefusedRequest) as error:
        tell({"error": str(error) if isinstance(error, RefusedRequest) else f"{sys.executable} has no torch ({error})"})
        return 1
    for line in sys.stdin:
        try:
            tell(worker.answer(json.loads(line)))
        except Exception as error:  # torch raises many kinds; the parent is told, and may go on
            tell({"error": str(error) if isinstance(error, RefusedRequest) else _reason(error), "for_now": is_for_now(error)})
            try:
                worker._wait()
            except RuntimeError as lost:  # after some errors a GPU runs nothing any more
                print(_reason(lost), file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
