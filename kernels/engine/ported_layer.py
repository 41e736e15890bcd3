# SPDX-License-Identifier: Apache-2.0
"""A layer of an engine with its inputs' origin, as read by the rules of :mod:`.launches`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from ..errors import BudgetExceeded, ModelError
from ..kinds import flops
from ..network import KernelInvocation, ParamValue, Shape, numel, tensor_bytes
from . import names
from .layers import EngineLayer, EngineTensor

_MOST_FLOPS = 1 << 62
Params: TypeAlias = dict[str, ParamValue]


class OpaqueLayer(Exception):
    """The file does not describe a layer's work."""


class PortedLayer:
    def __init__(self, layer: EngineLayer, made: Collection[str]) -> None:
        self.layer = layer
        self.inputs = tuple(tensor for tensor in layer.inputs if tensor.name in made)
        self.constants = tuple(tensor for tensor in layer.inputs if tensor.name not in made)
        if not layer.outputs:
            raise ModelError("it has no outputs")
        self.output = layer.outputs[0]

    def shapes(self) -> tuple[Shape, ...]:
        return tuple(tensor.shape for tensor in self.inputs)

    def first(self) -> EngineTensor:
        if not self.inputs:
            raise ModelError("it reads nothing that a layer or the application writes")
        return self.inputs[0]

    def moved(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.layer.inputs, *self.layer.outputs))

    def launch(
        self,
        kind: str,
        params: Params,
        work: int,
        *,
        weight_bytes: int = 0,
        dtype: str = "",
        inputs: Sequence[Shape] | None = None,
    ) -> KernelInvocation:
        if work >= _MOST_FLOPS:
            raise BudgetExceeded(f"it would do {work:.3g} operations")
        shapes = self.shapes() if inputs is None else tuple(inputs)
        own, moved = dtype or self.output.dtype, self.moved() + weight_bytes
        return KernelInvocation(kind, self.layer.name, shapes, self.output.shape, own, params, work, moved)

    def plain(self, kind: str, params: Params | None = None) -> KernelInvocation:
        shapes = self.shapes() or (self.output.shape,)
        try:
            return self.launch(kind, params or {}, flops(kind, shapes, self.output.shape, params or {}))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ModelError(f"it does not make a {kind} ({error!r:.80})") from error


def with_weights(port: PortedLayer, kind: str, params: Params, work: int, prefix: str = "") -> KernelInvocation:
    stored = [port.layer.weights(prefix + member) for member in ("Weights", "Bias")]
    moved = sum(tensor_bytes(count, dtype) for count, dtype in stored if dtype)
    return port.launch(kind, params, work, weight_bytes=moved, dtype=stored[0][1])


def epilogue(layer: EngineLayer, activation: str, residual: bool) -> tuple[str, ...]:
    if activation not in names.NO_ACTIVATION:
        activation = names.ACTIVATIONS.get(activation, activation.lower())
    elif layer.number("HasReLU"):
        activation = "relu"
    else:
        activation = ""
    return (*(["add"] if residual else []), *([activation] if activation else []))


def operations(layer: EngineLayer, member: str) -> list[str]:
    said = layer.said.get(member, ())
    listed = [_operation(text) for text in said] if isinstance(said, list) else []
    return [names.OPERATIONS.get(name, name) for name in listed]


def _operation(text: object) -> str:
    """The name in ``const auto var0 = pwgen::iPlus(arg0, literal0);``."""
    call = str(text)[:200].partition("=")[2].partition("(")[0].strip().rpartition("::")[2]
    return (call[1:] if call[:1] == "i" and call[1:2].isupper() else call).lower() or "unnamed"


CONVOLUTIONS = frozenset(f"conv{transposed}{rank}d" for transposed in ("", "_transpose") for rank in (1, 2, 3))
_APART = ("max_pool", "avg_pool", "adaptive_", "upsample")


def own_kind(launch: KernelInvocation) -> str:
    return launch.kind.removesuffix("_relu").removesuffix("_add")


class CopyRewriter:
    """Rewrite an engine's launches with the necessary copies only.

    ``reads`` holds the writers of inputs, ``parallel`` the launches that are several convolutions of one tensor.
    """

    def __init__(
        self, launches: Sequence[KernelInvocation], reads: Sequence[tuple[int, ...]], parallel: Collection[int], *, half: bool
    ) -> None:
        self._before, self._read = launches, reads
        self._parallel, self._half = parallel, half
        self._readers: list[list[int]] = [[] for _ in launches]
        for number, writers in enumerate(reads):
            for writer in set(writers) - {-1}:
                self._readers[writer].append(number)
        self._place: dict[int, int] = {-1: -1}
        self._written: set[int] = set()
        self._handed_in = False
        self.launches: list[KernelInvocation] = []
        self.reads: list[tuple[int, ...]] = []
        for number in range(len(launches)):
            self._list(number)

    def _list(self, number: int) -> None:
        launch, writers = self._before[number], list(self._read[number])
        places = [self._place[writer] for writer in writers]
        if launch.kind.startswith("adaptive_avg_pool") and launch.inputs[0] == launch.output:
            self._place[number] = places[0]
        elif launch.kind == "cat":
            pairs = list(zip(launch.inputs, writers, strict=True))
            self._place[number] = max(self._joined(shape, writer, number) for shape, writer in pairs)
        else:
            if launch.inputs and self._is_copied(launch, writers[0]):
                places[0] = self._copy(launch.inputs[0], launch, places[0])
            self._place[number] = self._add(launch, places)

    def _joined(self, shape: Shape, writer: int, number: int) -> int:
        if self._writes_directly(shape, writer, number):
            self._written.add(writer)
            return self._place[writer]
        return self._copy(shape, self._before[number], self._place[writer])

    def _writes_directly(self, shape: Shape, writer: int, number: int) -> bool:
        if writer < 0 or writer in self._written or writer in self._parallel or self._before[writer].output != shape:
            return False
        launch = self._before[writer]
        ends = (*launch.kind.split("_"), *str(launch.params.get("epilogue", "")).split("+"))
        if launch.kind.startswith(("upsample", "cat")) or (own_kind(launch) in CONVOLUTIONS and "add" in ends):
            return False
        return not any(self._before[reader].kind.startswith(_APART) for reader in self._readers[writer] if reader != number)

    def _is_copied(self, launch: KernelInvocation, writer: int) -> bool:
        convolves = own_kind(launch) in CONVOLUTIONS
        if writer < 0:
            first = convolves and self._half and not self._handed_in
            self._handed_in |= first
            return first
        read, written = launch.inputs[0], self._before[writer].output
        if convolves:
            return self._half and numel(read) < numel(written) and writer not in self._parallel
        image = len(written) > 3 and numel(written[2:]) > 1 and len(read) == 2
        return self._half and launch.kind == "matmul" and image

    def _copy(self, shape: Shape, launch: KernelInvocation, writer: int) -> int:
        moved = 2 * tensor_bytes(numel(shape), launch.dtype)
        return self._add(KernelInvocation("clone", launch.scope, (shape,), shape, launch.dtype, {}, 0, moved), [writer])

    def _add(self, launch: KernelInvocation, writers: Sequence[int]) -> int:
        self.launches.append(launch)
        self.reads.append(tuple(writers))
        return len(self.launches) - 1
