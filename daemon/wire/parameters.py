# SPDX-License-Identifier: Apache-2.0
"""Reading calls: JSON text straight into what the interface declares, at a bounded cost.

Only members declared as ``object`` may be long; they are not read here but handed on as text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import GenericAlias
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw

from ..errors import UsageError
from .interface import Interface, Mismatch, Type
from .protocol import one_line

PARAMETER_BYTES = 1 << 16
"""How long the parameters of a call may be, those of type ``object`` left out."""

_SCALARS: Mapping[str, Any] = {
    "bool": bool,
    "int": Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)],
    "float": float,
    "string": str,
    "object": dict[str, Any],
}
_WHERE = re.compile(r" - at `\$(.*)`$", re.DOTALL)
_FIELD = re.compile(r"^Object (missing required|contains unknown) field `(.*?)`", re.DOTALL)
_STEP = re.compile(r"\.([A-Za-z0-9_]+)|\[(\d+|\.\.\.)\]")


class Call(msgspec.Struct):
    """A message of a client: what every call has."""

    method: str
    parameters: Raw = Raw(b"null")
    oneway: bool | None = None
    more: bool | None = None
    upgrade: bool | None = None


_CALL = msgspec.json.Decoder(Call)


def read_call(message: bytes) -> Call:
    """A call, of which the parameters are still text.

    Raises:
        UsageError: it is not one JSON object with a ``method``.
    """
    try:
        return _CALL.decode(message)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"message: expected one JSON object that names a method ({one_line(error)})") from error


class Parameters:
    """Reads what the methods of an interface take."""

    def __init__(self, interface: Interface) -> None:
        self._types = interface.types
        self._methods = {name: self._method(name, method.parameters) for name, method in interface.methods.items()}

    def read(self, method: str, text: bytes | Raw) -> dict[str, Any]:
        """The parameters of a call, by name; those of type ``object`` as the bytes of their text, absent ones left out.

        Raises:
            Mismatch: they are not what the method declares; the path says which.
            UsageError: they are not JSON, or too long.
        """
        outer, inner, kind = self._methods[method]
        objects = {name: member for name, member in kind.members.items() if member.tag == "object"}
        found: dict[str, Any] = {}
        if objects:
            texts = msgspec.structs.asdict(self._decode(outer, kind, text))
            for name, member in objects.items():
                given = bytes(texts.pop(name))
                if member.nullable and given in (b"", b"null"):
                    continue
                if not given.startswith(b"{"):
                    raise Mismatch(name, "object" if given else "object, but it is missing")
                found[name] = given
            present = {name: value for name, value in texts.items() if bytes(value)}
            _bounded(method, sum(len(bytes(value)) for value in present.values()))
            text = msgspec.json.encode(present)
        else:
            _bounded(method, len(bytes(text)))
        values: dict[str, Any] = msgspec.to_builtins(self._decode(inner, kind, text))
        return {**values, **found}

    def _decode(self, decoder: msgspec.json.Decoder[Any], kind: Type, text: bytes | Raw) -> Any:
        try:
            return decoder.decode(text)
        except msgspec.ValidationError as error:
            raise self._mismatch(str(error), kind) from error
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise UsageError(f"message: its parameters are not JSON ({one_line(error)})") from error

    def _method(self, name: str, kind: Type) -> tuple[msgspec.json.Decoder[Any], msgspec.json.Decoder[Any], Type]:
        """Two readers: of every parameter as text, and of all but the objects as what they are declared to be."""
        texts = [(member, Raw, Raw(b"")) for member in kind.members]
        outer = msgspec.defstruct(name, texts, forbid_unknown_fields=True)
        rest = {member: what for member, what in kind.members.items() if what.tag != "object"}
        return msgspec.json.Decoder(outer), msgspec.json.Decoder(self._struct(name, rest)), kind

    def _struct(self, name: str, members: Mapping[str, Type]) -> type[msgspec.Struct]:
        needed = [(member, self._python(what)) for member, what in members.items() if not what.nullable]
        others = [(member, self._python(what), None) for member, what in members.items() if what.nullable]
        return msgspec.defstruct(name, [*needed, *others], forbid_unknown_fields=True, omit_defaults=True, kw_only=True)

    def _python(self, kind: Type) -> Any:
        """The annotation that stands for a type."""
        plain: Any
        if kind.tag == "named":
            plain = self._python(self._types[kind.words[0]])
        elif kind.tag == "struct":
            plain = self._struct("structure", kind.members)
        elif kind.tag == "enum":
            plain = Literal[kind.words]
        elif kind.tag in ("array", "map"):
            assert kind.item is not None
            item = self._python(kind.item)
            plain = GenericAlias(list, item) if kind.tag == "array" else GenericAlias(dict, (str, item))
        else:
            plain = _SCALARS[kind.tag]
        return plain | None if kind.nullable else plain

    def _mismatch(self, text: str, kind: Type) -> Mismatch:
        """What msgspec says, as where it is wrong and what is expected there."""
        where = _WHERE.search(text)
        path = where[1] if where else ""
        for name, _ in _STEP.findall(path):
            kind = self._resolved(kind)
            step = kind.members.get(name) if name else kind.item
            if step is None:
                break
            kind = step
        kind = self._resolved(kind)
        path = path.lstrip(".")
        if field := _FIELD.match(text):
            member = f"{path}.{field[2]}" if path else field[2]
            if field[1] == "missing required":
                return Mismatch(member, f"{self._resolved(kind.members[field[2]]).tag}, but it is missing")
            return Mismatch(member[:100], f"one of {', '.join(kind.members) or 'no members'}")
        expected = {"enum": " or ".join(kind.words), "array": "a list", "map": "an object", "struct": "an object"}
        return Mismatch(path or "parameters", expected.get(kind.tag, kind.tag))

    def _resolved(self, kind: Type) -> Type:
        return self._types[kind.words[0]] if kind.tag == "named" else kind


def _bounded(method: str, size: int) -> None:
    if size > PARAMETER_BYTES:
        raise UsageError(f"{method}: its parameters have {size} bytes; at most {PARAMETER_BYTES}")
