# SPDX-License-Identifier: Apache-2.0
"""The configuration to begin with: every member a comment, with its default, its meaning and its valid values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

from ....profiles.documents import expected
from ...config import Members

_HEAD = """\
# Configuration of jetdvfsd. Every member may be left out; each line below has a default. jetdvfsd.yaml(5) has an example.
# `jetdvfs config check` names mistakes, `systemctl reload jetdvfsd` applies limits, floors, ceiling_c and default.
# Files of jetdvfsd.yaml.d next to this one override it.
"""
_COLUMN = 24


def template() -> str:
    """The file's text, made from the members that the daemon reads."""
    return "\n".join((_HEAD, *_lines(Members(), ""), ""))


def _lines(members: Any, indent: str) -> Iterator[str]:
    hints = get_type_hints(type(members), include_extras=True)
    for field in fields(members):
        value, valid = getattr(members, field.name), expected(hints[field.name])
        remark = f"{valid}: {field.metadata['help']}" if "help" in field.metadata else valid
        if is_dataclass(value):
            yield _line(f"{indent}{field.name}:", remark.removeprefix("a mapping: "))
            yield from _lines(value, f"{indent}  ")
        else:
            yield _line(f"{indent}{field.name}: {_yaml(value)}".rstrip(), remark)


def _line(member: str, remark: str) -> str:
    return f"#{member:{_COLUMN}} # {remark}"


def _yaml(value: Any) -> str:
    """A default as YAML; a member without a value has its default."""
    if isinstance(value, frozenset):
        return f"[{', '.join(sorted(value))}]"
    return "" if value is None else str(value)
