# SPDX-License-Identifier: Apache-2.0
"""Traces of PyTorch's profiler (Kineto): operators on the CPU, and their GPU kernels.

Of nested operators the outermost of a launch's kind counts. With GPU kernels in the trace, operators without one launched
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ....kernels.errors import ModelError
from ....kernels.kinds import KINDS
from .arguments import FORMS
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
    "linalg_vector_norm": "norm",
    "_addmm_activation": "matmul",
    "zero_": "fill",
    **{f"new_{name}": name for name in ("zeros", "ones", "full")},
    **{f"{name}_like": name for name in ("zeros", "ones", "full")},
}
_CONVOLUTIONS = ("convolution", "_convolution")
_TRANSPOSED_AT, _BIASED_AT = 6, ("addmm", "baddbmm", "_addmm_activation")
_WEIGHT_FIRST = ("embedding",)
_LISTS = ("cat", "concat", "stack")  # of more than 30 tensors the profiler records none
_INDEXED = ("index", "_unsafe_index")  # nor the indices, which are optional tensors
# Launches that may precede or follow a call in the list, though PyTorch does them inside.
_INNER = frozenset(("clone", "copy", "to", "add", "relu", "gelu"))
_OF_TWO = {"aten::min": "aten::minimum", "aten::max": "aten::maximum"}  # called by these, given two tensors
_TRUE = ("True", "1", True)
_TYPES = {"float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16"}
_FUSED = "fused_"  # prefix of TorchScript's fused kernels, followed by their operators
# Calls that may do nothing, or one of several things: their inner calls count.
_BY_WHAT_THEY_CALL = (
    *("to", "contiguous", "reshape", "dropout", "feature_dropout"),
    *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
)
_WRAPPERS = tuple(f"aten::{name}" for name in _BY_WHAT_THEY_CALL)


class _RunningOperator(Struct):
    name: str
    end_us: float
    counted: int | None
    inner: int | None = None
    direct: bool = True


class Kineto:
    """Collects trace events."""

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
        """Calls of a launch's kind, by start. Raises ModelError."""
        found: list[_CountedCall] = []
        inside: list[tuple[int, TracedCall]] = []
        launched_by: dict[str, tuple[int, int | None]] = {}
        for events in self._operators.values():
            events.sort(key=lambda event: (event["ts"], -event["dur"]))
            open_now: list[_RunningOperator] = []
            for event in events:
                while open_now and open_now[-1].end_us <= event["ts"]:
                    open_now.pop()
                outer = open_now[-1] if open_now else None
                counted, inner = (outer.counted, outer.inner) if outer else (None, None)
                if counted is None and (call := _call(event)) is not None:
                    counted = len(found)
                    found.append(_CountedCall(event["ts"], call))
                elif counted is not None and outer is not None and outer.name == event["name"] and not found[counted].call.sure:
                    found[counted].corrected(_call(event, alone=True))  # the inner call has its own inputs
                elif counted is not None and outer is not None and _OF_TWO.get(outer.name) == event["name"]:
                    found[counted].replaced(_call(event, alone=True))
                elif counted is not None and found[counted].call.name == event["name"]:
                    found[counted].retyped(_types(event))  # autocast hands on cast tensors
                elif counted is not None and inner is None and (call := _call(event)) is not None and call.kind in _INNER:
                    inner = len(inside)
                    inside.append((counted, replace(call, direct=outer is None or outer.direct)))
                direct = counted is None or event["name"] in (found[counted].call.name, *_WRAPPERS)
                direct = direct and (outer is None or outer.direct)
                open_now.append(_RunningOperator(event["name"], event["ts"] + event["dur"], counted, inner, direct))
                if counted is not None and (link := _link(event)):
                    launched_by[link] = counted, inner
        if not self._kernels:
            for counted, call in inside:
                found[counted].inner.append(call)
            return [one.whole() for one in sorted(found, key=lambda one: one.began)]
        times_ms: dict[int, float] = {}
        inner_ms: dict[int, float] = {}
        others = []
        for kernel in self._kernels:
            took_ms = kernel["dur"] / 1e3
            by = launched_by.get(_link(kernel))
            if by is None:
                others.append((kernel["ts"], TracedCall(kernel["name"][:120], "", (), took_ms)))
                continue
            times_ms[by[0]] = times_ms.get(by[0], 0.0) + took_ms
            if by[1] is not None:
                inner_ms[by[1]] = inner_ms.get(by[1], 0.0) + took_ms
        for place, (counted, call) in enumerate(inside):
            if place in inner_ms:
                found[counted].inner.append(replace(call, took_ms=inner_ms[place]))
        timed = [(one.began, one.whole(times_ms[place])) for place, one in enumerate(found) if place in times_ms]
        return [call for _, call in sorted(timed + others, key=lambda one: one[0])]


class _CountedCall:
    def __init__(self, began: float, call: TracedCall) -> None:
        self.began, self.call, self.inner = began, call, list(call.inner)

    def corrected(self, call: TracedCall | None) -> None:
        if call is not None and call.kind == self.call.kind:
            self.call = replace(self.call, shapes=call.shapes, sure=True)

    def replaced(self, call: TracedCall | None) -> None:
        self.call = call or self.call

    def retyped(self, types: tuple[str, ...]) -> None:
        self.call = replace(self.call, types=types or self.call.types)

    def whole(self, took_ms: float | None = None) -> TracedCall:
        return replace(self.call, inner=tuple(self.inner), took_ms=self.call.took_ms if took_ms is None else took_ms)


def _link(event: Event) -> str:
    value = event.get("args", {}).get("External id")
    return "" if value is None else str(value)


def _call(event: Event, alone: bool = False) -> TracedCall | None:
    if event["name"].startswith(_FUSED):
        return _fused(event)
    name: str = event["name"].removeprefix("aten::")
    if name == event["name"] or name in _BY_WHAT_THEY_CALL:
        return None
    dims, values = (event.get("args", {}).get(which) for which in ("Input Dims", "Concrete Inputs"))
    count, sure = (None, True) if alone else _own(name, dims, event.get("args", {}).get("Input type"))
    if count is not None:
        dims, values = dims[-count:], values[-count:] if isinstance(values, list) and len(values) == len(dims) else None
    shapes = _shapes(dims)
    kind = _ALIASES.get(name, name.rstrip("_") if name.rstrip("_") in KINDS else name)
    if name in _CONVOLUTIONS and shapes:
        kind = f"conv{'_transpose' if _is_transposed(values) else ''}{len(shapes[0]) - 2}d"
    if name == "matmul" and shapes is not None and len(shapes) < 2:
        return None
    if shapes and f"{kind}_scalar" in KINDS and len(shapes) < 2:
        kind = f"{kind}_scalar"
    if kind not in KINDS:
        return None
    inner: tuple[TracedCall, ...] = ()
    if shapes is not None and name in (*_BIASED_AT, *_WEIGHT_FIRST):
        shapes = shapes[1:]
    if name == "_addmm_activation" and shapes and len(shapes) > 1:
        gelu = isinstance(values, list) and bool(values) and values[-1] in _TRUE
        inner = (TracedCall(event["name"][:120], "gelu" if gelu else "relu", ((shapes[0][0], shapes[1][-1]),), 0.0),)
    if (name in _LISTS and shapes == ()) or (name in _INDEXED and dims and not dims[-1]):
        shapes, sure = None, False
    return TracedCall(event["name"][:120], kind, shapes, event["dur"] / 1e3, inner, sure, _types(event) if sure else ())


def _types(event: Event) -> tuple[str, ...]:
    names = event.get("args", {}).get("Input type")
    return tuple(sorted({_TYPES[str(name)] for name in names if str(name) in _TYPES})) if isinstance(names, list) else ()


def _fused(event: Event) -> TracedCall | None:
    """Kernel of TorchScript's fusers, whose name lists its operators; sizes are not recorded."""
    words, kinds = event["name"].removeprefix(_FUSED).split("_"), []
    while words:
        length = next((length for length in range(len(words), 0, -1) if "_".join(words[:length]) in KINDS), 0)
        kinds += ["_".join(words[:length])] if length else []
        words = words[max(length, 1) :]
    if not kinds:
        return None
    parts = [TracedCall(event["name"][:120], kind, None, 0.0, sure=False) for kind in kinds]
    return replace(parts[0], took_ms=event["dur"] / 1e3, inner=tuple(parts[1:]))


def _is_transposed(values: Any) -> bool:
    return isinstance(values, list) and len(values) > _TRANSPOSED_AT and values[_TRANSPOSED_AT] in _TRUE


def _own(name: str, dims: Any, types: Any) -> tuple[int | None, bool]:
    """Number of an operator's own inputs (None: all), and True if sure.

    TorchScript records its whole stack, an operator's own inputs last.
    """
    forms = FORMS.get(name.rstrip("_"), ())
    if not isinstance(dims, list):
        return None, True
    told = types if isinstance(types, list) and len(types) == len(dims) else [""] * len(dims)
    tensors = [bool(dim) or str(of)[:1].islower() for dim, of in zip(dims, told, strict=True)]
    counts = {len(form) for form in forms if _fits(form, tensors)}
    if not counts:
        return None, len(dims) in map(len, forms)
    return max(counts), len(counts) == 1


def _fits(form: str, tensors: Sequence[bool]) -> bool:
    """True if a stack may end with a form's arguments; interpreters give no outputs."""
    if len(form) > len(tensors) or ("O" in form and len(form) < len(tensors)):
        return False
    own = zip(form, tensors[-len(form) :], strict=True)
    return all(tensor if needed in "TO" else not tensor or needed == "t" for needed, tensor in own)


def _shapes(dims: Any) -> tuple[tuple[int, ...], ...] | None:
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
