# SPDX-License-Identifier: Apache-2.0
"""Traces of PyTorch's profiler (Kineto): operators as the CPU called them, and the kernels that they launched on a GPU.

An operator calls others; the outermost one that is a kind of launch counts, with all that it calls. Where the trace has kernels
of a GPU, their times count instead of the operators', and an operator without any launched nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ModelError
from ..kinds import KINDS
from .arguments import ARGUMENTS
from .comparing import TracedCall
from .reading import Event

ON_GPU = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
_ALIASES: Mapping[str, str] = {
    **dict.fromkeys(("linear", "addmm", "mm", "bmm", "baddbmm", "mv", "dot"), "matmul"),
    "scaled_dot_product_attention": "attention",
    "concat": "cat",
    "relu6": "hardtanh",
    "_to_copy": "to",
    "copy_": "copy",
    "_adaptive_avg_pool2d": "adaptive_avg_pool2d",
    "_adaptive_avg_pool3d": "adaptive_avg_pool3d",
}
_CONVOLUTIONS = ("convolution", "_convolution")
_BIAS_FIRST = ("addmm", "baddbmm")
# Calls that may do nothing, or one of several things: what they call, if anything, counts.
_BY_WHAT_THEY_CALL = (
    *("to", "contiguous", "reshape", "dropout", "feature_dropout"),
    *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
)


@dataclass
class _Open:
    """An operator whose end has not come yet; ``counted`` is the call that it is part of."""

    end_us: float
    counted: int | None


class Kineto:
    """Takes in a trace's events; :meth:`calls` then tells what they are."""

    def __init__(self) -> None:
        self._operators: dict[tuple[Any, Any], list[Event]] = {}
        self._kernels: list[Event] = []

    def take(self, event: Event) -> None:
        if event.get("cat") == "cpu_op":
            self._operators.setdefault((str(event.get("pid")), str(event.get("tid"))), []).append(event)
        elif event.get("cat") in ON_GPU:
            self._kernels.append(event)

    @property
    def recorder(self) -> str:
        return "PyTorch's profiler, kernels of the GPU" if self._kernels else "PyTorch's profiler, operators on the CPU"

    def calls(self) -> list[TracedCall]:
        """Every call that is a kind of launch, in the order in which they began.

        Raises:
            ModelError: the shapes of an operator's inputs are none.
        """
        found: list[tuple[float, TracedCall]] = []
        launched_by: dict[str, int] = {}
        for events in self._operators.values():
            events.sort(key=lambda event: (event["ts"], -event["dur"]))
            open_now: list[_Open] = []
            for event in events:
                while open_now and open_now[-1].end_us <= event["ts"]:
                    open_now.pop()
                counted = open_now[-1].counted if open_now else None
                if counted is None and (call := _call(event)) is not None:
                    counted = len(found)
                    found.append((event["ts"], call))
                open_now.append(_Open(event["ts"] + event["dur"], counted))
                if counted is not None and (link := _link(event)):
                    launched_by[link] = counted
        if not self._kernels:
            return [call for _, call in sorted(found, key=lambda one: one[0])]
        times_ms: dict[int, float] = {}
        others = []
        for kernel in self._kernels:
            counted = launched_by.get(_link(kernel))
            took_ms = kernel["dur"] / 1e3
            if counted is None:
                others.append((kernel["ts"], TracedCall(kernel["name"][:120], "", (), took_ms)))
            else:
                times_ms[counted] = times_ms.get(counted, 0.0) + took_ms
        timed = [
            (began, TracedCall(call.name, call.kind, call.shapes, times_ms[place]))
            for place, (began, call) in enumerate(found)
            if place in times_ms
        ]
        return [call for _, call in sorted(timed + others, key=lambda one: one[0])]


def _link(event: Event) -> str:
    """What joins a kernel to the operator that launched it; empty where nothing does."""
    value = event.get("args", {}).get("External id")
    return "" if value is None else str(value)


def _call(event: Event) -> TracedCall | None:
    name: str = event["name"].removeprefix("aten::")
    if name == event["name"] or name in _BY_WHAT_THEY_CALL:
        return None
    shapes = _shapes(_own(name, event.get("args", {}).get("Input Dims")))
    kind = _ALIASES.get(name, name.rstrip("_") if name.rstrip("_") in KINDS else name)
    if name in _CONVOLUTIONS and shapes:
        kind = f"conv{len(shapes[0]) - 2}d"
    if name == "matmul" and shapes is not None and len(shapes) < 2:
        return None
    if shapes and f"{kind}_scalar" in KINDS and len(shapes) < 2:
        kind = f"{kind}_scalar"
    if kind not in KINDS:
        return None
    if name in _BIAS_FIRST and shapes is not None:
        shapes = shapes[1:]
    return TracedCall(event["name"][:120], kind, shapes, event["dur"] / 1e3)


def _own(name: str, dims: Any) -> Any:
    """An operator's own inputs: TorchScript's interpreter tells of all that waits on its stack, and of them last."""
    counts = ARGUMENTS.get(name.rstrip("_"), ())
    if not isinstance(dims, list) or len(dims) in counts:
        return dims
    own = (dims[-count:] for count in sorted(counts, reverse=True) if count < len(dims))
    return next((one for one in own if one[0]), dims)


def _shapes(dims: Any) -> tuple[tuple[int, ...], ...] | None:
    """Shapes of the tensors among an operator's inputs, those of lists as well; None where the trace has none.

    Raises:
        ModelError: they are no shapes.
    """
    if dims is None:
        return None
    if not isinstance(dims, list):
        raise ModelError(f"a trace whose Input Dims are {dims!r:.60}")
    found: list[tuple[int, ...]] = []
    for item in dims:
        for shape in item if isinstance(item, list) and item and isinstance(item[0], list) else [item]:
            if not isinstance(shape, list) or not all(isinstance(size, int) and 0 <= size < 1 << 40 for size in shape):
                raise ModelError(f"a trace whose Input Dims are {dims!r:.60}")
            if shape:
                found.append(tuple(shape))
    return tuple(found)
