# SPDX-License-Identifier: Apache-2.0
"""Interface definitions in varlink's language."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from string import Template
from textwrap import wrap
from typing import Literal, get_args, get_origin

from .interface import SCALARS, Interface, Members, is_structure, members, nullable, plain

_WIDTH = 128


@cache
def definition(interface: Interface) -> str:
    lists = {name: text.replace("\n", "\n# ") for name, text in interface.lists.items()}
    errors = [f"error {name} {_structure(members, _WIDTH)}" for name, members in interface.errors.items()]
    blocks = [f"{_comment(interface.about)}interface {interface.name}", *_blocks(interface), "\n".join(errors)]
    return Template("\n\n".join(blocks)).safe_substitute(lists) + "\n"


def _blocks(interface: Interface) -> Iterator[str]:
    written: set[object] = set()
    for method in interface.methods:
        for kind in (method.parameters, method.reply):
            for member in members(kind).values():
                yield from _types(member, written)
        reply = _structure(members(method.reply), _WIDTH - len(") -> "))
        parameters = _structure(members(method.parameters), _WIDTH - len(f"method {method.name} -> {reply}"))
        yield f"{_comment(method.about)}method {method.name}{parameters} -> {reply}"


def _types(kind: object, written: set[object]) -> Iterator[str]:
    inner = plain(kind)
    if not is_structure(inner):
        for part in get_args(inner):
            yield from _types(part, written)
    elif inner not in written:
        written.add(inner)
        for member in members(inner).values():
            yield from _types(member, written)
        head = f"type {inner.__name__} "
        yield f"{_comment(inner.__doc__)}{head}{_structure(members(inner), _WIDTH - len(head))}"


def _structure(types: Members, width: int) -> str:
    texts = [f"{name}: {_type(kind)}" for name, kind in types.items()]
    line = f"({', '.join(texts)})"
    return line if len(line) <= width else "(\n  " + ",\n  ".join(texts) + "\n)"


def _type(kind: object) -> str:
    inner = plain(kind)
    if is_structure(inner):
        text = inner.__name__
    elif get_origin(inner) is Literal:
        text = f"({', '.join(get_args(inner))})"
    elif get_origin(inner) in (list, dict):
        text = ("[]" if get_origin(inner) is list else "[string]") + _type(get_args(inner)[-1])
    else:
        text = SCALARS[inner]
    return f"?{text}" if nullable(kind) else text


def _comment(about: str | None) -> str:
    paragraphs = (" ".join(paragraph.split()) for paragraph in (about or "").split("\n\n"))
    return "".join(f"# {line}\n" for text in paragraphs for line in wrap(text, _WIDTH - len("# "), break_on_hyphens=False))
