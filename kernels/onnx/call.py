# SPDX-License-Identifier: Apache-2.0
"""One operator call of an ONNX graph on its way to ATen's rules, and the table of the operators that are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ShapeError
from ..operators.applying import apply_rule
from ..operators.layout import show
from ..operators.recorder import DataDependent, Recorder
from ..operators.values import Tensor
from .known import Known
from .model import Node


class NodeCall:
    """A node with the values of its inputs: tensors, arrays the host knows, sequences, or ``None`` where one is left out.

    Attributes:
        version: of the operator set it is taken from.
    """

    __slots__ = ("inputs", "node", "recorder", "version")

    def __init__(self, recorder: Recorder, node: Node, inputs: Sequence[Any], version: int) -> None:
        self.recorder = recorder
        self.node = node
        self.inputs = inputs
        self.version = version

    def attribute(self, name: str, default: Any = None) -> Any:
        value = self.node.attributes.get(name)
        return default if value is None else value

    def given(self, place: int) -> bool:
        """Whether an input was given that may be left out."""
        return place < len(self.inputs) and self.inputs[place] is not None

    def value(self, place: int) -> Any:
        if not self.given(place):
            raise ShapeError(f"operator {self.node.key} needs an input {place}")
        return self.inputs[place]

    def tensor(self, place: int) -> Tensor:
        """An input as a tensor on the device."""
        return on_device(self.recorder, self.value(place))

    def optional(self, place: int) -> Tensor | None:
        return self.tensor(place) if self.given(place) else None

    def operand(self, place: int) -> Any:
        """An input of a pointwise operator: a plain number where the file has a constant of one element."""
        value = self.value(place)
        if isinstance(value, Known) and len(value.items) == 1 and value.rank < 2:
            return value.items[0]
        return on_device(self.recorder, value)

    def numbers(self, place: int) -> list[Any]:
        """The numbers in an input, row-major.

        Raises:
            DataDependent: they are known when the network runs, not before.
        """
        value = self.value(place)
        if isinstance(value, Known):
            return list(value.items)
        if isinstance(value, Tensor) and value.load is not None:
            return value.load()
        raise DataDependent("the numbers in a tensor steer it")

    def integers(self, name: str, place: int, default: Any = None) -> list[int] | None:
        """A list of integers that newer operator sets take as an input and older ones as an attribute."""
        if self.given(place):
            return [int(item) for item in self.numbers(place)]
        found = self.attribute(name, default)
        return None if found is None else [found] if isinstance(found, int) else list(found)

    def aten(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Apply the rule of an ATen operator."""
        return apply_rule(self.recorder, name, list(args), kwargs)


def on_device(recorder: Recorder, value: Any) -> Tensor:
    """A value as a tensor; numbers the host knows are constants of the network."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Known):
        number = value.items[0] if not value.shape else None
        return recorder.tensor(value.shape, value.dtype, parameter=True, value=number)
    raise ShapeError(f"a tensor was expected, not a {type(value).__name__}")


Rule = Callable[[NodeCall], Any]
RULES: dict[str, Rule] = {}


def onnx_operator(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of an operator; those outside ONNX's own set are written ``domain::name``."""

    def register(rule: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"operator {name} has two rules")
            RULES[name] = rule
        return rule

    return register


def paired(pads: Sequence[int]) -> list[tuple[int, int]]:
    """ONNX lists the padding at the start of each dimension, then that at each end."""
    half = len(pads) // 2
    if len(pads) != 2 * half:
        raise ShapeError(f"padding {show(list(pads)[:16])}: expected a start and an end for each dimension")
    return list(zip(pads[:half], pads[half:], strict=True))


def after_padding(call: NodeCall, x: Tensor, pads: Sequence[int], rank: int) -> tuple[Tensor, list[int]]:
    """The input of a window operator and its padding; what differs between the two ends is padded before, as PyTorch does."""
    pairs = paired(pads) if pads else [(0, 0)] * rank
    if len(pairs) != rank:
        raise ShapeError(f"operator {call.node.key} over {rank} dimensions with padding for {len(pairs)}")
    if all(start == end for start, end in pairs):
        return x, [start for start, _ in pairs]
    flat = [size for start, end in reversed(pairs) for size in (start, end)]
    return call.aten("constant_pad_nd", x, flat, 0), [0] * rank


def automatic(call: NodeCall, x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """The padding that ``auto_pad`` stands for, or that the file states."""
    how = call.attribute("auto_pad", "NOTSET")
    rank = len(kernel)
    if how == "VALID":
        return [0] * (2 * rank)
    if how not in ("SAME_UPPER", "SAME_LOWER"):
        return list(call.attribute("pads", [0] * (2 * rank)))
    starts, ends = [], []
    for size, width, step, gap in zip(x.shape[-rank:], kernel, strides, dilations, strict=True):
        if step < 1:
            raise ShapeError(f"operator {call.node.key} with stride {step}")
        total = max((-(-size // step) - 1) * step + gap * (width - 1) + 1 - size, 0)
        small, large = total // 2, total - total // 2
        starts.append(small if how == "SAME_UPPER" else large)
        ends.append(large if how == "SAME_UPPER" else small)
    return starts + ends
