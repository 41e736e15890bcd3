# SPDX-License-Identifier: Apache-2.0
"""Varlink interfaces as msgspec structs: they decode calls, and :mod:`.definition` prints them.

A member is ``bool``, :data:`Int`, ``float``, ``str``, ``Raw`` (varlink's ``object``), ``array(T)``, ``table(T)``,
``Literal[...]`` or a structure; ``| None`` makes it optional. Only objects may be long: they stay text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeGuard, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Raw, Struct, field

from ..errors import UsageError
from .protocol import one_line

PARAMETER_BYTES = 1 << 16
"""Most bytes of a call's parameters, without objects."""

Int: TypeAlias = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Members: TypeAlias = Mapping[str, object]

SCALARS: Mapping[object, str] = {bool: "bool", int: "int", float: "float", str: "string", Raw: "object"}

_WHERE = re.compile(r" - at `\$(.*)`$", re.DOTALL)
_FIELD = re.compile(r"^Object (missing required|contains unknown) field `(.*?)`", re.DOTALL)
_STEP = re.compile(r"\.([A-Za-z0-9_]+)|\[(\d+|\.\.\.)\]")


class Mismatch(ValueError):
    """A value of another type than declared; ``path`` names the member."""

    def __init__(self, path: str, expected: str) -> None:
        super().__init__(f"{path}: expected {expected}")
        self.path = path


class Call(Struct):
    method: str
    parameters: Raw = Raw(b"null")
    oneway: bool | None = None
    more: bool | None = None
    upgrade: bool | None = None


class Method(NamedTuple):
    name: str
    about: str
    parameters: type[Struct]
    reply: type[Struct]


def structure(name: str, about: str = "", /, **types: object) -> type[Struct]:
    fields = [(member, kind, None) if nullable(kind) else (member, kind) for member, kind in types.items()]
    described = {"__doc__": about}
    return msgspec.defstruct(name, fields, namespace=described, forbid_unknown_fields=True, omit_defaults=True, kw_only=True)


def method(name: str, about: str, parameters: Members, reply: Members) -> Method:
    return Method(name, about, structure(name, **parameters), structure(name, **reply))


def array(kind: object) -> GenericAlias:
    return GenericAlias(list, kind)


def table(kind: object) -> GenericAlias:
    return GenericAlias(dict, (str, kind))


class Decoder:
    def __init__(self, kind: type[Struct]) -> None:
        self._kind, self._decoder = kind, msgspec.json.Decoder(kind)
        self._objects = [name for name, member in members(kind).items() if member is Raw]
        # Members as text give the length without objects.
        texts = [(name, Raw, Raw(b"")) for name in members(kind)] if self._objects else []
        outer = msgspec.defstruct(kind.__name__, texts, forbid_unknown_fields=True) if texts else None
        self._texts = msgspec.json.Decoder(outer) if outer else None

    def decode(self, text: bytes | Raw) -> dict[str, Any]:
        """Present members by name, objects as bytes of text; raises Mismatch or UsageError."""
        try:
            size = len(bytes(text))
            if self._texts is not None:
                texts = msgspec.structs.asdict(self._texts.decode(text))
                size = sum(len(bytes(value)) for name, value in texts.items() if name not in self._objects)
            if size > PARAMETER_BYTES:
                raise UsageError(f"{self._kind.__name__}: its parameters have {size} bytes; at most {PARAMETER_BYTES}")
            values = msgspec.structs.asdict(self._decoder.decode(text))
        except msgspec.ValidationError as error:
            raise _mismatch(str(error), self._kind) from error
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise UsageError(f"message: its parameters are not JSON ({one_line(error)})") from error
        objects = {name: bytes(values.pop(name)) for name in self._objects}
        for name, value in objects.items():
            if not value.startswith(b"{"):
                raise Mismatch(name, "object")
        present: dict[str, Any] = msgspec.to_builtins({name: value for name, value in values.items() if value is not None})
        return {**present, **objects}


class Interface(Struct, frozen=True, eq=False, dict=True):
    """Methods and errors of a service; ``lists`` has texts for each ``${name}`` in descriptions."""

    name: str
    about: str
    methods: tuple[Method, ...]
    errors: Mapping[str, Members]
    lists: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def decoders(self) -> Mapping[str, Decoder]:
        return {method.name: Decoder(method.parameters) for method in self.methods}


_CALL = msgspec.json.Decoder(Call)


def read_call(message: bytes) -> Call:
    """A call, with its parameters as text, or UsageError."""
    try:
        return _CALL.decode(message)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"message: expected one JSON object that names a method ({one_line(error)})") from error


def members(kind: object) -> Members:
    return {one.name: one.type for one in msgspec.structs.fields(kind)} if is_structure(kind) else {}


def is_structure(kind: object) -> TypeGuard[type[Struct]]:
    return isinstance(kind, type) and issubclass(kind, Struct)


def plain(kind: object) -> object:
    if nullable(kind):
        return plain(next(choice for choice in get_args(kind) if choice is not NoneType))
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def nullable(kind: object) -> bool:
    return get_origin(kind) in (Union, UnionType)


def _mismatch(text: str, kind: object) -> Mismatch:
    where = _WHERE.search(text)
    path = where[1] if where else ""
    for name, _ in _STEP.findall(path):
        kind = plain(members(kind)[name] if name else get_args(kind)[-1])
    path = path.lstrip(".")
    if field := _FIELD.match(text):
        member = f"{path}.{field[2]}" if path else field[2]
        if field[1] == "missing required":
            return Mismatch(member, f"{_expected(members(kind)[field[2]])[0]}, but it is missing")
        return Mismatch(member[:100], f"one of {', '.join(members(kind)) or 'no members'}")
    return Mismatch(path or "parameters", _expected(kind)[1])


def _expected(kind: object) -> tuple[str, str]:
    inner, origin = plain(kind), get_origin(plain(kind))
    if origin is Literal:
        return "enum", " or ".join(get_args(inner))
    if origin is list:
        return "array", "a list"
    name = SCALARS.get(inner, "")
    return name or ("map" if origin is dict else "struct"), name or "an object"
