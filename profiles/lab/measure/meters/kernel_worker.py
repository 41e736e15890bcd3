# SPDX-License-Identifier: Apache-2.0
"""Worker that runs single kernels with PyTorch, next to the networks of :mod:`jetdvfs.profiles.adapt.torch_worker`.

Needs Python 3.8, its standard library and torch only::

    python kernel_worker.py [--device cpu|cuda] [--threads N]
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence

if TYPE_CHECKING or __package__:
    from ....adapt.torch_worker import LateRequest, RefusedRequest, Run, Worker, is_for_now, main
else:  # started as a file
    sys.path[0] = str(Path(__file__).resolve().parents[3] / "adapt")
    from torch_worker import LateRequest, RefusedRequest, Run, Worker, is_for_now, main

_RUNS, _BURSTS = 10, 2  # of a kernel between two events on a GPU; such bursts that are issued at once
_IN_ORDER = 20  # launches that are issued before the GPU is waited for
_GRAPH_MS, _GRAPH_RUNS = 1.5, 200  # shorter kernels repeat in CUDA graphs of about this time, or of this number of launches
_REFERENCES = 100  # timings of host reference work
_REPLAYS = 20  # of a graph that are timed
_AHEAD_MS = 20.0  # of replays are queued before the GPU is waited for
_SLEEP_CYCLES, _MOST_CYCLES = 2000000, 1 << 30  # keep a GPU busy until a burst is issued, so that no launch waits for the host
_PROBE_SIDE, _PROBE_BYTES = 768, 1 << 27
_PROBE_MS, _MOST_SIDE = 1.0, 8192  # a product on a GPU takes at least this time, or has these sides
_LEAST = 5  # least launches in a graph
_CACHES = 2  # total size of a kernel's weight copies, relative to the GPU's largest cache

_POSITIVE = {"log", "sqrt", "rsqrt"}
_UNARY = (
    "relu hardtanh sigmoid silu gelu tanh elu leaky_relu softplus hardswish hardsigmoid mish exp log sqrt rsqrt reciprocal abs "
    "neg sin cos tan erf floor ceil round trunc sign"
)
_SCALAR = "add_scalar sub_scalar mul_scalar div_scalar pow_scalar eq_scalar ne_scalar lt_scalar le_scalar gt_scalar ge_scalar"
_WINDOW = ("stride", "padding", "ceil_mode", "dilation")


class KernelWorker(Worker):
    actions = (*Worker.actions, "rates", "kernel", "repeat", "issue", "gpu_clock", "memory", "reference")

    def __init__(self, torch: Any, device: str) -> None:
        super().__init__(torch, device)
        self._graph: tuple[Run, int] | None = None

    def hello(self, request: dict[str, Any]) -> dict[str, Any]:
        told = {**super().hello(request), "kinds": sorted(_MAKERS)}
        if self.device == "cuda":
            told["memory_bytes"] = int(self.torch.cuda.get_device_properties(0).total_memory)
        return told

    def network(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time of a network; of a CUDA graph also ``gpu_ms``, one replay among several."""
        told = super().network(request)
        if self.device == "cuda" and request.get("execution") == "graph":
            told["gpu_ms"] = self._between_replays_ms(self._network_of(request))
        return told

    def memory(self, request: dict[str, Any]) -> dict[str, Any]:
        """Peak GPU memory of a model file run eagerly, weights included, in MiB."""
        cuda, mib = self.torch.cuda, 1 << 20
        self._last = None
        small = self._random((8, 8))
        small @ small  # libraries allocate once
        cuda.empty_cache()
        before = cuda.memory_allocated()
        run = self._network_of(request)
        self._wait()
        cuda.reset_peak_memory_stats()
        for _ in range(2):
            run()
        self._wait()
        return {"peak_mib": (cuda.max_memory_allocated() - before) / mib}

    def reference(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"ms": statistics.median(self._reference_ms() for _ in range(_REFERENCES))}

    def rates(self, request: dict[str, Any]) -> dict[str, Any]:
        """Peak rates: operations/s of a matrix product, bytes/s of a copy."""
        torch, side = self.torch, _PROBE_SIDE
        source = torch.ones(_PROBE_BYTES // 4, device=self.device)
        copy, limits = functools.partial(torch.empty_like(source).copy_, source), {"timings": 10, "seconds": 2.0}
        if self.device == "cuda":
            moved = 2e3 * _PROBE_BYTES / self._in_bursts(copy, limits)["ms"]
            by_type = self._product_rates()
            plain = by_type["tf32" if torch.backends.cuda.matmul.allow_tf32 else "float32"]
            return {"flops_per_s": plain, "bytes_per_s": moved, "flops_per_s_of": by_type}
        left, right = self._random((side, side)), self._random((side, side))
        product = self._timed(lambda: left @ right, limits, waiting=True)["ms"]
        return {
            "flops_per_s": 2e3 * side**3 / product,
            "bytes_per_s": 2e3 * _PROBE_BYTES / self._timed(copy, limits, True)["ms"],
        }

    def _product_rates(self) -> dict[str, float]:
        torch, found = self.torch, {}
        modes, before = torch.backends.cuda.matmul, torch.backends.cuda.matmul.allow_tf32
        for name, dtype in (("float32",) * 2, ("tf32", "float32"), ("float16",) * 2, ("bfloat16",) * 2, ("int8",) * 2):
            side, took_ms = _PROBE_SIDE, 0.0
            try:
                modes.allow_tf32 = name == "tf32"
                while True:
                    left, right = self._random((side, side), dtype), self._random((side, side), dtype)
                    apply, right = (torch._int_mm, right.t()) if dtype == "int8" else (torch.matmul, right)  # fast by columns
                    run = functools.partial(apply, left, right)
                    run()
                    took_ms = self._in_bursts(run, {"timings": 20, "seconds": 0.2})["ms"]
                    if took_ms >= _PROBE_MS or side >= _MOST_SIDE:
                        break
                    side = min(2 * side, _MOST_SIDE)
            except (AttributeError, RuntimeError, RefusedRequest):  # a type, or the memory, that this GPU does not have
                pass
            finally:
                modes.allow_tf32 = before
            if took_ms > 0:
                found[name] = 2e3 * side**3 / took_ms
        return found

    def kernel(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time of one kernel in ms: on a GPU after another kernel in a CUDA graph, or in a stream (``burst_ms``).

        ``events`` counts its kernels, copies and fills on a GPU.
        """
        run = self._kernel_of(request["kernel"])
        events = self._ran(run)
        ran = sorted(set(events))
        if self.device != "cuda":
            return {"ran": ran, **self._timed(run, request, waiting=True)}
        told = {"ran": ran, "events": len(events), **self._in_bursts(run, request)}
        in_graph_ms = self._after_another_ms(run, told["ms"])
        return {**told, "ms": told["ms"] if in_graph_ms is None else in_graph_ms, "burst_ms": told["ms"]}

    def repeat(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a kernel or network back to back for some seconds while the parent reads sensors.

        With ``graph``, short kernels repeat in a CUDA graph, whose launches and GPU time each in ms are returned.
        """
        run = self._kernel_of(request["kernel"]) if "kernel" in request else self._network_of(request)
        runs, gpu_ms, ahead = 0, math.nan, _IN_ORDER
        if request.get("graph") and "kernel" in request and self.device == "cuda":
            run, runs, gpu_ms = self._repeated_in_graph(run)
            ahead = max(math.ceil(_AHEAD_MS / (runs * gpu_ms)), 1) if runs else _IN_ORDER
        turns, start = 0, time.perf_counter()
        until = start + float(request["seconds"])
        while not turns or time.perf_counter() < until:
            run()
            turns += 1
            if turns % ahead == 0:
                self._wait()
        self._wait()
        count = turns * max(runs, 1)
        told = {"period_ms": 1e3 * (time.perf_counter() - start) / count, "count": count}
        return {**told, "graph": runs, "gpu_ms": gpu_ms} if runs else told

    def issue(self, request: dict[str, Any]) -> dict[str, Any]:
        """Host time in ms of issuing calls once, without waiting for the GPU."""
        runs = [self._call(call) for call in request["calls"]]
        burst = [runs[index] for index in request["order"]]
        return self._timed(lambda: [run() for run in burst], request, waiting=False)

    def _in_bursts(self, run: Run, request: dict[str, Any]) -> dict[str, Any]:
        """Kernel time in a stream: median of bursts, without the cost of an event."""
        event_ms = self._event_ms
        found = self._bursts_ms(run, _RUNS, _BURSTS, request)
        took_ms = (statistics.median(found) - event_ms) / _RUNS
        if took_ms <= 0:
            raise RefusedRequest("the GPU takes no time for it that events can tell")
        return {"ms": took_ms, "timings": _RUNS * len(found), "runs": _RUNS, "event_us": 1e3 * event_ms}

    @functools.cached_property
    def _event_ms(self) -> float:
        """Time of an event in a stream, in ms, by runs of the smallest kernel."""
        run, limits = self._smallest, {"timings": 200, "seconds": 1.0}
        run()
        one, several = (statistics.median(self._bursts_ms(run, runs, _IN_ORDER // runs, limits)) for runs in (1, _RUNS))
        return max((_RUNS * one - several) / (_RUNS - 1), 0.0)

    def _bursts_ms(self, run: Run, runs: int, bursts: int, request: dict[str, Any]) -> list[float]:
        """Times of ``runs`` runs between two events each, issued while the GPU is busy."""
        found: list[float] = []
        cycles, until = _SLEEP_CYCLES, time.perf_counter() + float(request.get("seconds", 1.0))
        while len(found) * runs < int(request.get("timings", 100)) and (not found or time.perf_counter() < until):
            events = [self.torch.cuda.Event(enable_timing=True) for _ in range(bursts + 1)]
            self.torch.cuda._sleep(cycles)
            events[0].record()
            for event in events[1:]:
                for _ in range(runs):
                    run()
                event.record()
            waited = events[0].query()  # the GPU had finished sleeping: later work waited for a slow host
            self._wait()
            if not waited:
                found += [first.elapsed_time(second) for first, second in zip(events, events[1:])]
            elif cycles >= _MOST_CYCLES:
                launches = runs * bursts
                raise LateRequest(
                    f"{launches} launches of a kernel are not issued while the GPU is kept busy for {cycles} cycles"
                )
            else:
                cycles *= 2
        return found

    def _repeated_in_graph(self, run: Run) -> tuple[Run, int, float]:
        """CUDA graph of a short kernel, its launches, and GPU time of each in ms."""
        if self._graph is None:
            self._graph = run, 0
            took_ms = self._in_bursts(run, {"timings": _RUNS, "seconds": 0.0})["ms"]
            runs = min(math.ceil(_GRAPH_MS / took_ms), _GRAPH_RUNS)
            if runs > 1:
                try:
                    replay = self._capture(lambda: [run() for _ in range(runs)])
                    replay()
                    self._graph = replay, runs
                except (RuntimeError, AttributeError):  # a call that waits for the GPU; a PyTorch without CUDA graphs
                    self._wait()
        replay, runs = self._graph
        return replay, runs, self._between_replays_ms(replay) / runs if runs else math.nan

    def _after_another_ms(self, run: Run, took_ms: float) -> float | None:
        """GPU time in ms of a launch in a CUDA graph after a small kernel: half of two alternating small ones is subtracted."""
        runs = max(min(math.ceil(_GRAPH_MS / took_ms), _GRAPH_RUNS // 2), _LEAST)
        other = functools.partial(self.torch.neg, self._random((1,)))  # timed each time: clocks may have changed
        try:
            took_ms = self._in_turn_ms(run, runs) - self._in_turn_ms(other, _GRAPH_RUNS // 2) / 2
        except (RuntimeError, AttributeError) as error:  # a call that waits for the GPU; a PyTorch without CUDA graphs
            self._wait()
            if is_for_now(error):
                raise
            return None
        if took_ms <= 0:
            raise RefusedRequest("the GPU takes no time for it in a graph that events can tell")
        return took_ms

    def _in_turn_ms(self, run: Run, runs: int) -> float:
        small = self._smallest
        return self._between_replays_ms(self._capture(lambda: [(run(), small()) for _ in range(runs)])) / runs

    def _between_replays_ms(self, replay: Run) -> float:
        """Median time of one CUDA graph replay among several, in ms.

        A replay longer than the GPU's queue of a few thousand launches waits for it.
        """
        event_ms = self._event_ms
        events = [self.torch.cuda.Event(enable_timing=True) for _ in range(_REPLAYS + 1)]
        replay()
        for event in events:
            event.record()
            replay()
        self._wait()
        found: list[float] = [first.elapsed_time(second) for first, second in zip(events, events[1:])]
        return statistics.median(found) - event_ms

    def gpu_clock(self, request: dict[str, Any]) -> dict[str, Any]:
        """GPU clock in Hz by its own cycle counter: it may be throttled unseen by the driver."""
        before, after = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.torch.cuda._sleep(_SLEEP_CYCLES)  # it may have been off
        before.record()
        self.torch.cuda._sleep(_SLEEP_CYCLES)
        after.record()
        self._wait()
        return {"gpu_hz": 1e3 * _SLEEP_CYCLES / before.elapsed_time(after)}

    def weights(self, shape: Sequence[int], kernel: dict[str, Any]) -> Iterator[Any]:
        """Endless random weights of a kernel, enough to exceed the GPU's cache, as in a network."""

        def made() -> Any:
            return _laid_out(self, self._random(shape, kernel["dtype"]), kernel)

        first = made()
        return itertools.cycle([first, *(made() for _ in range(self._copies_of(first)))])

    def _copies_of(self, tensor: Any) -> int:
        taken = tensor.numel() * tensor.element_size()
        copies: int = math.ceil(_CACHES * self._cache_bytes / max(taken, 1))
        return min(copies, _GRAPH_RUNS // 2)

    @functools.cached_property
    def _cache_bytes(self) -> int:
        """Largest GPU cache in bytes; 0 if unknown and for a processor."""
        told = self.torch.cuda.get_device_properties(0) if self.device == "cuda" else None
        return int(getattr(told, "L2_cache_size", 0))

    def _kernel_of(self, kernel: dict[str, Any]) -> Run:
        return self._kept(json.dumps(kernel, sort_keys=True), lambda: self._made(kernel))

    def _made(self, kernel: dict[str, Any]) -> Run:
        maker = _MAKERS.get(kernel["kind"])
        if maker is None:
            raise RefusedRequest(
                "kernel kind {!r} cannot be run here; valid: {}".format(kernel["kind"], ", ".join(sorted(_MAKERS)))
            )
        self.torch.manual_seed(0)
        run = maker(self, kernel)
        made, expected = list(run().shape), list(kernel["output"])
        same = math.prod(made) == math.prod(expected) if kernel["kind"] == "matmul" else made == expected
        if not same:
            raise RefusedRequest("{}: makes a tensor of {}, not of {}".format(kernel["kind"], made, expected))
        return run

    def _call(self, call: dict[str, Any]) -> Run:
        return self._made(call) if "kind" in call else _host_call(self.torch, str(call["name"]), self._random((2, 4, 4, 4)))

    def _kept(self, key: str, make: Callable[[], Run]) -> Run:
        if self._last is None or self._last[0] != key:
            self._graph = None
        return super()._kept(key, make)


def _tensors(worker: KernelWorker, kernel: dict[str, Any]) -> list[Any]:
    dtype = "float32" if kernel["dtype"] == "bool" else kernel["dtype"]
    return [_laid_out(worker, worker._random(shape, dtype), kernel) for shape in kernel["inputs"]]


def _laid_out(worker: KernelWorker, tensor: Any, kernel: dict[str, Any]) -> Any:
    last = worker.torch.channels_last if tensor.dim() == 4 else worker.torch.channels_last_3d
    return tensor.contiguous(memory_format=last) if kernel["params"].get("channels_last") else tensor


def _named(params: dict[str, Any], *options: str) -> dict[str, Any]:
    return {option: params[option] for option in options if option in params}


def _convolution(worker: KernelWorker, kernel: dict[str, Any]) -> Run:
    functional, params = worker.torch.nn.functional, kernel["params"]
    (x,) = _tensors(worker, kernel)
    weights = worker.weights(params["weight"], kernel)
    bias = worker._random((kernel["output"][1],), kernel["dtype"]) if params["bias"] else None
    named = _named(params, "stride", "padding", "output_padding", "dilation", "groups")
    apply = getattr(functional, kernel["kind"])
    return lambda: apply(x, next(weights), bias, **named)


def _matmul(worker: KernelWorker, kernel: dict[str, Any]) -> Run:
    torch, params = worker.torch, kernel["params"]
    tensors = _tensors(worker, kernel)
    if len(tensors) > 1:
        return functools.partial(torch.matmul, *tensors[:2])
    if tensors[0].shape[-1] != params["k"]:  # the weight is the left operand, as in rotary embeddings
        left = worker.weights((params["m"], params["k"]), kernel)
        return lambda: torch.matmul(next(left), tensors[0])
    weights = worker.weights((params["n"], params["k"]), kernel)
    bias = worker._random((params["n"],), kernel["dtype"]) if params.get("bias") else None
    return lambda: torch.nn.functional.linear(tensors[0], next(weights), bias)


def _short(arguments: Callable[[list[Any], dict[str, Any]], tuple[Any, ...]], *options: str) -> Callable[..., Run]:
    def make(worker: KernelWorker, kernel: dict[str, Any]) -> Run:
        name, params, tensors = kernel["kind"].replace("_scalar", ""), kernel["params"], _tensors(worker, kernel)
        if name in _POSITIVE:
            tensors[0] = tensors[0].abs() + 1
        apply = getattr(worker.torch.nn.functional, name, None) or getattr(worker.torch, name)
        return functools.partial(apply, *arguments(tensors, kernel), **_named(params, *options))

    return make


def _first_and(*names: str) -> Callable[[list[Any], dict[str, Any]], tuple[Any, ...]]:
    return lambda tensors, kernel: (tensors[0], *(kernel["params"][name] for name in names))


def _norm(worker: KernelWorker, kernel: dict[str, Any]) -> Run:
    functional, params, kind = worker.torch.nn.functional, kernel["params"], kernel["kind"]
    (x,) = _tensors(worker, kernel)
    shape = params["normalized_shape"] if kind == "layer_norm" else x.shape[1:2]
    weight, bias = (worker._random(shape, kernel["dtype"]) if params.get("affine", True) else None for _ in range(2))
    if kind == "batch_norm":  # a network in half precision has its statistics in that, too: three kernels of a GPU, not one
        mean, variance = worker._random(shape, kernel["dtype"]), worker._random(shape, kernel["dtype"]).abs() + 0.1
        return lambda: functional.batch_norm(x, mean, variance, weight, bias, False)
    if kind == "layer_norm":
        return lambda: functional.layer_norm(x, shape, weight, bias)
    return lambda: functional.group_norm(x, params["groups"], weight, bias)


def _clone(worker: KernelWorker, kernel: dict[str, Any]) -> Run:
    shape = list(kernel["inputs"][0])
    first, second = (1, 2) if len(shape) > 2 else (0, len(shape) - 1)
    if len(shape) > 1:
        shape[first], shape[second] = shape[second], shape[first]
    x = worker._random(shape, kernel["dtype"])
    x = x.transpose(first, second) if len(shape) > 1 else x
    return functools.partial(x.clone, memory_format=worker.torch.contiguous_format)


def _attention(worker: KernelWorker, kernel: dict[str, Any]) -> Run:
    apply, params = worker.torch.nn.functional.scaled_dot_product_attention, kernel["params"]
    query, key, value = _tensors(worker, kernel)[:3]
    mask, times = None, (query.shape[-2], key.shape[-2])
    if params.get("math"):  # expanded from a column, as masks of encoders are: no fused kernel takes it
        mask = worker.torch.ones((times[0], 1), dtype=worker.torch.bool, device=worker.device).expand(times)
    elif params.get("mask"):
        mask = worker._random(times, kernel["dtype"])
    shared = {"enable_gqa": True} if query.dim() > 2 and query.shape[-3] != key.shape[-3] else {}
    return functools.partial(apply, query, key, value, attn_mask=mask, is_causal=bool(params.get("causal")), **shared)


def _embedding(worker: KernelWorker, kernel: dict[str, Any]) -> Run:
    rows, width = kernel["params"]["weight"]
    table = worker._random((rows, width), kernel["dtype"])
    index = worker.torch.randint(0, rows, tuple(kernel["inputs"][0]), device=worker.device)
    return functools.partial(worker.torch.nn.functional.embedding, index, table)


def _upsample(worker: KernelWorker, kernel: dict[str, Any]) -> Run:
    mode, size = kernel["kind"][len("upsample_") : -len("2d")], tuple(kernel["output"][2:])
    return functools.partial(worker.torch.nn.functional.interpolate, *_tensors(worker, kernel), size=size, mode=mode)


def _pads(kernel: dict[str, Any]) -> list[int]:
    """Elements added at both ends of each axis, the last axis first."""
    (shape,) = kernel["inputs"]
    return [side for had, wanted in zip(reversed(shape), reversed(kernel["output"])) for side in (0, wanted - had)]


def _index(worker: KernelWorker, kernel: dict[str, Any]) -> Run:
    shape, *places = kernel["inputs"]
    x = worker._random(shape, kernel["dtype"])
    index = tuple(worker.torch.randint(0, size, tuple(place), device=worker.device) for size, place in zip(shape, places))
    return lambda: x[index]


def _filled(worker: KernelWorker, kernel: dict[str, Any]) -> Run:
    x = worker._random(kernel["output"], kernel["dtype"])
    return functools.partial(x.fill_, 1) if kernel["kind"] == "fill" else lambda: worker.torch.zeros_like(x)


_FAMILIES = (
    ("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d", _convolution),
    ("matmul", _matmul),
    ("cat stack", _short(lambda tensors, kernel: (tensors, kernel["params"]["dim"]))),
    ("max_pool2d avg_pool2d", _short(_first_and("kernel_size"), *_WINDOW)),
    ("adaptive_avg_pool2d", _short(_first_and("output_size"))),
    ("mean sum amax softmax log_softmax", _short(_first_and("dim"), "keepdim")),
    ("batch_norm layer_norm group_norm", _norm),
    ("attention", _attention),
    ("index", _index),
    ("fill zeros", _filled),
    ("constant_pad_nd", _short(lambda tensors, kernel: (tensors[0], _pads(kernel)))),
    ("masked_fill", _short(lambda tensors, kernel: (tensors[0], tensors[1] > 0, 1))),
    ("roll", _short(lambda tensors, kernel: (tensors[0], 1, min(1, tensors[0].dim() - 1)))),
    ("embedding", _embedding),
    ("upsample_bilinear2d upsample_nearest2d upsample_bicubic2d", _upsample),
    ("clone", _clone),
    (_UNARY, _short(_first_and())),
    ("add sub mul div pow eq ne lt le gt ge minimum maximum", _short(lambda tensors, kernel: (tensors[0], tensors[-1]))),
    (_SCALAR, _short(lambda tensors, kernel: (tensors[0], 1.5 if tensors[0].is_floating_point() else 3))),
)


_MAKERS: dict[str, Callable[..., Run]] = {name: maker for names, maker in _FAMILIES for name in names.split()}


def _host_call(torch: Any, name: str, x: Any) -> Run:
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


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], KernelWorker))
