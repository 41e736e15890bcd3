# SPDX-License-Identifier: Apache-2.0
"""Operator call of an ONNX graph, and the table of known operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ..errors import ShapeError
from ..operators.host.arrays import FEW, array
from ..operators.layout import show
from ..operators.recorder import DataDependent, Recorder
from ..operators.registry import HOST_RULES, RULE_ERRORS, adding, apply_rule, ill_typed
from ..operators.values import Number, Tensor
from .model import OnnxNode


class NodeCall:
    """Node with the values of its inputs: tensors, sequences, or ``None`` if omitted.

    Sizes that PyTorch computes with in Python are tensors held by the host.

    Attributes:
        version: of its operator set.
        aside: makes values within the nodes of a joined call, by name, apart from the network's launches.
    """

    __slots__ = ("aside", "inputs", "node", "recorder", "version")

    def __init__(self, recorder: Recorder, node: OnnxNode, inputs: Sequence[Any], version: int) -> None:
        self.recorder = recorder
        self.node = node
        self.inputs = inputs
        self.version = version
        self.aside: Callable[[Sequence[str]], list[Any]] = lambda names: []

    def attribute(self, name: str, default: Any = None) -> Any:
        value = self.node.attributes.get(name)
        return default if value is None else value

    def given(self, place: int) -> bool:
        return place < len(self.inputs) and self.inputs[place] is not None

    def value(self, place: int) -> Any:
        if not self.given(place):
            raise ShapeError(f"operator {self.node.key} needs an input {place}")
        return self.inputs[place]

    def tensor(self, place: int) -> Tensor:
        value = self.value(place)
        if not isinstance(value, Tensor):
            raise ShapeError(f"a tensor was expected, not a {type(value).__name__}")
        return value

    def optional(self, place: int) -> Tensor | None:
        return self.tensor(place) if self.given(place) else None

    def operand(self, place: int) -> Any:
        """Input of a pointwise operator: a plain number for a constant of one element."""
        x = self.tensor(place)
        return x.value[0] if x.value is not None and len(x.value) == 1 and x.rank < 2 else x

    def numbers(self, place: int) -> list[Any]:
        """Numbers in an input, row-major. Raises DataDependent."""
        return list(numbers_in(self.tensor(place)))

    def integers(self, name: str, place: int, default: Any = None) -> list[int] | None:
        """Integers of an input (newer operator sets) or an attribute (older ones)."""
        if self.given(place):
            return [int(item) for item in self.numbers(place)]
        found = self.attribute(name, default)
        return None if found is None else [found] if isinstance(found, int) else list(found)

    def is_known(self, *places: int) -> bool:
        """True if the numbers in these inputs are known without the device."""
        tensors = [self.tensor(place) for place in places]
        return all(x.value is not None or (_is_ready(x) and x.load is not None) for x in tensors)

    def aten(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Apply an ATen operator's rule; on tensors held by the host, its arithmetic, which launches nothing.

        Numbers that the device computes from known numbers alone are also known.
        """
        host = HOST_RULES.get(name)
        operands = [*args, *kwargs.values()]
        tensors = [x for value in operands for x in (value if isinstance(value, (list, tuple)) else (value,)) if _is_tensor(x)]
        if host is None or any(x.value is None and x.load is None for x in tensors) or not tensors:
            return apply_rule(self.recorder, name, list(args), kwargs)

        @cache
        def compute() -> Any:
            self.recorder.account.step()
            try:
                return host(*map(_held, args), **{key: _held(value) for key, value in kwargs.items()})
            except RULE_ERRORS as error:
                raise ill_typed(name, args, error) from error

        if any(x.value is not None for x in tensors) and all(map(_is_ready, tensors)):
            made = compute()
            if made is not None:
                return made
        made = apply_rule(self.recorder, name, list(args), kwargs)
        for place, x in enumerate(made if isinstance(made, (tuple, list)) else (made,)):
            if isinstance(x, Tensor) and x.load is None and x.value is None and x.numel <= FEW:
                x.load = _part(compute, place if isinstance(made, (tuple, list)) else None)
        return made


def _is_ready(x: Tensor) -> bool:
    return x.value is not None or (x.parameter and x.dtype.startswith(("int", "uint", "bool")))


def _part(compute: Callable[[], Any], place: int | None) -> Callable[[], Sequence[Number]]:
    def load() -> Sequence[Number]:
        made = compute()
        return numbers_in(made if place is None or made is None else made[place])

    return load


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _held(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_held(item) for item in value] if any(map(_is_tensor, value)) else value
    if not isinstance(value, Tensor) or value.value is not None:
        return value
    return array(value.shape, value.dtype, numbers_in(value), parameter=value.parameter)


def numbers_in(x: Any) -> Sequence[Number]:
    """Numbers in a tensor, row-major. Raises DataDependent if known only at run time."""
    if isinstance(x, Tensor) and x.value is not None:
        return x.value
    if isinstance(x, Tensor) and x.load is not None:
        return x.load()
    raise DataDependent("the numbers in a tensor steer it")


def held(shape: Sequence[int], dtype: str, items: Sequence[Number]) -> Tensor:
    """Array held by the host; a constant of the network on the device."""
    return array(shape, dtype, items, parameter=True)


Rule = Callable[[NodeCall], Any]
RULES: dict[str, Rule] = {}


def onnx_operator(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of an operator; those outside ONNX's own set are written ``domain::name``.

    The rule of a joined call returns ``NotImplemented`` if its inputs do not fit.
    """
    return adding(RULES, names)


def as_aten(name: str, *spellings: str, operands: int = 1, **attributes: Any) -> Rule:
    """Register operators that are an ATen operator of their first inputs, then of attributes with these defaults."""

    @onnx_operator(*spellings)
    def rule(call: NodeCall) -> Any:
        return call.aten(name, *map(call.tensor, range(operands)), *(call.attribute(*item) for item in attributes.items()))

    return rule


def data_dependent(why: str, *spellings: str) -> None:
    @onnx_operator(*spellings)
    def rule(call: NodeCall) -> Any:
        raise DataDependent(why)


def paired(pads: Sequence[int]) -> list[tuple[int, int]]:
    """(start, end) padding of each dimension; ONNX lists starts, then ends."""
    half = len(pads) // 2
    if len(pads) != 2 * half:
        raise ShapeError(f"padding {show(list(pads)[:16])}: expected a start and an end for each dimension")
    return list(zip(pads[:half], pads[half:], strict=True))


def after_padding(call: NodeCall, x: Tensor, pads: Sequence[int], rank: int) -> tuple[Tensor, list[int]]:
    """Input of a window operator and its symmetric padding; the rest is padded before."""
    pairs = paired(pads) if pads else [(0, 0)] * rank
    if len(pairs) != rank:
        raise ShapeError(f"operator {call.node.key} over {rank} dimensions with padding for {len(pairs)}")
    if all(start == end for start, end in pairs):
        return x, [start for start, _ in pairs]
    flat = [size for start, end in reversed(pairs) for size in (start, end)]
    with call.recorder.as_floats(dtype=""):  # of 8 bits, it stays so
        return call.aten("constant_pad_nd", x, flat, 0), [0] * rank


def automatic(call: NodeCall, x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Padding by ``auto_pad``, or by the file."""
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
