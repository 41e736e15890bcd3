# SPDX-License-Identifier: Apache-2.0
"""A neural network as kernel invocations and host-only calls, in execution order."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct, convert, field
from msgspec.json import decode, encode

from .boundary import Boundary
from .errors import EndsEarly, ModelError
from .values import PartlyCompared

__all__ = ["HostOp", "KernelInvocation", "Network", "TensorSpec"]

_Text: TypeAlias = Annotated[str, Meta(max_length=1024)]
_Count: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 62)]
_Signed: TypeAlias = Annotated[int, Meta(gt=-1 << 62, lt=1 << 62)]
Shape: TypeAlias = Annotated[tuple[_Count, ...], Meta(max_length=16)]
ParamValue: TypeAlias = bool | int | float | str | tuple[_Signed, ...] | None

DTYPE_BYTES: Mapping[str, int] = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2, "float32": 4,
    "float64": 8, "complex64": 8, "complex128": 16, "quint8": 1, "qint8": 1, "qint32": 4,
}  # fmt: skip


#: Element types of weights that pack several elements, or a scale with them, as (elements, bytes).
PACKED_TYPES: Mapping[str, tuple[int, int]] = {
    "float8_e4m3fn": (1, 1), "float8_e4m3fnuz": (1, 1), "float8_e5m2": (1, 1), "float8_e5m2fnuz": (1, 1),
    "float8_e8m0fnu": (1, 1), "int4": (2, 1), "uint4": (2, 1), "float4_e2m1": (2, 1), "int2": (4, 1), "uint2": (4, 1),
    # llama.cpp's types (ggml-common.h), by its names.
    "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24), "q8_0": (32, 34), "q8_1": (32, 36),
    "q2_K": (256, 84), "q3_K": (256, 110), "q4_K": (256, 144), "q5_K": (256, 176), "q6_K": (256, 210), "q8_K": (256, 292),
    "iq1_s": (256, 50), "iq1_m": (256, 56), "iq2_xxs": (256, 66), "iq2_xs": (256, 74), "iq2_s": (256, 82),
    "iq3_xxs": (256, 98), "iq3_s": (256, 110), "iq4_nl": (32, 18), "iq4_xs": (256, 136), "tq1_0": (256, 54),
    "tq2_0": (256, 66), "mxfp4": (32, 17), "nvfp4": (64, 36), "q1_0": (128, 18),
}  # fmt: skip

#: Types of plain values: a number, a truth value, a text, or nothing.
PLAIN_TYPES = ("int", "float", "flag", "str", "none")


class TensorSpec(PartlyCompared, frozen=True):
    """An input: the shape and element type of a tensor, or a plain value.

    Attributes:
        dtype: element type, or one of :data:`PLAIN_TYPES`.
        name: the model's name for it, unless given in order.
        value: the plain value; or a tensor's numbers, row-major, that steer the network.
        typed: False if the file's own element type counts.
    """

    _ignored = frozenset({"typed"})
    shape: Shape
    dtype: str = "float32"
    name: _Text = ""
    value: tuple[bool | int | float | str, ...] | None = None
    typed: bool = True

    @property
    def is_plain(self) -> bool:
        return self.dtype in PLAIN_TYPES

    def __str__(self) -> str:
        shown = ",".join(str(item).lower() if isinstance(item, bool) else str(item) for item in self.value or ())
        if self.dtype in ("none", "flag"):
            text = shown or "none"
        elif self.is_plain:
            text = f"{shown}:{self.dtype}"
        else:
            text = f"{'x'.join(map(str, self.shape)) or 'scalar'}:{self.dtype}{'=' if shown else ''}{shown}"
        return f"{self.name}={text}" if self.name else text

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"shape": list(self.shape)}
        data |= {"dtype": self.dtype} if self.typed else {}
        data |= {"name": self.name} if self.name else {}
        return data | ({"value": list(self.value)} if self.value is not None else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TensorSpec:
        """Read the JSON form; raises KeyError, TypeError or ValueError."""
        typed = bool(data.get("dtype"))
        given = {"shape": data["shape"], "value": data.get("value"), "name": data.get("name") or "", "typed": typed}
        spec = convert({**given, "dtype": data["dtype"] if typed else "float32"}, cls)
        if not spec.is_plain:
            _check_type(spec.dtype, DTYPE_BYTES)
        return spec


class SizedTensor(Struct, frozen=True):
    """A tensor's sizes, outermost first, and element type."""

    shape: Shape
    dtype: str

    @property
    def nbytes(self) -> int:
        return tensor_bytes(numel(self.shape), self.dtype)


class ScaledTensor(SizedTensor, frozen=True):
    """A quantised tensor with scales and zero points outside its element type, of ``extra`` bytes, which are read with it."""

    extra: int = 0

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.extra


class KernelInvocation(Struct, frozen=True, dict=True):
    """One ATen call that launches device work.

    Attributes:
        kind: ATen's name without decoration (``conv2d``, ``batch_norm``, ``matmul``, ...).
        scope: path of the calling module (``layer1.0.conv1``).
        inputs: shapes of the activation tensors read; parameters (weights, statistics) are in ``params``.
        dtype: element type of its output.
        flops: a multiply-add counts as two.
        bytes: inputs + weights + outputs, each moved once.
    """

    kind: _Text
    scope: _Text
    inputs: tuple[Shape, ...]
    output: Shape
    dtype: str
    params: Mapping[_Text, ParamValue] = field(default_factory=dict)
    flops: _Count = 0
    bytes: _Count = 0

    @cached_property
    def signature(self) -> tuple[Any, ...]:
        """Key of its cost: two invocations with equal signatures are the same kernel."""
        return (self.kind, self.inputs, self.output, self.dtype, tuple(sorted(self.params.items(), key=lambda item: item[0])))

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = _plain(self)
        return plain

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> KernelInvocation:
        """Read the JSON form; raises ModelError."""
        try:
            launch = convert({"scope": "", **data, "flops": data["flops"], "bytes": data["bytes"]}, cls)
            _check_type(launch.dtype, {**DTYPE_BYTES, **PACKED_TYPES})
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(
                f"launch {data!r:.80}: expected kind, inputs, output, dtype, params, flops and bytes ({error!r})"
            ) from error
        return launch


class HostOp(Struct, frozen=True):
    """A call that costs host time and launches nothing (a view, an eval-mode dropout, shape arithmetic on tensors)."""

    name: _Text
    scope: _Text = ""


Call: TypeAlias = KernelInvocation | HostOp


#: Bits of :attr:`Network.views`: the last operator is a cast to the tensor's own type; one of them is a view.
ABSORBED, BROKEN = 1, 2


class Network(Struct, frozen=True):
    """A decomposed network: every call of its forward pass, in execution order.

    Attributes:
        boundary: end of an incomplete list.
        reads: writer of each input of each launch, also through views; -1 for inputs and weights. Like ``operators`` and
            ``views``, empty if unknown.
        operators: ATen operator of each launch, in its first spelling: in-place ones end with an underscore.
        views: passage of each input from its writer: 0 as written, 1 through casts to its own type alone, 2 through views, 3
            through views and such a cast at last.
        optimized: after the passes of PyTorch's JIT (:mod:`jetdvfs.kernels.optimizing`).
        runtime: its compiler (``TensorRT``); empty for PyTorch's dispatcher.
        unread: note on weights that no launch reads.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    calls: tuple[Call, ...]
    boundary: Boundary | None = None
    reads: tuple[tuple[int, ...], ...] = ()
    optimized: bool = False
    runtime: str = ""
    unread: str = ""
    operators: tuple[str, ...] = ()
    views: tuple[tuple[int, ...], ...] = ()

    @property
    def launches(self) -> tuple[KernelInvocation, ...]:
        return tuple(call for call in self.calls if isinstance(call, KernelInvocation))

    def __repr__(self) -> str:
        launches = self.launches
        gflops, mb = sum(launch.flops for launch in launches) / 1e9, sum(launch.bytes for launch in launches) / 1e6
        inputs = ", ".join(map(str, self.inputs)) or "unknown inputs"
        early = f", ends early at {self.boundary.operator}" if self.boundary else ""
        view = ", optimized" if self.optimized else ""
        return (
            f"<network {self.name} ({inputs}{view}): {len(launches)} launches of {len(self.kinds)} kinds, {gflops:.3g} GFLOP, "
            f"{mb:.3g} MB{early}>"
        )

    @property
    def label(self) -> str:
        return f"{self.name} (up to {self.boundary.operator})" if self.boundary else self.name

    @property
    def kinds(self) -> dict[str, int]:
        return dict(Counter(launch.kind for launch in self.launches).most_common())

    @property
    def digest(self) -> str:
        """Identity of exactly this work, regardless of labels: equal if calls cost the same and end alike."""
        work = [
            (*call.signature, call.flops, call.bytes) if isinstance(call, KernelInvocation) else call.name
            for call in self.calls
        ]
        if self.boundary:
            work.append(("boundary", *self.boundary.to_json().values()))
        return hashlib.sha256(json.dumps(work, default=list).encode()).hexdigest()[:24]

    def check_whole(self, accepted: Collection[str] = ()) -> None:
        """Raise EndsEarly for a list that ends early, unless at an accepted operator."""
        end = self.boundary
        if end is None or end.operator in accepted:
            return
        launches = self.launches
        listed = f"{len(launches)} launches of {sum(launch.flops for launch in launches):.4g} FLOPs"
        instead = f", not at {', '.join(accepted):.200}" if accepted else ""
        raise EndsEarly(
            f"{self.name:.80}: the list of launches ends at {end.operator}{instead}: {end.reason:.300} ({end.place:.300}); "
            f"it has {listed}, and later launches would not be counted; to take it as it is: --accept-boundary {end.operator} "
            "(in programs accept_boundary)"
        )

    def to_json(self, *, host_calls: bool = False) -> dict[str, Any]:
        """The documented JSON form; ``host_calls`` adds the host-only calls, with the launch each one precedes."""
        data: dict[str, Any] = {
            "name": self.name,
            "inputs": [spec.to_json() for spec in self.inputs],
            "launches": [launch.to_json() for launch in self.launches],
            "kinds": self.kinds,
            "optimized": self.optimized,
        }
        optional = ("boundary", "runtime", "unread", "reads", "operators", "views")
        data |= {name: _plain(value) for name in optional if (value := getattr(self, name))}
        if host_calls:
            before = 0
            data["host_calls"] = []
            for call in self.calls:
                if isinstance(call, HostOp):
                    data["host_calls"].append({"name": call.name, "scope": call.scope, "before_launch": before})
                else:
                    before += 1
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Network:
        """Read the JSON form, with or without host-only calls; raises ModelError."""
        try:
            launches = [KernelInvocation.from_json(item) for item in data["launches"]]
            hosts: dict[int, list[Call]] = {}
            for item in data.get("host_calls", ()):
                before = convert(item["before_launch"], _Count)
                hosts.setdefault(min(before, len(launches)), []).append(convert(item, HostOp))
            calls: list[Call] = []
            for position, launch in enumerate(launches):
                calls += [*hosts.get(position, ()), launch]
            calls += hosts.get(len(launches), [])
            return cls(
                name=convert(data.get("name", "network"), _Text),
                inputs=tuple(TensorSpec.from_json(item) for item in data.get("inputs", ())),
                calls=tuple(calls),
                boundary=convert(data.get("boundary"), Boundary | None),
                reads=_reads(data.get("reads", ()), launches),
                optimized=data.get("optimized") is True,
                runtime=convert(data.get("runtime", ""), _Text),
                unread=convert(data.get("unread", ""), _Text),
                operators=_operators(data.get("operators", ()), launches),
                views=_views(data.get("views", ()), launches),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"network: expected an object with a list of launches ({error!r})") from error


def element_bytes(dtype: str) -> float:
    """Bytes of one element; of a packed type, on average."""
    if dtype in PACKED_TYPES:
        elements, size = PACKED_TYPES[dtype]
        return size / elements
    return DTYPE_BYTES[dtype]


def tensor_bytes(elements: int, dtype: str) -> int:
    if dtype in PACKED_TYPES:
        block, size = PACKED_TYPES[dtype]
        return -(-elements // block) * size
    return elements * DTYPE_BYTES[dtype]


def written_type(launch: KernelInvocation) -> str:
    """Element type of a launch's output: the launch's own, unless that is its weights'."""
    return str(launch.params.get("output", launch.dtype))


def numel(shape: Sequence[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def _plain(value: Any) -> Any:
    return decode(encode(value))


def _reads(value: Any, launches: Sequence[KernelInvocation]) -> tuple[tuple[int, ...], ...]:
    """Writers of each launch's inputs; empty if they do not fit an edited list."""
    reads = convert(value, tuple[tuple[_Signed, ...], ...])
    fits = len(reads) == len(launches) and all(
        len(writers) == len(launch.inputs) and all(-1 <= writer < number for writer in writers)
        for number, (writers, launch) in enumerate(zip(reads, launches, strict=True))
    )
    return reads if fits else ()


def _operators(value: Any, launches: Sequence[KernelInvocation]) -> tuple[str, ...]:
    """Operator of each launch; empty if they do not fit an edited list."""
    operators = convert(value, tuple[_Text, ...])
    return operators if len(operators) == len(launches) else ()


def _views(value: Any, launches: Sequence[KernelInvocation]) -> tuple[tuple[int, ...], ...]:
    """Views of each launch's inputs; empty if they do not fit an edited list."""
    views = convert(value, tuple[tuple[_Count, ...], ...])
    fits = [len(inputs) for inputs in views] == [len(launch.inputs) for launch in launches]
    return views if fits else ()


def _check_type(dtype: str, valid: Collection[str]) -> None:
    if dtype not in valid:
        raise ValueError(f"dtype {dtype!r}; valid: {', '.join(DTYPE_BYTES)}")
