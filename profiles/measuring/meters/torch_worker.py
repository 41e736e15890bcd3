# SPDX-License-Identifier: Apache-2.0
"""Runs kernels and networks with PyTorch for a parent that measures; requests and answers are lines of JSON.

A file by itself, for Python 3.8 or later with its standard library and torch: it is started beside the torch that a board has,
in a virtual environment or a container, and needs nothing else of this product there. It never touches clocks::

    python torch_worker.py [--device cpu|cuda] [--threads N]

Operands are random: zeros draw less power, and hide what limits a kernel. Each request is an object whose ``do`` is one
of :attr:`Worker.actions`; each answer is an object, with ``error`` where it was refused.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import platform
import statistics
import sys
import time
from typing import Any, Callable, Sequence

Run = Callable[[], Any]

_WARM_UP = 3
_LEAST = 5  # timings, whatever they take
_EVENTS = 20  # timings of a burst on a GPU, each between two events
_SLEEP_CYCLES = 2000000  # keeps a GPU busy until a burst is issued, so that no launch waits for the host
_PROBE_SIDE, _PROBE_BYTES = 768, 1 << 27

_POSITIVE = {"log", "sqrt", "rsqrt"}
_UNARY = (
    "relu hardtanh sigmoid silu gelu tanh elu leaky_relu softplus hardswish hardsigmoid mish exp log sqrt rsqrt reciprocal abs "
    "neg sin cos tan erf floor ceil round trunc sign clone"
)
_WINDOW = ("stride", "padding", "ceil_mode")
_BINARY = "add sub mul div pow eq ne lt le gt ge minimum maximum"
_SCALAR = "add_scalar sub_scalar mul_scalar div_scalar pow_scalar eq_scalar ne_scalar lt_scalar le_scalar gt_scalar ge_scalar"


class Refused(Exception):
    """A request that cannot be met; the text says why."""


class Worker:
    """Answers requests; whoever runs this loads torch."""

    actions: tuple[str, ...] = ("hello", "rates", "kernel", "repeat", "issue", "network")

    def __init__(self, torch: Any, device: str) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise Refused(f"torch {torch.__version__} here has no CUDA; valid: --device cpu")
        self.torch = torch
        self.device = device
        # One thread's own time leaves out what others did meanwhile; several threads' would count each of them.
        alone = device == "cpu" and torch.get_num_threads() == 1
        self.clock, self._now = ("thread", time.thread_time) if alone else ("wall", time.perf_counter)
        self._last: tuple[str, Run] | None = None
        self._seen: dict[str, list[str]] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        action = request.get("do")
        if action not in self.actions:
            raise Refused(f"{action!r} is not known; valid: {', '.join(self.actions)}")
        with self.torch.no_grad():
            answer: dict[str, Any] = getattr(self, str(action))(request)
        return answer

    def hello(self, request: dict[str, Any]) -> dict[str, Any]:
        """What runs here, and which kinds of kernels it can run."""
        torch = self.torch
        named = torch.cuda.get_device_name() if self.device == "cuda" else platform.processor() or platform.machine()
        return {
            "python": platform.python_version(), "torch": str(torch.__version__), "threads": torch.get_num_threads(),
            "device": self.device, "device_name": named, "clock": self.clock, "kinds": sorted(_MAKERS),
        }  # fmt: skip

    def rates(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the device reaches at best: operations in a second of a matrix product, bytes in a second of a copy."""
        torch, side = self.torch, _PROBE_SIDE
        left, right = self._random((side, side)), self._random((side, side))
        source = torch.ones(_PROBE_BYTES // 4, device=self.device)
        target = torch.empty_like(source)
        limits = {"timings": 10, "seconds": 2.0}
        product = self._timed(lambda: left @ right, limits, waiting=True)["ms"]
        copy = self._timed(lambda: target.copy_(source), limits, waiting=True)["ms"]
        return {"flops_per_s": 2e3 * side**3 / product, "bytes_per_s": 2e3 * _PROBE_BYTES / copy}

    def kernel(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time of one kernel in ms: on a GPU between events around it, elsewhere from call to return."""
        run = self._kernel_of(request["kernel"])
        ran = self._ran(run)
        found = self._between_events(run, request) if self.device == "cuda" else self._timed(run, request, waiting=True)
        return {**found, "ran": ran}

    def repeat(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a kernel or network back to back for so many seconds; the parent reads sensors meanwhile."""
        run = self._kernel_of(request["kernel"]) if "kernel" in request else self._network_of(request)
        count, start = 0, time.perf_counter()
        until = start + float(request["seconds"])
        while not count or time.perf_counter() < until:
            run()
            count += 1
            if count % _EVENTS == 0:
                self._wait()
        self._wait()
        return {"period_ms": 1e3 * (time.perf_counter() - start) / count, "count": count}

    def issue(self, request: dict[str, Any]) -> dict[str, Any]:
        """Host time in ms of issuing some calls once; on a GPU they are queued, and nobody waits for them meanwhile."""
        runs = [self._call(call) for call in request["calls"]]
        burst = [runs[index] for index in request["order"]]
        return self._timed(lambda: [run() for run in burst], request, waiting=False)

    def network(self, request: dict[str, Any]) -> dict[str, Any]:
        """Latency of a model file in ms, from the first call to the end of the last kernel; inferences go on until the answer."""
        run = self._network_of(request)
        ran = self._ran(run)
        return {**self._timed(run, request, waiting=True), "ran": ran}

    def _timed(self, run: Run, request: dict[str, Any], waiting: bool) -> dict[str, Any]:
        """The median time of a call, with or without waiting for what it launched."""
        found: list[float] = []
        until = time.perf_counter() + float(request.get("seconds", 1.0))
        for number in range(_WARM_UP + int(request.get("timings", 100))):
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

    def _between_events(self, run: Run, request: dict[str, Any]) -> dict[str, Any]:
        """The median time of a kernel on a GPU, without the gaps between launches."""
        found: list[float] = []
        until = time.perf_counter() + float(request.get("seconds", 1.0))
        while len(found) < int(request.get("timings", 100)) and (not found or time.perf_counter() < until):
            events = [self.torch.cuda.Event(enable_timing=True) for _ in range(_EVENTS + 1)]
            self.torch.cuda._sleep(_SLEEP_CYCLES)
            events[0].record()
            for event in events[1:]:
                run()
                event.record()
            self._wait()
            found += [first.elapsed_time(second) for first, second in zip(events, events[1:])]
        return {"ms": statistics.median(found), "timings": len(found)}

    def _ran(self, run: Run) -> list[str]:
        """What the profiler saw run: the kernels of a GPU; elsewhere PyTorch's operators, those that others call among them.

        It looks once, before anything is timed: it takes as long and draws as much as what it looks at, or more.
        """
        key = self._last[0] if self._last else ""
        if key not in self._seen:
            self._seen[key] = self._profiled(run)
        return self._seen[key]

    def _profiled(self, run: Run) -> list[str]:
        activity = self.torch.profiler.ProfilerActivity
        kinds = [activity.CPU, activity.CUDA] if self.device == "cuda" else [activity.CPU]
        with self.torch.profiler.profile(activities=kinds) as profiler:
            run()
            self._wait()
        events = profiler.events()
        if self.device == "cuda":
            return sorted({event.name for event in events if "CUDA" in str(event.device_type)})
        return sorted({event.name for event in events if event.name.startswith("aten::")})

    def _kernel_of(self, kernel: dict[str, Any]) -> Run:
        """A kernel as a function without arguments."""
        return self._kept(json.dumps(kernel, sort_keys=True), lambda: self._made(kernel))

    def _network_of(self, request: dict[str, Any]) -> Run:
        about = (request["path"], request["inputs"], request.get("execution", "eager"))
        return self._kept(json.dumps(about), lambda: self._loaded(*about))

    def _kept(self, key: str, make: Callable[[], Run]) -> Run:
        """What was made last is kept."""
        if self._last is None or self._last[0] != key:
            self._last = (key, make())
        return self._last[1]

    def _made(self, kernel: dict[str, Any]) -> Run:
        maker = _MAKERS.get(kernel["kind"])
        if maker is None:
            raise Refused("kernel kind {!r} cannot be run here; valid: {}".format(kernel["kind"], ", ".join(sorted(_MAKERS))))
        self.torch.manual_seed(0)
        run = maker(self, kernel)
        made, expected = list(run().shape), list(kernel["output"])
        same = math.prod(made) == math.prod(expected) if kernel["kind"] == "matmul" else made == expected
        if not same:
            raise Refused("{}: makes a tensor of {}, not of {}".format(kernel["kind"], made, expected))
        return run

    def _call(self, call: dict[str, Any]) -> Run:
        return self._made(call) if "kind" in call else _host_call(self.torch, str(call["name"]), self._random((2, 4, 4, 4)))

    def _loaded(self, path: str, inputs: Sequence[dict[str, Any]], execution: str) -> Run:
        torch = self.torch
        torch.manual_seed(0)
        scripted = not path.endswith(".pt2")
        model = torch.jit.load(path, map_location=self.device) if scripted else torch.export.load(path).module().to(self.device)
        self._fill(model)
        given = tuple(self._random(tuple(spec["shape"]), spec["dtype"]) for spec in inputs)
        if scripted:
            model.eval()
        if execution == "eager":
            run: Run = functools.partial(model, *given)
            # Each operator as it stands in the file, nothing fused.
            return torch.jit.optimized_execution(False)(run) if scripted else run
        if execution == "frozen" and scripted:
            return functools.partial(torch.jit.freeze(model), *given)
        if execution == "graph" and self.device == "cuda":
            return self._captured(model, given)
        raise Refused(f"execution {execution!r} of {path} on {self.device}; valid: eager, frozen (TorchScript), graph (CUDA)")

    def _captured(self, model: Any, given: tuple[Any, ...]) -> Run:
        torch = self.torch
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                model(*given)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(*given)
        replay: Run = graph.replay
        return replay

    def _fill(self, model: Any) -> None:
        """Random weights in place of those there are, which may be zeros; of a size that keeps activations finite."""
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if not tensor.is_floating_point():
                continue
            if name.endswith(("running_var", "bn.weight")):
                tensor.data.uniform_(0.5, 1.5)
            else:
                fan = math.prod(tensor.shape[1:]) if tensor.dim() > 1 else 1
                tensor.data.normal_(0.0, 1.0 / math.sqrt(max(fan, 1)))

    def _random(self, shape: Sequence[int], dtype: str = "float32") -> Any:
        torch = self.torch
        kind = getattr(torch, dtype, None)
        if kind is None:
            raise Refused(f"element type {dtype!r} is not one of torch's")
        if kind.is_floating_point:
            return torch.randn(tuple(shape), device=self.device).to(kind)
        if kind is torch.bool:
            return torch.rand(tuple(shape), device=self.device) < 0.5
        return torch.randint(0, 100, tuple(shape), device=self.device).to(kind)


def _tensors(worker: Worker, kernel: dict[str, Any]) -> list[Any]:
    dtype = "float32" if kernel["dtype"] == "bool" else kernel["dtype"]
    return [worker._random(shape, dtype) for shape in kernel["inputs"]]


def _convolution(worker: Worker, kernel: dict[str, Any]) -> Run:
    functional, params = worker.torch.nn.functional, kernel["params"]
    (x,) = _tensors(worker, kernel)
    weight = worker._random(params["weight"], kernel["dtype"])
    bias = worker._random((kernel["output"][1],), kernel["dtype"]) if params["bias"] else None
    apply = getattr(functional, kernel["kind"])
    stride, padding, dilation, groups = (params[name] for name in ("stride", "padding", "dilation", "groups"))
    if "output_padding" in params:
        return lambda: apply(x, weight, bias, stride, padding, params["output_padding"], groups, dilation)
    return lambda: apply(x, weight, bias, stride, padding, dilation, groups)


def _matmul(worker: Worker, kernel: dict[str, Any]) -> Run:
    torch, params = worker.torch, kernel["params"]
    tensors = _tensors(worker, kernel)
    if len(tensors) > 1:
        left, right = tensors[:2]
        return lambda: torch.matmul(left, right)
    weight = worker._random((params["n"], params["k"]), kernel["dtype"])
    bias = worker._random((params["n"],), kernel["dtype"]) if params.get("bias") else None
    return lambda: torch.nn.functional.linear(tensors[0], weight, bias)


def _batch_norm(worker: Worker, kernel: dict[str, Any]) -> Run:
    functional = worker.torch.nn.functional
    (x,) = _tensors(worker, kernel)
    mean, bias = (worker._random((x.shape[1],)) for _ in range(2))
    variance, weight = (worker._random((x.shape[1],)).abs() + 0.1 for _ in range(2))
    affine = kernel["params"].get("affine", True)
    return lambda: functional.batch_norm(x, mean, variance, weight if affine else None, bias if affine else None, False)


def _short(arguments: Callable[[list[Any], dict[str, Any]], tuple[Any, ...]], *options: str) -> Callable[..., Run]:
    """What makes kernels of functions called as their kinds; ``options`` are the parameters that are passed by name."""

    def make(worker: Worker, kernel: dict[str, Any]) -> Run:
        name, params, tensors = kernel["kind"].replace("_scalar", ""), kernel["params"], _tensors(worker, kernel)
        if name in _POSITIVE:
            tensors[0] = tensors[0].abs() + 1
        apply = getattr(worker.torch.nn.functional, name, None) or getattr(worker.torch, name)
        named = {option: params[option] for option in options if option in params}
        return functools.partial(apply, *arguments(tensors, params), **named)

    return make


def _norm(worker: Worker, kernel: dict[str, Any]) -> Run:
    functional, params = worker.torch.nn.functional, kernel["params"]
    (x,) = _tensors(worker, kernel)
    shape = params["normalized_shape"] if kernel["kind"] == "layer_norm" else x.shape[1:2]
    affine = params.get("affine", True)
    weight, bias = (worker._random(shape, kernel["dtype"]) if affine else None for _ in range(2))
    if kernel["kind"] == "layer_norm":
        return lambda: functional.layer_norm(x, shape, weight, bias)
    return lambda: functional.group_norm(x, params["groups"], weight, bias)


def _attention(worker: Worker, kernel: dict[str, Any]) -> Run:
    apply, params = worker.torch.nn.functional.scaled_dot_product_attention, kernel["params"]
    query, key, value = _tensors(worker, kernel)[:3]
    mask = worker._random((query.shape[-2], key.shape[-2]), kernel["dtype"]) if params.get("mask") else None
    causal = bool(params.get("causal"))
    return lambda: apply(query, key, value, attn_mask=mask, is_causal=causal)


def _embedding(worker: Worker, kernel: dict[str, Any]) -> Run:
    rows, width = kernel["params"]["weight"]
    table = worker._random((rows, width), kernel["dtype"])
    index = worker.torch.randint(0, rows, tuple(kernel["inputs"][0]), device=worker.device)
    return functools.partial(worker.torch.nn.functional.embedding, index, table)


def _upsample(worker: Worker, kernel: dict[str, Any]) -> Run:
    apply, mode = worker.torch.nn.functional.interpolate, kernel["kind"][len("upsample_") : -len("2d")]
    (x,) = _tensors(worker, kernel)
    return functools.partial(apply, x, size=tuple(kernel["output"][2:]), mode=mode)


_FAMILIES = (
    ("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d", _convolution),
    ("matmul", _matmul),
    ("batch_norm", _batch_norm),
    ("cat stack", _short(lambda tensors, params: (tensors, params["dim"]))),
    ("max_pool2d", _short(lambda tensors, params: (tensors[0], params["kernel_size"]), *_WINDOW, "dilation")),
    ("avg_pool2d", _short(lambda tensors, params: (tensors[0], params["kernel_size"]), *_WINDOW)),
    ("adaptive_avg_pool2d", _short(lambda tensors, params: (tensors[0], params["output_size"]))),
    ("mean sum amax softmax log_softmax", _short(lambda tensors, params: (tensors[0], params["dim"]), "keepdim")),
    ("layer_norm group_norm", _norm),
    ("attention", _attention),
    ("embedding", _embedding),
    ("upsample_bilinear2d upsample_nearest2d upsample_bicubic2d", _upsample),
    (_UNARY, _short(lambda tensors, params: (tensors[0],))),
    (_BINARY, _short(lambda tensors, params: (tensors[0], tensors[-1]))),
    (_SCALAR, _short(lambda tensors, params: (tensors[0], 1.5 if tensors[0].is_floating_point() else 3))),
)
_MAKERS: dict[str, Callable[..., Run]] = {name: maker for names, maker in _FAMILIES for name in names.split()}


def _host_call(torch: Any, name: str, x: Any) -> Run:
    """A call that launches nothing, on a tensor of 2 x 4 x 4 x 4; what is not known costs what a view does."""
    arguments: dict[str, tuple[Any, ...]] = {
        "transpose": (1, 2), "permute": (0, 2, 3, 1), "unsqueeze": (0,), "squeeze": (0,), "expand": (3, 2, 4, 4, 4),
        "select": (1, 0), "split": (2, 1), "split_with_sizes": ([1, 3], 1), "unbind": (0,), "detach": (),
    }  # fmt: skip
    if name in arguments:
        return functools.partial(getattr(x, name), *arguments[name])
    others: dict[str, Run] = {
        "slice": lambda: x[:, 1:3], "t": lambda: x[0, 0].t(), "scalar_tensor": lambda: torch.scalar_tensor(3),
        "dropout": lambda: torch.nn.functional.dropout(x, 0.5, False),
    }  # fmt: skip
    return others.get(name, lambda: x.view(2, -1))


def main(arguments: Sequence[str], kind: Callable[[Any, str], Worker] = Worker) -> int:
    parser = argparse.ArgumentParser(description="Run kernels and networks for a parent that measures.")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=0, help="of the processor; 0: as many as torch takes")
    args = parser.parse_args(arguments)
    # Whatever libraries print must not stand among the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    try:
        import torch

        torch.set_num_threads(args.threads or torch.get_num_threads())
        worker = kind(torch, args.device)
    except (ImportError, Refused) as error:
        tell({"error": str(error) if isinstance(error, Refused) else f"{sys.executable} has no torch ({error})"})
        return 1
    for line in sys.stdin:
        try:
            tell(worker.answer(json.loads(line)))
        except Exception as error:  # torch raises many kinds; the parent is told, and may ask for something else
            named = "" if isinstance(error, Refused) else f"{type(error).__name__}: "
            tell({"error": " ".join(f"{named}{error}".split())[:600]})
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
