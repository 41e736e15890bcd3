# SPDX-License-Identifier: Apache-2.0
"""Stable interfaces of this tree as JSON values, and their comparison with stored ones.

A stored value is kept if all of it is still there: members and items may be added, not removed or changed.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jetdvfs
from jetdvfs.daemon import service
from jetdvfs.daemon.cli.config import members_shown
from jetdvfs.daemon.cli.verbs import EXIT_CODES, JETDVFS, module_of, parser_with
from jetdvfs.daemon.config import read_config
from jetdvfs.daemon.errors import DaemonError
from jetdvfs.daemon.notebook import BoardProfile, BoardSurface
from jetdvfs.daemon.wire.client import HeldLease, LoadedModel
from jetdvfs.daemon.wire.hold_request import HoldOptions
from jetdvfs.daemon.wire.protocol import error_reply
from jetdvfs.tests.support.paths import ROOT, SNAPSHOTS

STORED = SNAPSHOTS / "1.0"
INTEGRATIONS = ROOT / "daemon" / "integrations"
#: Reached from the names of ``jetdvfs.__all__``.
RETURNED = (BoardProfile, BoardSurface, HeldLease, LoadedModel)


def lost(stored: Any, today: Any, place: str = "") -> list[str]:
    """Places of a stored value that are gone or changed today; null on either side says nothing."""
    if stored is None or today is None:
        return []
    if isinstance(stored, dict) and isinstance(today, dict):
        gone = [f"{place}.{name}" for name in stored if name not in today]
        return gone + [one for name in stored if name in today for one in lost(stored[name], today[name], f"{place}.{name}")]
    if isinstance(stored, list) and isinstance(today, list):
        return [f"{place}: {item}" for item in stored if item not in today]
    if place.endswith(".required"):
        return [f"{place}: {name}, which was not" for name in set(today.split()) - set(stored.split())]
    return [] if stored == today else [f"{place}: {stored}, now {today}"]


def verbs() -> dict[str, Any]:
    """Options and positional arguments of each verb and program."""
    _, parsers = parser_with(JETDVFS, {name: module_of(name) for name in JETDVFS.verbs})
    return {"jetdvfsd": _arguments(service._parser()), **{name: _arguments(parser) for name, parser in parsers.items()}}


def _arguments(parser: argparse.ArgumentParser) -> dict[str, Any]:
    found: dict[str, Any] = {"required": " ".join(sorted(_required(parser)))}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= {f"action {name}": _arguments(inner) for name, inner in action.choices.items()}
            continue
        takes = {"values": "none" if action.nargs == 0 else str(action.nargs or 1)}
        choices = {"choices": [str(choice) for choice in action.choices]} if action.choices else {}
        found |= dict.fromkeys(action.option_strings or [f"positional {action.dest}"], takes | choices)
    return found


def _required(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.required and not isinstance(action, argparse._SubParsersAction):
            yield "/".join(action.option_strings) or action.dest


def exit_codes() -> dict[str, Any]:
    """Exit codes of the help, and name and code of each error on the socket."""
    codes = {line.split()[0]: line.split(maxsplit=1)[1] for line in EXIT_CODES.splitlines()[1:]}
    found: list[type[DaemonError]] = [DaemonError]
    found += _subclasses(DaemonError)
    kinds = {kind.__name__: error_reply(kind("")) for kind in found if kind.__module__ == DaemonError.__module__}
    return {
        "help": list(codes),
        "errors": {name: f"{reply['error']} {reply['parameters']['exit_code']}" for name, reply in sorted(kinds.items())},
    }


def _subclasses(kind: type[DaemonError]) -> Iterator[type[DaemonError]]:
    for inner in kind.__subclasses__():
        yield from (inner, *_subclasses(inner))


def configuration(folder: Path) -> dict[str, Any]:
    """Default of each member of the configuration."""
    empty = folder / "empty.yaml"
    empty.touch()
    return {name: one["value"] for name, one in members_shown(read_config(empty)).items()}


def python_names() -> dict[str, Any]:
    """Public names of the package with their parameters, of the hooks, and of returned objects."""
    names = {name: _described(getattr(jetdvfs, name)) for name in jetdvfs.__all__ if name not in ("qos", "__version__")}
    hooks = {f"qos.{name}": _described(getattr(jetdvfs.qos, name)) for name in jetdvfs.qos.__all__}
    return names | hooks | {kind.__name__: _described(kind) for kind in RETURNED}


def _described(thing: Any) -> dict[str, Any]:
    if not isinstance(thing, type):
        return _parameters(thing)
    attributes = (inspect.getdoc(thing) or "").partition("Attributes:\n")[2].partition("\n\n")[0]
    documented = [name for names in re.findall(r"^ {4}([\w, ]+):", attributes, re.MULTILINE) for name in names.split(", ")]
    public = dict.fromkeys(documented) | {name: value for name, value in vars(thing).items() if not name.startswith("_")}
    shown = {name: _parameters(value) if inspect.isfunction(value) else "attribute" for name, value in public.items()}
    return {"()": _parameters(thing) if thing not in RETURNED else {}, **shown}


def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    required = []
    for number, (name, one) in enumerate(inspect.signature(function).parameters.items()):
        if one.kind is one.VAR_KEYWORD:
            found |= dict.fromkeys(HoldOptions.__annotations__, "keyword")
            continue
        found[name] = "keyword" if one.kind is one.KEYWORD_ONLY else f"{one.kind.description} {number}"
        required += [name] if one.default is one.empty and name != "self" and one.kind is not one.VAR_POSITIONAL else []
    return {**found, "required": " ".join(required)}


def c_declarations() -> dict[str, Any]:
    """Constants, members of structures in their order, and functions of the C header; names of the C++ header."""
    text = (INTEGRATIONS / "c" / "jetdvfs.h").read_text(encoding="utf-8")
    public = re.sub(r"^[^\n]*/\* from here on.*?(?=^\})", "", text, flags=re.DOTALL | re.MULTILINE)
    public = re.sub(r"/\*.*?\*/", "", public, flags=re.DOTALL)
    constants = re.findall(r"(JETDVFS_(?:USAGE|INPUT|NO_DAEMON|NAME_BYTES)) = (\d+)", public)
    structures = re.findall(r"typedef struct \{([^}]*)\} (\w+[a-z]);", public)
    functions = re.findall(r"^static inline ([\w ]+[ *]\w+[a-z]\([^)]*\)) \{", public, re.MULTILINE)
    cpp = re.sub(r"/\*.*?\*/", "", (INTEGRATIONS / "c" / "jetdvfs.hpp").read_text(encoding="utf-8"), flags=re.DOTALL)
    return {
        "constants": dict(constants),
        "structures": {
            name: {str(number): " ".join(line.split()) for number, line in enumerate(filter(str.strip, body.split(";")))}
            for body, name in structures
        },
        "functions": [" ".join(one.split()) for one in functions],
        "c++": re.findall(r"(?:struct|class) (\w+)", cpp) + re.findall(r"explicit (.*?\)) ", cpp),
    }


def varlink(text: str) -> dict[str, Any]:
    """Types, methods and errors of an interface definition: members by name, each with its type."""
    text = re.sub(r"^ *#.*$", "", text, flags=re.MULTILINE)
    found: dict[str, Any] = {
        "interface": re.findall(r"^interface (\S+)", text, re.MULTILINE),
        "types": {},
        "methods": {},
        "errors": {},
    }
    for kind, name in re.findall(r"^(type|method|error) (\w+)", text, re.MULTILINE):
        begin = re.search(rf"^{kind} {name} ?(?=\()", text, re.MULTILINE)
        assert begin is not None
        members, end = _members(text, begin.end())
        if kind == "method":
            reply, _ = _members(text, text.index("(", text.index("->", end)))
            found["methods"][name] = {"parameters": members, "reply": reply}
        else:
            found[f"{kind}s"][name] = members
    return found


def _members(text: str, begin: int) -> tuple[dict[str, Any], int]:
    """Members of the list in parentheses that begins here, and its end."""
    depth, end = 0, begin
    while True:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
        if depth == 0:
            break
    pairs = (one.split(":", 1) for one in re.split(r",(?![^()]*\))", text[begin + 1 : end - 1]) if one.strip())
    return {name.strip(): _type(kind.strip()) for name, kind in pairs}, end


def _type(text: str) -> Any:
    return [one.strip() for one in text[1:-1].split(",")] if text.startswith("(") else text


def added_requirements(stored: Mapping[str, Any], today: Mapping[str, Any]) -> list[str]:
    """Members of calls that an older client does not send, and that are not optional."""
    types = stored["types"]
    sent = {name: method["parameters"] for name, method in stored["methods"].items()}
    used = {
        name
        for members in sent.values()
        for kind in members.values()
        for name in types
        if name in re.findall(r"\w+", str(kind))
    }
    pairs = [(f"{name}()", sent[name], today["methods"].get(name, {}).get("parameters", {})) for name in sent]
    pairs += [(name, types[name], today["types"].get(name, {})) for name in used]
    return [
        f"{place}.{name}: {kind}"
        for place, before, now in pairs
        for name, kind in now.items()
        if name not in before and not str(kind).startswith("?")
    ]


def keys(value: Any) -> Any:
    """Members of a JSON value by name, with the kind of each; items of a list are one."""
    if isinstance(value, dict):
        return {name: keys(inner) for name, inner in value.items()}
    if isinstance(value, list):
        merged: Any = None
        for item in map(keys, value):
            merged = {**merged, **item} if isinstance(merged, dict) and isinstance(item, dict) else merged or item
        return {"[]": merged}
    if value is None:
        return None
    return "truth" if isinstance(value, bool) else "number" if isinstance(value, int | float) else "text"
