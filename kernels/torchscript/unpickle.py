# SPDX-License-Identifier: Apache-2.0
"""Unpickler of a TorchScript file for tensors' headers, module trees and plain containers.

It imports and calls nothing that a pickle names. It knows the opcodes that PyTorch's pickler writes
(torch/csrc/jit/serialization/pickler.cpp) and refuses every other one, and every name that is not listed below.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from ..budget import Account, Budget
from ..errors import BudgetExceeded, ModelError
from ..network import DTYPE_BYTES, numel
from ..operators.values import READABLE, EnumValue, ScriptObject, Tensor, TensorDevice

#: Storage classes a tensor may refer to, and the element types they hold.
STORAGES = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "QInt8Storage": "qint8",
    "QUInt8Storage": "quint8",
    "QInt32Storage": "qint32",
}

_LISTS = ("build_intlist", "build_tensorlist", "build_doublelist", "build_boollist")


class _Name(Struct, frozen=True):
    name: str


class _Storage(Struct, frozen=True):
    dtype: str
    key: str


_MARK = object()
"""Start of a group of items on the stack."""
#: How many opcodes pass between two looks at the clock.
_STRIDE = 4096
Loader = Callable[[str, str, int, int], list[bool | int | float]]


def unpickle(data: bytes, where: str, account: Account, load: Loader) -> Any:
    """Read one pickle.

    Args:
        load: reads ``count`` numbers of a storage ``(key, dtype, offset, count)`` when the interpreter needs a value.

    Raises:
        ModelError: it is damaged, or has a forbidden name.
        BudgetExceeded: it has too many opcodes.
    """
    reader = _Unpickler(data, where, account, load)
    try:
        return reader.read()
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ModelError(f"{where}: pickle is damaged near byte {reader.position} ({error})") from error
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise ModelError(f"{where}: pickle holds a value of the wrong type near byte {reader.position} ({error})") from error


class _Unpickler:
    def __init__(self, data: bytes, where: str, account: Account, load: Loader) -> None:
        self.data = data
        self.where = where
        self.position = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self._account = account
        self._budget = account.budget
        self._load = load

    def read(self) -> Any:
        handlers = _OPCODES
        data = self.data
        for step in range(self._budget.pickle_steps):
            if not step % _STRIDE:
                self._account.check()
            opcode = data[self.position]
            self.position += 1
            if opcode == 0x2E:  # STOP
                return self.stack.pop()
            handler = handlers.get(opcode)
            if handler is None:
                raise ModelError(
                    f"{self.where}: pickle opcode {opcode:#04x} at byte {self.position - 1} is not one that PyTorch writes"
                )
            handler(self)
        raise BudgetExceeded(f"{self.where}: pickle has more than {self._budget.pickle_steps} opcodes")

    # Reading

    def take(self, count: int) -> bytes:
        start = self.position
        self.position += count
        piece = self.data[start : self.position]
        if count < 0 or len(piece) != count:
            raise IndexError("it ends early")
        return piece

    def byte(self) -> int:
        value = self.data[self.position]
        self.position += 1
        return value

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def line(self) -> str:
        end = self.data.index(b"\n", self.position, self.position + 1024)
        text = self.data[self.position : end].decode()
        self.position = end + 1
        return text

    def pop_group(self) -> list[Any]:
        stack = self.stack
        at = len(stack) - 1
        while stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise IndexError("a group of items has no start")
        group = stack[at + 1 :]
        del stack[at:]
        return group

    # Names, and their permitted uses

    def find(self, module: str, name: str) -> _Name:
        full = f"{module}.{name}"
        known = full in _REDUCERS or full in _QSCHEMES or (module == "torch" and name in STORAGES)
        if not known and not (module == "__torch__" or module.startswith("__torch__.")):
            raise ModelError(f"{self.where}: pickle refers to {full!r:.120}, which a TorchScript file has no reason to name")
        return _Name(full)

    def reduce(self) -> None:
        arguments = self.stack.pop()
        callee = self.stack.pop()
        if isinstance(callee, _Name) and callee.name.startswith("__torch__.") and isinstance(arguments, (int, float, str)):
            self.stack.append(EnumValue(callee.name, arguments))
            return
        if not isinstance(callee, _Name) or callee.name not in _REDUCERS or not isinstance(arguments, tuple):
            raise ModelError(f"{self.where}: pickle calls something that is not a tensor or list constructor")
        self.stack.append(_REDUCERS[callee.name](self, *arguments))

    def new_object(self) -> None:
        self.stack.pop()
        name = self.stack.pop()
        if not isinstance(name, _Name) or not name.name.startswith("__torch__."):
            raise ModelError(f"{self.where}: pickle builds an object of something that is not a class of the model")
        self.stack.append(ScriptObject(name.name))

    def build(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if not isinstance(target, ScriptObject):
            raise ModelError(f"{self.where}: pickle sets the state of something that is not an object of the model")
        if isinstance(state, dict) and all(isinstance(key, str) for key in state):
            target.attributes = state
        target.state = state

    def persistent(self) -> None:
        identity = self.stack.pop()
        kind, storage, key, _, _ = identity
        if kind != "storage" or not isinstance(storage, _Name) or not isinstance(key, str):
            raise ModelError(f"{self.where}: pickle refers to something outside itself that is not a tensor storage")
        dtype = STORAGES[storage.name.removeprefix("torch.")]
        self.stack.append(_Storage(dtype, key))

    def tensor(self, storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any = False, *_: Any) -> Tensor:
        if not isinstance(storage, _Storage) or not isinstance(shape, tuple) or not isinstance(strides, tuple):
            raise TypeError("a tensor needs a storage, a shape and strides")
        sizes = _sizes(shape, self._budget)
        steps = _sizes(strides, self._budget, strides=True)
        if len(sizes) != len(steps) or type(offset) is not int:
            raise TypeError("a tensor's shape and strides differ in length")
        count = numel(sizes)
        key, dtype = storage.key, storage.dtype
        load = (lambda: self._load(key, dtype, offset, count)) if count <= 64 else None
        return Tensor(sizes, dtype, steps, parameter=True, requires_grad=requires_grad is True, load=load)

    def quantized_tensor(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Tensor:
        return self.tensor(storage, offset, shape, strides)

    def plain_list(self, items: Any) -> list[Any]:
        if not isinstance(items, list):
            raise TypeError("a typed list is made from a list")
        return items

    def tagged(self, value: Any, _: Any) -> Any:
        return value

    def ordered_dict(self, *items: Any) -> dict[Any, Any]:
        if items:
            raise TypeError("an ordered dictionary is made empty")
        return {}

    def device(self, kind: Any, index: Any = None) -> TensorDevice:
        return TensorDevice(str(kind)[:32], index if isinstance(index, int) else None)

    def parameter(self, tensor: Any, *_: Any) -> Any:
        return tensor

    # Containers

    def append(self) -> None:
        item = self.stack.pop()
        self._list().append(item)

    def appends(self) -> None:
        group = self.pop_group()
        self._list().extend(group)

    def _list(self) -> list[Any]:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise TypeError("items are appended to something that is not a list")
        return target

    def set_item(self) -> None:
        value = self.stack.pop()
        key = self.stack.pop()
        self._set(key, value)

    def set_items(self) -> None:
        group = self.pop_group()
        for key, value in zip(group[::2], group[1::2], strict=True):
            self._set(key, value)

    def _set(self, key: Any, value: Any) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise TypeError("items are set in something that is not a dictionary")
        if not isinstance(key, (str, int, float)):
            raise TypeError("a key is a string or a number")
        target[key] = value

    def put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def fold(self, count: int) -> None:
        if count > len(self.stack):
            raise IndexError("a tuple has fewer items than it says")
        items = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self.stack.append(items)

    def long(self) -> None:
        size = self.byte()
        if size > 8:
            raise ModelError(f"{self.where}: pickle holds an integer of more than 64 bits")
        self.stack.append(int.from_bytes(self.take(size), "little", signed=True))

    def global_from_stack(self) -> None:
        name = self.stack.pop()
        module = self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise TypeError("a global is named by two strings")
        self.stack.append(self.find(module, name))


def _sizes(values: Sequence[Any], budget: Budget, *, strides: bool = False) -> tuple[int, ...]:
    if len(values) > budget.rank:
        raise BudgetExceeded(f"a tensor of the model has {len(values)} dimensions; at most {budget.rank} are read")
    product = 1
    for value in values:
        if type(value) is not int or not 0 <= value <= budget.elements:
            raise TypeError("a tensor's sizes are non-negative integers of reasonable size")
        product *= 1 if strides else value
    if product > budget.elements:
        raise BudgetExceeded(f"a tensor of the model has {product} elements; at most {budget.elements} are read")
    return tuple(values)


def decode(data: bytes, dtype: str, big_endian: bool) -> list[bool | int | float]:
    if dtype not in READABLE:
        raise ModelError(f"the model depends on the value of a {dtype} constant, and those are not read")
    return list(struct.unpack(f"{'>' if big_endian else '<'}{len(data) // DTYPE_BYTES[dtype]}{READABLE[dtype]}", data))


Handler = Callable[[_Unpickler], None]

_QSCHEMES = frozenset({"torch.per_tensor_affine", "torch.per_channel_affine", "torch.per_channel_affine_float_qparams"})

_REDUCERS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor_v2": _Unpickler.tensor,
    "torch._utils._rebuild_tensor": _Unpickler.tensor,
    "torch._utils._rebuild_qtensor": _Unpickler.quantized_tensor,
    "torch._utils._rebuild_parameter": _Unpickler.parameter,
    "torch.jit._pickle.restore_type_tag": _Unpickler.tagged,
    "torch.device": _Unpickler.device,
    "collections.OrderedDict": _Unpickler.ordered_dict,
    **{f"torch.jit._pickle.{name}": _Unpickler.plain_list for name in _LISTS},
}


def _push(value: Callable[[], Any]) -> Handler:
    return lambda reader: reader.stack.append(value())


_OPCODES: dict[int, Handler] = {
    ord("("): lambda r: r.stack.append(_MARK),
    ord("0"): lambda r: (r.stack.pop(), None)[1],
    ord("1"): lambda r: (r.pop_group(), None)[1],
    ord("2"): lambda r: r.stack.append(r.stack[-1]),
    ord("N"): _push(lambda: None),
    0x88: _push(lambda: True),
    0x89: _push(lambda: False),
    ord("J"): lambda r: r.stack.append(int.from_bytes(r.take(4), "little", signed=True)),
    ord("K"): lambda r: r.stack.append(r.byte()),
    ord("M"): lambda r: r.stack.append(r.number(2)),
    0x8A: _Unpickler.long,
    ord("G"): lambda r: r.stack.append(struct.unpack(">d", r.take(8))[0]),
    ord("X"): lambda r: r.stack.append(r.take(r.number(4)).decode("utf-8", "surrogatepass")),
    0x8C: lambda r: r.stack.append(r.take(r.byte()).decode("utf-8", "surrogatepass")),
    ord("]"): _push(list),
    ord("}"): _push(dict),
    ord(")"): _push(tuple),
    0x85: lambda r: r.fold(1),
    0x86: lambda r: r.fold(2),
    0x87: lambda r: r.fold(3),
    ord("t"): lambda r: r.stack.append(tuple(r.pop_group())),
    ord("a"): _Unpickler.append,
    ord("e"): _Unpickler.appends,
    ord("s"): _Unpickler.set_item,
    ord("u"): _Unpickler.set_items,
    ord("q"): lambda r: r.put(r.byte()),
    ord("r"): lambda r: r.put(r.number(4)),
    0x94: lambda r: r.put(len(r.memo)),
    ord("h"): lambda r: r.stack.append(r.memo[r.byte()]),
    ord("j"): lambda r: r.stack.append(r.memo[r.number(4)]),
    ord("c"): lambda r: r.stack.append(r.find(r.line(), r.line())),
    0x93: _Unpickler.global_from_stack,
    0x81: _Unpickler.new_object,
    ord("R"): _Unpickler.reduce,
    ord("b"): _Unpickler.build,
    ord("Q"): _Unpickler.persistent,
    0x80: lambda r: (r.byte(), None)[1],
    0x95: lambda r: (r.number(8), None)[1],
}
