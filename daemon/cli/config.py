# SPDX-License-Identifier: Apache-2.0
"""Check the daemon's configuration, show its members, or write one to begin with.

examples:
  jetdvfs config check
  jetdvfs config show
  sudo jetdvfs config init
"""

from __future__ import annotations

import argparse
import grp
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from msgspec.structs import fields

from ...kernels.stored_files import replacing
from ...kernels.text import printable, valid_instead
from ...kernels.units import AXES
from ...profiles.board import list_boards, load_board
from ...profiles.bundle.finding import resolve_bundle
from ...profiles.documents import Place, dotted, expected, is_record
from ...profiles.errors import ProfilesError
from ...profiles.timing import SystemClock
from .. import arguments
from ..config import DEFAULT_PATH, ConfigReading, Members, read_config
from ..errors import DaemonError, InputError, UsageError
from ..hardware.files import LONGEST_S, Files
from ..hardware.hardware import Hardware
from ..profile import find_profile
from ..system.config_layers import Remark
from .output import answer

_HEAD = """\
# Configuration of jetdvfsd. Every member may be left out; each line below has a default. jetdvfsd.yaml(5) has an example.
# `jetdvfs config check` names mistakes, `systemctl reload jetdvfsd` applies limits, floors, ceiling_c, default and idle.
# Files of jetdvfsd.yaml.d next to this one override it.
"""
_COLUMN = 24


def template() -> str:
    return "\n".join((_HEAD, *_lines(Members(), ""), ""))


def _lines(members: Any, indent: str) -> Iterator[str]:
    for field in fields(members):
        value, valid = getattr(members, field.name), expected(field.type)
        notes = get_args(field.type)[1:] if get_origin(field.type) is Annotated else ()
        remark = ": ".join([valid, *(note.title for note in notes if note.title)])
        if is_record(type(value)):
            yield _line(f"{indent}{field.name}:", remark.removeprefix("a mapping: "))
            yield from _lines(value, f"{indent}  ")
        else:
            yield _line(f"{indent}{field.name}: {_yaml(value)}".rstrip(), remark)


def _line(member: str, remark: str) -> str:
    return f"#{member:{_COLUMN}} # {remark}"


def _yaml(value: Any) -> str:
    if isinstance(value, frozenset):
        return f"[{', '.join(sorted(value))}]"
    return "" if value is None else f"'{value}'" if str(value).startswith(",") else str(value)


_INIT = """write a commented configuration

Every member is a comment, with its default, unit and valid values.

example: sudo jetdvfs config init
"""


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in (
        ("check", "list all errors, with file and line\n\nexample: jetdvfs config check new.yaml"),
        ("show", "list every member, its value and its source\n\nexample: jetdvfs config show"),
    ):
        action = arguments.add_action(actions, name, text)
        action.add_argument(
            "file", nargs="?", type=Path, metavar="FILE", help="default: /etc/jetdvfs/jetdvfsd.yaml, if there is one"
        )
        action.add_argument("--config", type=Path, metavar="FILE", help="the same file, as jetdvfsd has it")
        arguments.add_root(action)
    init = arguments.add_action(actions, "init", _INIT)
    init.add_argument(
        "file", nargs="?", type=arguments.named_file, default=DEFAULT_PATH, metavar="FILE", help=f"default: {DEFAULT_PATH}"
    )
    init.add_argument("--force", action="store_true", help="replace a file that exists")
    init.add_argument("--dry-run", action="store_true", help="print the configuration; write nothing")


def run(args: argparse.Namespace) -> int:
    if args.action == "init":
        return _init(args)
    if args.file is not None and args.config is not None and args.file != args.config:
        raise UsageError(f"two configurations: {args.file} and {args.config}; expected one")
    reading = read_config(args.file or args.config)
    board = _board(args.root, reading)
    problems = [*reading.problems, *beyond_the_text(reading, board)]
    if args.action == "show":
        return _show(args, reading, problems)
    return _check(args, reading, problems, [*reading.warnings, *_limits_that_nothing_fits(reading, board)])


def _init(args: argparse.Namespace) -> int:
    text = template()
    if not args.dry_run:
        if args.file.exists() and not args.force:
            raise UsageError(f"{args.file} exists; --force replaces it, --dry-run prints the new text")
        try:
            if args.file == DEFAULT_PATH:
                args.file.parent.mkdir(exist_ok=True)
            with replacing(args.file) as file:
                file.write(text.encode())
        except OSError as error:
            raise InputError(f"{args.file}: cannot write the configuration ({error.strerror})") from error
    said = text.rstrip("\n") if args.dry_run else f"written: {printable(str(args.file))}"
    answer(args, {"file": str(args.file), "written": not args.dry_run, "text": text}, said)
    return 0


def _board(root: Path, reading: ConfigReading) -> str | None:
    if reading.members is not None and reading.members.board is not None:
        return reading.members.board
    try:
        return Hardware.probe(Files(root, longest_s=LONGEST_S), SystemClock()).description.name
    except DaemonError as error:
        if root.resolve() != Path("/"):
            raise UsageError(f"--root {root}: {error}") from error
        return None


def beyond_the_text(reading: ConfigReading, board: str | None) -> Iterator[Remark]:
    """Valid text that keeps the daemon from starting here, such as names unknown to this machine."""
    members = reading.members
    if members is None:
        return
    boards = list_boards()
    if members.board is not None and members.board not in boards:
        yield _at(reading, "board", f"board {members.board!r} is not described{valid_instead(members.board, boards)}")
    if members.profile is not None:
        from ...profiles.bundle.bundle import read_manifest

        try:
            if board is not None and board in boards:
                find_profile(members.profile, board)
            read_manifest(resolve_bundle(members.profile))
        except (DaemonError, ProfilesError) as error:
            yield _at(reading, "profile", str(error))
    if members.socket_group is not None:
        try:
            grp.getgrnam(members.socket_group)
        except KeyError:
            yield _at(reading, "socket_group", f"there is no group {members.socket_group!r}")


def _limits_that_nothing_fits(reading: ConfigReading, board: str | None) -> Iterator[Remark]:
    members = reading.members
    if members is None or board not in list_boards():
        return
    grid = load_board(board).grid
    for axis in AXES:
        for text in members.limits.missed({axis: grid.levels(axis)}):
            yield reading.stack.remark_at(("limits", axis), text)


def _check(args: argparse.Namespace, reading: ConfigReading, problems: list[Remark], warnings: list[Remark]) -> int:
    files = [str(layer.path) for layer in reading.stack.layers]
    lines = [*map(str, problems), *(f"warning: {remark}" for remark in warnings)]
    lines += [] if problems else [f"sound: {', '.join(files) or 'no file, all defaults'}"]
    told = {"files": files, "problems": [*map(_remark_json, problems)], "warnings": [*map(_remark_json, warnings)]}
    answer(args, told, "\n".join(map(printable, lines)))
    return UsageError.exit_code if problems else 0


def _show(args: argparse.Namespace, reading: ConfigReading, problems: list[Remark]) -> int:
    if reading.members is None:
        raise UsageError(f"configuration {problems[0]}; jetdvfs config check lists everything")
    shown = members_shown(reading)
    width, lines = max(map(len, shown)), []
    for name, one in shown.items():
        origin = "default" if one["file"] is None else f"{one['file']}, line {one['line']}"
        lines.append(printable(f"{name:{width}}  {_text(one['value']):24}  {origin}"))
    answer(args, shown, "\n".join(lines))
    return 0


def members_shown(reading: ConfigReading) -> dict[str, dict[str, Any]]:
    """Value, file and line of each member, by dotted name."""
    found = {dotted(at): (value, _source(reading, at)) for at, value in _values(reading.members, ())}
    return {
        name: {"value": value, "file": source and str(source.path), "line": source and source.line}
        for name, (value, source) in found.items()
    }


def _values(members: Any, at: Place) -> Iterator[tuple[Place, Any]]:
    for field in fields(members):
        value = getattr(members, field.name)
        if is_record(type(value)):
            yield from _values(value, (*at, field.name))
        else:
            yield (*at, field.name), sorted(value) if isinstance(value, frozenset) else value


def _source(reading: ConfigReading, at: Place) -> Remark | None:
    said: Any = reading.stack.merged
    for key in at:
        said = said.get(key) if isinstance(said, Mapping) else said
    return None if said is None else reading.stack.remark_at(at, "")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(value)}]"
    return "-" if value is None else str(value)


def _at(reading: ConfigReading, member: str, text: str) -> Remark:
    return reading.stack.remark_at((member,), f"{member}: {text}")


def _remark_json(remark: Remark) -> dict[str, Any]:
    return {"file": str(remark.path), "line": remark.line, "message": remark.text}
