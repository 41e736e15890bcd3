# SPDX-License-Identifier: Apache-2.0
"""Layers of an engine, from ``trtexec --exportLayerInfo`` or TensorRT's engine inspector: one JSON object."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, BinaryIO

from msgspec import Struct

from ..budget import Account
from ..errors import BudgetExceeded, ModelError, ShapeError
from ..exported_pieces import JsonText
from ..network import SizedTensor, numel

_HEAD = 4096
_MARK = b"\xef\xbb\xbf"
_NAME = 1000
_NAMES_ONLY = (
    "the engine was built with the names of its layers only; build it with trtexec --profilingVerbosity=detailed "
    "(config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED) and export its layers again"
)
_OTHER_PROFILE = re.compile(r"\[profile [1-9]\d*\]$")
_NOT_FIXED = "has no fixed shape; say the engine's shapes as its layers are exported: trtexec --loadEngine=... --shapes=..."

#: Words for element types in ``Format/Datatype``, in ``Datatype`` and in the type of weights.
_TYPES = (
    (r"BFloat16|BF16", "bfloat16"),
    (r"Half|FP16|Float16", "float16"),
    (r"Float|FP32|Float32|TF32", "float32"),
    (r"FP8|FP8E4M3|E4M3|Float8", "float8_e4m3fn"),
    (r"FP4|FP4E2M1|E2M1|Float4", "float4_e2m1"),
    (r"UInt8", "uint8"),
    (r"Int8", "int8"),
    (r"Int4", "int4"),
    (r"Int32", "int32"),
    (r"Int64", "int64"),
    (r"Bool|Boolean", "bool"),
)
_WORDS = tuple((re.compile(rf"\b(?:{words})\b", re.IGNORECASE), dtype) for words, dtype in _TYPES)


class EngineTensor(SizedTensor, frozen=True):
    name: str


class EngineLayer(Struct, frozen=True):
    """A layer of an engine: TensorRT's name (truncated if long), ``LayerType``, tensors, and the object's other members."""

    name: str
    type: str
    inputs: tuple[EngineTensor, ...]
    outputs: tuple[EngineTensor, ...]
    said: Mapping[str, Any]

    def text(self, member: str) -> str:
        value = self.said.get(member)
        return value if isinstance(value, str) else ""

    def number(self, member: str, default: int = 0) -> int:
        value = self.said.get(member, default)
        return value if isinstance(value, int) else default

    def sizes(self, member: str) -> tuple[int, ...]:
        value = self.said.get(member)
        if not isinstance(value, list) or not 0 < len(value) <= 8 or not all(_is_size(item) for item in value):
            raise ModelError(f"member {member!r} is {value!r:.60}; expected a list of a few sizes")
        return tuple(value)

    def weights(self, member: str) -> tuple[int, str]:
        value = self.said.get(member)
        if value is None:
            return 0, ""
        if not isinstance(value, dict) or not _is_size(value.get("Count")):
            raise ModelError(f"member {member!r} is {value!r:.60}; expected the type and the count of weights")
        return value["Count"], element_type(str(value.get("Type"))) if value["Count"] else ""


class EngineLayers(Struct, frozen=True):
    layers: tuple[EngineLayer, ...]
    bindings: tuple[str, ...]


def is_engine(stream: BinaryIO) -> bool:
    stream.seek(0)
    head = stream.read(_HEAD).removeprefix(_MARK)
    return re.match(rb'\s*\{\s*"(Layers|Bindings)"\s*:', head) is not None


def read_layers(stream: BinaryIO, account: Account) -> EngineLayers:
    """Read an engine's layers; of several shape profiles, the first.

    Raises ModelError, ShapeError if a shape is not fixed, or BudgetExceeded.
    """
    text = JsonText(read_text(stream, account), account)
    layers: list[EngineLayer] = []
    bindings: list[str] = []

    def layer(made: Any) -> None:
        if len(layers) >= account.budget.calls:
            raise BudgetExceeded(f"the engine has more than {account.budget.calls} layers")
        if not (isinstance(made, dict) and _OTHER_PROFILE.search(str(made.get("Name"))[-40:])):
            layers.append(_layer(made, len(layers), account))

    def binding(made: Any) -> None:
        if len(bindings) >= account.budget.items:
            raise BudgetExceeded(f"the engine has more than {account.budget.items} bindings")
        if not _OTHER_PROFILE.search(str(made)[-40:]):
            bindings.append(str(made)[:_NAME])

    try:
        end = text.members(0, {"Layers": lambda at: text.items(at, layer), "Bindings": lambda at: text.items(at, binding)})
        text.finish(end)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the engine's layers are damaged or cut off: {str(error)[:120]}; export them again") from error
    if not layers:
        raise ModelError(f"the engine lists no layers: {_NAMES_ONLY}")
    if not bindings:
        raise ModelError("the engine's inputs and outputs are missing; expected its members Layers and Bindings")
    return EngineLayers(tuple(layers), tuple(bindings))


def read_text(stream: BinaryIO, account: Account) -> str:
    """Content of a JSON file; raises ModelError or BudgetExceeded."""
    length = stream.seek(0, 2)
    room = min(account.room(), account.budget.entry_bytes)
    if length > room:
        raise BudgetExceeded(f"a JSON file of {length} bytes; there is room to read {room}")
    stream.seek(0)
    try:
        return stream.read(length).removeprefix(_MARK).decode()
    except ValueError as error:
        raise ModelError(f"the JSON file is no text in UTF-8 ({error})") from error


def element_type(text: str) -> str:
    for form, dtype in _WORDS:
        if form.search(text):
            return dtype
    raise ModelError(f"the format {text!r:.80} names no element type that is known")


def short(name: str) -> str:
    return name if len(name) <= _NAME else name[: _NAME - 3] + "..."


def _layer(made: Any, number: int, account: Account) -> EngineLayer:
    if isinstance(made, str):
        raise ModelError(_NAMES_ONLY)
    if not isinstance(made, dict) or not isinstance(made.get("Name"), str):
        raise ModelError(f"layer {number} is {made!r:.60}; expected an object with a Name")
    name = short(made["Name"])
    if not isinstance(made.get("LayerType"), str):
        raise ModelError(f"layer {name!r:.120} has no LayerType: {_NAMES_ONLY}")
    try:
        inputs, outputs = (_tensors(made.get(member, []), account) for member in ("Inputs", "Outputs"))
    except ModelError as error:
        raise type(error)(f"layer {name!r:.120}: {error}") from error
    said = {member: value for member, value in made.items() if member not in ("Name", "LayerType", "Inputs", "Outputs")}
    return EngineLayer(name, made["LayerType"][:100], inputs, outputs, said)


def _tensors(made: Any, account: Account) -> tuple[EngineTensor, ...]:
    if not isinstance(made, list) or len(made) > account.budget.items:
        raise ModelError(f"its tensors are {made!r:.60}; expected a list of them")
    return tuple(_tensor(item, account) for item in made)


def _tensor(made: Any, account: Account) -> EngineTensor:
    if not isinstance(made, dict) or not isinstance(made.get("Name"), str):
        raise ModelError(f"a tensor is {made!r:.60}; expected an object with Name, Dimensions and a type")
    name, sizes = made["Name"], made.get("Dimensions")
    form = made.get("Format/Datatype", made.get("Datatype", made.get("DataType", "")))
    if not isinstance(sizes, list) or not all(isinstance(size, int) and not isinstance(size, bool) for size in sizes):
        raise ModelError(f"tensor {name!r:.80} has the Dimensions {sizes!r:.60}; expected a list of sizes")
    if len(sizes) > account.budget.rank:
        raise BudgetExceeded(f"tensor {name!r:.80} has {len(sizes)} dimensions; at most {account.budget.rank} are followed")
    if any(size < 0 for size in sizes) or (isinstance(form, str) and "dynamic shapes" in form):
        raise ShapeError(f"tensor {name!r:.80} {_NOT_FIXED}")
    if numel(sizes) > account.budget.elements:
        raise BudgetExceeded(f"tensor {name!r:.80} has {numel(sizes)} elements; at most {account.budget.elements} are followed")
    return EngineTensor(tuple(sizes), element_type(str(form)), short(name))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40
