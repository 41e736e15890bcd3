# SPDX-License-Identifier: Apache-2.0
"""Values of a run that follows only shapes and element types.

Tensors are shape, strides and element type; weights are known by their headers; modules are bags of attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field

from ..errors import ShapeError
from ..network import ABSORBED, BROKEN, Shape, numel, tensor_bytes
from ..values import PartlyCompared

_DEEPEST = 8

#: TorchScript's numbers of element types (c10/core/ScalarType.h).
SCALAR_TYPES: dict[int, str] = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    9: "complex64",
    10: "complex128",
    11: "bool",
    12: "qint8",
    13: "quint8",
    14: "qint32",
    15: "bfloat16",
}
#: Element types whose numbers are read, as ``struct`` has them.
READABLE = {"int64": "q", "int32": "i", "int16": "h", "int8": "b", "uint8": "B", "bool": "?"}
READABLE |= {"float32": "f", "float64": "d", "float16": "e"}
QUANTIZED = frozenset({"qint8", "quint8", "qint32"})
SCALAR_CODES: dict[str, int] = {name: code for code, name in SCALAR_TYPES.items()}

Number = bool | int | float
#: The numbers in a tensor, row-major.
HostValue = tuple[Number, ...]


def contiguous_strides(shape: Sequence[int]) -> Shape:
    """Row-major strides in elements, as in a new PyTorch tensor."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


class Storage(Struct, eq=False):
    """Memory of a tensor and all its views.

    Attributes:
        writer: number of the launch that wrote it last; -1 if none did.
        outside: True for an input or a weight.
        overwritten: it was written again after it was made.
        packed: element type of a weight stored in another type than it is computed with; else empty.
        element_bytes: bytes stored per element, including its share of the scales; 0 for the type's own.
    """

    outside: bool = False
    writer: int = -1
    overwritten: bool = False
    read: bool = False
    packed: str = ""
    element_bytes: float = 0.0


class Tensor:
    """A tensor without its data.

    Attributes:
        dtype: element type by PyTorch's name.
        parameter: a weight or a constant of the model, or a view of one.
        requires_grad: saved as trainable, or a view of such a one; ATen folds products by that, even in inference.
        value: its few numbers, row-major, if the host knows them (shape arithmetic).
        load: reads its few numbers from the file.
        same: an equal earlier tensor, if known.
        constant: it is in the code, or made of constants alone.
        views: operators without a launch since its memory was written (:attr:`~jetdvfs.kernels.network.Network.views`).
    """

    __slots__ = (
        "_strides", "constant", "dtype", "load", "memory", "parameter", "requires_grad", "same", "shape", "value", "views",
    )  # fmt: skip

    def __init__(
        self,
        shape: Shape,
        dtype: str = "float32",
        strides: Shape | None = None,
        *,
        parameter: bool = False,
        requires_grad: bool = False,
        value: HostValue | None = None,
        load: Callable[[], Sequence[Number]] | None = None,
        memory: Storage | None = None,
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self._strides = strides
        self.parameter = parameter
        self.requires_grad = requires_grad
        self.value = value
        self.load = load
        self.memory = Storage(parameter) if memory is None else memory
        self.same: Tensor | None = None
        self.constant = False
        self.views = 0

    def renamed(self) -> Tensor:
        """Same memory, new tensor: a variable's value after a branch or a loop."""
        made = Tensor(
            self.shape,
            self.dtype,
            self._strides,
            parameter=self.parameter,
            requires_grad=self.requires_grad,
            value=self.value,
            load=self.load,
            memory=self.memory,
        )
        made.views = self.views
        return made

    def viewed(self, first: Tensor, absorbed: bool) -> Tensor:
        """This result of an operator that launched nothing on a tensor; if it is that tensor, another name for it."""
        made = self
        if made is first:
            made = self.renamed()
            made.same, made.constant = self.same or self, self.constant
        made.views = (first.views & BROKEN) | ABSORBED if absorbed else BROKEN
        return made

    @property
    def strides(self) -> Shape:
        if self._strides is None:
            self._strides = contiguous_strides(self.shape)
        return self._strides

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return numel(self.shape)

    @property
    def nbytes(self) -> int:
        stored = self.memory.element_bytes
        return math.ceil(numel(self.shape) * stored) if stored else tensor_bytes(numel(self.shape), self.dtype)

    @property
    def is_quantized(self) -> bool:
        return self.dtype in QUANTIZED

    @property
    def is_floating(self) -> bool:
        return self.dtype in ("float32", "float16", "bfloat16", "float64")

    @property
    def number(self) -> Number | None:
        """Its one number, if it has no dimensions and the host holds it."""
        return self.value[0] if self.value is not None and not self.shape else None

    def is_contiguous(self) -> bool:
        if self._strides is None:
            return True
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self._strides), strict=True):
            if size != 1:
                if stride != expected:
                    return 0 in self.shape
                expected *= size
        return True

    def has_default_strides(self) -> bool:
        """True for a new tensor's strides; unlike :meth:`is_contiguous`, dimensions of size 1 count."""
        return self._strides is None or self._strides == contiguous_strides(self.shape)

    def is_channels_last(self) -> bool:
        """True if PyTorch would call this channels-last (c10/core/MemoryFormat.h); ambiguous shapes are not."""
        if self._strides is None or self.rank not in (4, 5):
            return False
        strides, shape = self._strides, self.shape
        least = 0
        if strides[1] == 0:
            return False
        for dim in (1, *range(self.rank - 1, 1, -1), 0):
            if shape[dim] == 0 or strides[dim] < least or (dim == 0 and least == strides[1]):
                return False
            least = strides[dim] * max(shape[dim], 1)
        return True

    def __repr__(self) -> str:
        return f"Tensor({'x'.join(map(str, self.shape))}:{self.dtype})"


def tensors_in(value: Any, depth: int = 0) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)) or depth >= _DEEPEST:
        return []
    found = []
    for item in value:
        if isinstance(item, Tensor):
            found.append(item)
        elif isinstance(item, (list, tuple, dict)):
            found += tensors_in(item, depth + 1)
    return found


class ScriptObject:
    __slots__ = ("attributes", "path", "state", "type_name")

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name
        self.attributes: dict[str, Any] = {}
        self.path: str | None = None
        self.state: Any = None

    def __repr__(self) -> str:
        return f"{self.type_name.rsplit('.', 1)[-1]}({self.path or ''})"


class NamedTupleValue(tuple[Any, ...]):
    fields: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[str], items: Sequence[Any]) -> NamedTupleValue:
        record = cls(items)
        record.fields = tuple(names)
        return record


class NamedInputs(dict[Any, Any]):
    """Dictionary of unnamed inputs: a looked-up name takes the first free one."""

    def __missing__(self, key: Any) -> Any:
        if not self.claim(key):
            given = ", ".join(map(str, self)) or "none"
            raise ShapeError(f"no input named {key!r} was given, but {given}; give it by its name, like {key}=1x3x224x224")
        return self[key]

    def claim(self, key: Any) -> bool:
        """Give an input this name; return True if one was left."""
        place = next((name for name in self if str(name).isdecimal()), None)
        if place is None or not isinstance(key, str):
            return False
        named = {key if name == place else name: value for name, value in self.items()}
        self.clear()
        self.update(named)
        return True


class EnumValue(Struct, frozen=True):
    type_name: str
    value: bool | int | float | str


class TensorDevice(PartlyCompared, frozen=True):
    """Device; all tensors are assumed on the accelerator."""

    _ignored = frozenset({"index"})
    type: str
    index: int | None = None


ACCELERATOR = TensorDevice("cuda", 0)


_FOLLOWED = frozenset(("append", "insert", "_set_item"))
_OTHERS = frozenset(("extend", "pop", "popitem", "clear", "reverse", "__delitem__", "Delete", "add_", "update", "setdefault"))


class _ContainerReference(Struct):
    """Container, held so that no other takes its identity."""

    container: Any
    read: bool = False
    changed: bool = False
    closed: bool = False
    writers: set[int] = field(default_factory=set)
    memory: list[Storage] = field(default_factory=list)


class Containers:
    """Changes, reads and contents of containers."""

    def __init__(self) -> None:
        self._held: dict[int, _ContainerReference] = {}

    def given(self, name: str, args: Sequence[Any], straight: bool) -> None:
        """Record an operator's arguments before its call; ``straight`` if outside blocks."""
        for place, value in enumerate(args):
            if type(value) is not list and type(value) is not dict:
                continue
            changes = place == 0 and (name in _FOLLOWED or name in _OTHERS)
            if not changes and not tensors_in(value):
                continue
            held = self._held.setdefault(id(value), _ContainerReference(value))
            if changes:
                held.memory += [tensor.memory for tensor in tensors_in(args)]
                held.closed |= held.read or not straight or name in _OTHERS or type(value) is dict
                held.changed = True
                held.writers |= {tensor.memory.writer for tensor in tensors_in(args)}
            held.read |= not changes or name in ("pop", "popitem")
            held.closed |= type(value) is dict and name != "__getitem__"

    def has_changed(self, container: Any) -> bool:
        return id(container) in self._held and self._held[id(container)].changed

    def mixed(self) -> list[Storage]:
        """Memory of tensors that are or were in changing containers."""
        return [memory for held in self._held.values() for memory in held.memory]

    def needed(self) -> set[int]:
        """Launches whose results were put into containers that changed out of the JIT's sight and were read."""
        writers: set[int] = set()
        for held in self._held.values():
            if held.closed and held.read:
                writers |= held.writers | {tensor.memory.writer for tensor in tensors_in(held.container)}
        return writers - {-1}
