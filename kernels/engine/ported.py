# SPDX-License-Identifier: Apache-2.0
"""A layer of an engine with what other layers make of it, as the rules of :mod:`.launches` read it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from ..errors import BudgetExceeded, ModelError
from ..kinds import flops
from ..network import KernelInvocation, ParamValue, Shape, tensor_bytes
from . import names
from .layers import EngineTensor, Layer

_MOST_FLOPS = 1 << 62
Params: TypeAlias = dict[str, ParamValue]


class Opaque(Exception):
    """The file does not say what a layer does; its text says why."""


class Ported:
    """A layer, and which of its inputs other layers make; the rest are weights.

    Attributes:
        layer: the layer.
        inputs: what other layers or the application write.
        constants: what is part of the engine.
        output: its first output.
    """

    def __init__(self, layer: Layer, made: Collection[str]) -> None:
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
        """A launch of a kind that counts its operations from shapes."""
        shapes = self.shapes() or (self.output.shape,)
        try:
            return self.launch(kind, params or {}, flops(kind, shapes, self.output.shape, params or {}))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ModelError(f"it does not make a {kind} ({error!r:.80})") from error


def with_weights(port: Ported, kind: str, params: Params, work: int, prefix: str = "") -> KernelInvocation:
    """A launch that also reads the weights and the bias that its layer says it has."""
    stored = [port.layer.weights(prefix + member) for member in ("Weights", "Bias")]
    moved = sum(tensor_bytes(count, dtype) for count, dtype in stored if dtype)
    return port.launch(kind, params, work, weight_bytes=moved, dtype=stored[0][1])


def epilogue(layer: Layer, activation: str, residual: bool) -> tuple[str, ...]:
    """The kinds that a product's kernel does on its way out, in order."""
    if activation not in names.NO_ACTIVATION:
        activation = names.ACTIVATIONS.get(activation, activation.lower())
    elif layer.number("HasReLU"):
        activation = "relu"
    else:
        activation = ""
    return (*(["add"] if residual else []), *([activation] if activation else []))


def operations(layer: Layer, member: str) -> list[str]:
    """The kinds of the pointwise operations that a member lists."""
    said = layer.said.get(member, ())
    listed = [_operation(text) for text in said] if isinstance(said, list) else []
    return [names.OPERATIONS.get(name, name) for name in listed]


def _operation(text: object) -> str:
    """The name in ``const auto var0 = pwgen::iPlus(arg0, literal0);``."""
    call = str(text)[:200].partition("=")[2].partition("(")[0].strip().rpartition("::")[2]
    return (call[1:] if call[:1] == "i" and call[1:2].isupper() else call).lower() or "unnamed"
