# SPDX-License-Identifier: Apache-2.0
"""Varlink interface definitions: read once, then used to read calls (:mod:`.parameters`) and to check replies.

The grammar is the one of varlink.org: ``type``, ``method`` and ``error`` members; types ``bool``, ``int``, ``float``,
``string``, ``object``, ``[]T``, ``[string]T``, ``?T``, structures, enumerations and named types.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

_TOKEN = re.compile(r"\s+|#[^\n]*|(?P<token>->|\[string\]|\[\]|[?():,]|[A-Za-z][A-Za-z0-9_.-]*)")
_SCALARS = ("bool", "int", "float", "string", "object")


class InterfaceError(ValueError):
    """An interface definition is malformed."""


class Mismatch(ValueError):
    """A value is not of its declared type; ``path`` says which member."""

    def __init__(self, path: str, expected: str) -> None:
        super().__init__(f"{path}: expected {expected}")
        self.path = path
        self.expected = expected


@dataclass(frozen=True)
class Type:
    """One type: ``tag`` is a scalar's name, ``array``, ``map``, ``struct``, ``enum`` or ``named``."""

    tag: str
    nullable: bool = False
    item: Type | None = None
    members: Mapping[str, Type] = field(default_factory=dict)
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Method:
    """What a method takes and what it answers, both structures."""

    parameters: Type
    reply: Type


@dataclass(frozen=True)
class Interface:
    """A parsed definition. ``text`` is the definition itself, as ``GetInterfaceDescription`` returns it."""

    name: str
    text: str
    types: Mapping[str, Type]
    methods: Mapping[str, Method]
    errors: Mapping[str, Type]

    @classmethod
    def load(cls, path: Path, **lists: str) -> Interface:
        """Read a definition from its file; what stands as ``${name}`` in a comment is taken from ``lists``, line by line."""
        text = path.read_text(encoding="utf-8")
        return parse(Template(text).safe_substitute({name: text.replace("\n", "\n# ") for name, text in lists.items()}))

    def check_reply(self, method: str, reply: Any) -> None:
        """Raise Mismatch unless ``reply`` is what the method declares to answer, without members that nobody declared."""
        self._check(reply, self.methods[method].reply, "")

    def _check(self, value: Any, kind: Type, path: str) -> None:
        if value is None and kind.nullable:
            return
        if kind.tag == "named":
            self._check(value, self.types[kind.words[0]], path)
        elif kind.tag == "struct":
            self._check_struct(value, kind, path)
        elif kind.tag == "enum":
            if value not in kind.words:
                raise Mismatch(path, " or ".join(kind.words))
        elif kind.tag == "array":
            if not isinstance(value, list):
                raise Mismatch(path, "a list")
            assert kind.item is not None
            for position, item in enumerate(value):
                self._check(item, kind.item, f"{path}[{position}]")
        elif kind.tag == "map":
            if not isinstance(value, dict):
                raise Mismatch(path, "an object")
            assert kind.item is not None
            for name, item in value.items():
                self._check(item, kind.item, f"{path}.{name}")
        elif not _SCALAR_CHECKS[kind.tag](value):
            raise Mismatch(path or "value", kind.tag)

    def _check_struct(self, value: Any, kind: Type, path: str) -> None:
        if not isinstance(value, dict):
            raise Mismatch(path or "parameters", "an object")
        prefix = f"{path}." if path else ""
        for name in value:
            if name not in kind.members:
                raise Mismatch(f"{prefix}{name}", f"one of {', '.join(kind.members) or 'no members'}")
        for name, member in kind.members.items():
            if name not in value and not member.nullable:
                raise Mismatch(f"{prefix}{name}", f"{member.tag}, but it is missing")
            self._check(value.get(name), member, f"{prefix}{name}")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


_SCALAR_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "bool": lambda value: isinstance(value, bool),
    "int": _is_int,
    "float": lambda value: _is_int(value) or (isinstance(value, float) and math.isfinite(value)),
    "string": lambda value: isinstance(value, str),
    "object": lambda value: isinstance(value, dict),
}


def parse(text: str) -> Interface:
    """Read one interface definition.

    Raises:
        InterfaceError: the text is not a varlink interface definition, or names a type it does not define.
    """
    return _Parser(text).interface()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        self._named: set[str] = set()
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise InterfaceError(f"line {text.count(chr(10), 0, position) + 1}: unexpected {text[position]!r}")
            if match["token"]:
                self._tokens.append(match["token"])
            position = match.end()

    def interface(self) -> Interface:
        self._expect("interface")
        name = self._take()
        types: dict[str, Type] = {}
        methods: dict[str, Method] = {}
        errors: dict[str, Type] = {}
        while self._tokens:
            keyword, member = self._take(), self._take()
            if member in {**types, **methods, **errors}:
                raise InterfaceError(f"{member}: there is a type, a method or an error of this name already")
            if keyword == "type":
                types[member] = self._type()
            elif keyword == "method":
                parameters = self._type()
                self._expect("->")
                methods[member] = Method(parameters, self._type())
            elif keyword == "error":
                errors[member] = self._type()
            else:
                raise InterfaceError(f"{keyword!r}: expected type, method or error")
        if unknown := self._named - types.keys():
            raise InterfaceError(f"types {', '.join(sorted(unknown))} are used but not defined")
        return Interface(name, self._text, types, methods, errors)

    def _type(self) -> Type:
        token = self._take()
        if token == "?":
            kind = self._type()
            return Type(kind.tag, True, kind.item, kind.members, kind.words)
        if token == "[]":
            return Type("array", item=self._type())
        if token == "[string]":
            return Type("map", item=self._type())
        if token == "(":
            return self._struct_or_enum()
        if token in _SCALARS:
            return Type(token)
        self._named.add(token)
        return Type("named", words=(token,))

    def _struct_or_enum(self) -> Type:
        members: dict[str, Type] = {}
        words: list[str] = []
        while self._peek() != ")":
            name = self._take()
            if self._peek() == ":":
                self._take()
                members[name] = self._type()
            else:
                words.append(name)
            if self._peek() != ")":
                self._expect(",")
        self._take()
        if words and members:
            raise InterfaceError(f"{words[0]}: a structure's member needs a type")
        return Type("enum", words=tuple(words)) if words else Type("struct", members=members)

    def _peek(self) -> str:
        if not self._tokens:
            raise InterfaceError("the definition ends too early")
        return self._tokens[0]

    def _take(self) -> str:
        token = self._peek()
        del self._tokens[0]
        return token

    def _expect(self, token: str) -> None:
        if (found := self._take()) != token:
            raise InterfaceError(f"{found!r}: expected {token!r}")
