# SPDX-License-Identifier: Apache-2.0
"""Write the manual pages jetdvfs(1), jetdvfs-lab(1), jetdvfsd.yaml(5) and jetdvfsd(8).

    python docs/manual.py FOLDER

Dates follow ``SOURCE_DATE_EPOCH``, if set.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
import textwrap
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec.structs import fields

import jetdvfs
from jetdvfs.daemon import config, service
from jetdvfs.daemon.cli.verbs import EXIT_CODES, JETDVFS, Program, parser_with
from jetdvfs.profiles.documents import expected, is_record
from jetdvfs.profiles.lab.cli.actions import LAB

Lines = Iterator[str]
#: Code in a docstring: with one backtick, with two, or with a role before it.
CODE = re.compile(r"(?::[a-z]+:)?(`{1,2})~?(.+?)\1", re.DOTALL)
OPTION = re.compile(r"(?<![\w`-])--?[a-zA-Z][\w-]*")

DAEMON = """\
The daemon holds leases of applications, sets the clocks that they need, checks that the hardware obeyed, and gives the board
back as it found it: when the last lease ends, when it is stopped, and, after it was killed, when it is started again.
systemd starts it as `jetdvfsd.service`; `jetdvfsd.socket`, where it is enabled, makes the socket before, and keeps it while the
daemon is started anew.

Members of the group `jetdvfs` may ask it for clocks within the operator's limits. The second socket is root's.

`jetdvfs status` shows its state, `jetdvfs doctor` its faults, and `journalctl -u jetdvfsd` its log.
"""
SIGNALS = {
    "SIGTERM, SIGINT": "give the board back and end",
    "SIGHUP": "read the configuration anew, as `systemctl reload jetdvfsd` asks for; one that is wrong is logged and not taken",
}
PLACES = {
    "/etc/jetdvfs/jetdvfsd.yaml, /etc/jetdvfs/jetdvfsd.yaml.d/*.yaml": "the configuration",
    "/run/jetdvfs/jetdvfs.sock": "the socket of the group's members",
    "/run/jetdvfs/admin.sock": "root's socket",
    "/run/jetdvfs/baseline": "how the board was found, for as long as something is held",
    "/var/lib/jetdvfs": "converted profiles and their surfaces, and profiles of this system",
}


def plain(text: str) -> str:
    """Text as roff, with hyphens as hyphens."""
    return re.sub(r"^(?=[.'])", r"\\&", text.replace("\\", "\\e"), flags=re.MULTILINE)


def literal(text: str) -> str:
    """Literal text as roff: hyphens become minus signs, so that it can be copied."""
    return plain(text).replace("-", "\\-")


def bold(text: str) -> str:
    return f"\\fB{literal(text)}\\fR"


def prose(text: str) -> str:
    """Paragraph on one line, with code and options in bold."""
    text, done, at = " ".join(text.split()), [], 0
    for found in sorted((*CODE.finditer(text), *OPTION.finditer(text)), key=lambda one: one.start()):
        if found.start() >= at:
            done += [plain(text[at : found.start()]), bold(found[2] if found.re is CODE else found[0])]
            at = found.end()
    return re.sub(r"^(?=[.'])", r"\\&", "".join((*done, plain(text[at:]))))


def paragraphs(text: str) -> Lines:
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        for indented, run in groupby(block.splitlines(), lambda line: line.startswith(" ")):
            lines = [line for line in run if line != "::"]
            if indented:
                shown = map(literal, textwrap.dedent("\n".join(lines)).splitlines())
                yield from (".PP", ".RS 4", ".nf", *shown, ".fi", ".RE")
            elif lines:
                yield from (".PP", prose(" ".join(lines)))


def page(name: str, section: int, summary: str, body: Lines) -> str:
    made = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    heading = (name.upper(), str(section), time.strftime("%Y-%m-%d", made), f"jetdvfs {jetdvfs.__version__}", "jetdvfs")
    quoted = " ".join(f'"{word}"' for word in heading)
    head = [f".TH {quoted}", ".SH NAME", f"{literal(name)} \\- {plain(summary)}"]
    # A heading begins a paragraph by itself.
    return re.sub(r"^(\.S[HS].*\n)\.PP\n", r"\1", "\n".join((*head, *body, "")), flags=re.MULTILINE)


def on_one_line(parser: argparse.ArgumentParser) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(parser.prog, width=10_000)


def synopsis(parser: argparse.ArgumentParser) -> Lines:
    formatter = on_one_line(parser)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, "")
    words = " ".join(formatter.format_help().split()).removeprefix(parser.prog)
    yield from (".PP", bold(parser.prog) + literal(words))


def options(parser: argparse.ArgumentParser) -> Lines:
    """Arguments of a parser by group; those without help are in the usage only."""
    formatter = on_one_line(parser)
    for group in parser._action_groups:
        shown = [one for one in group._group_actions if one.help and one.help != argparse.SUPPRESS and not is_of_verbs(one)]
        if shown and group.description:
            yield from paragraphs(f"{group.title}:\n{textwrap.indent(group.description, '  ')}")
        for action in shown:
            metavar = action.metavar or action.dest.upper()
            if action.choices is not None and action.metavar is None:
                metavar = "|".join(map(str, action.choices))
            value = "" if action.nargs == 0 else f" \\fI{literal(str(metavar))}\\fR"
            names = ", ".join(bold(name) + value for name in action.option_strings) or value.strip()
            yield from (".TP", names, prose(formatter._expand_help(action)))


def is_of_verbs(action: argparse.Action) -> bool:
    return isinstance(action, (argparse._SubParsersAction, argparse._HelpAction))


def parts(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Subparsers of a verb, such as ``profile list``."""
    return {
        name: sub
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, sub in action.choices.items()
    }


def verb(parser: argparse.ArgumentParser) -> Lines:
    yield f'.SS "{literal(parser.prog)}"'
    yield from synopsis(parser)
    yield from paragraphs(parser.description or "")
    yield from options(parser)
    for part in parts(parser).values():
        yield from verb(part)


def exit_codes() -> Lines:
    yield ".SH EXIT STATUS"
    for line in EXIT_CODES.splitlines()[1:]:
        code, meaning = line.split(maxsplit=1)
        yield from (".TP", bold(code), plain(meaning))


def commands_1(program: Program, summary: str) -> str:
    parser, verbs = parser_with(program, {name: program.module_of(name) for name in program.verbs})

    def body() -> Lines:
        yield ".SH SYNOPSIS"
        yield from synopsis(parser)
        yield ".SH DESCRIPTION"
        yield from paragraphs(parser.description or "")
        if program is JETDVFS:
            yield from (".PP", "A daemon, " + bold("jetdvfsd") + "(8), sets the clocks. These verbs ask it, or do without it:")
        for name, does in program.verbs.items():
            yield from (".TP", bold(name), plain(does))
        yield ".SH VERBS"
        for sub in verbs.values():
            yield from verb(sub)
        yield from exit_codes()
        yield from (".SH ENVIRONMENT", ".TP", bold("JETDVFS_SOCKET"))
        yield prose("the daemon's socket, where --socket does not say: /run/jetdvfs/jetdvfs.sock by default")
        yield from (".SH SEE ALSO", f"{bold('jetdvfs')}(1), {bold('jetdvfsd.yaml')}(5), {bold('jetdvfsd')}(8)")

    return page(program.name, 1, summary, body())


def jetdvfs_1() -> str:
    return commands_1(JETDVFS, "meet a latency, energy or power target on a Jetson at the right clocks")


def jetdvfs_lab_1() -> str:
    return commands_1(LAB, "measure, train and study, for the profiles of jetdvfs")


def jetdvfsd_8() -> str:
    parser = service._parser()

    def body() -> Lines:
        yield ".SH SYNOPSIS"
        yield from synopsis(parser)
        yield ".SH DESCRIPTION"
        yield from paragraphs(DAEMON)
        yield ".SH OPTIONS"
        yield from options(parser)
        yield ".SH SIGNALS"
        for name, what in SIGNALS.items():
            yield from (".TP", bold(name), prose(what))
        yield from exit_codes()
        yield ".SH FILES"
        for path, what in PLACES.items():
            yield from (".TP", f"\\fI{literal(path)}\\fR", prose(what))
        yield from (".SH SEE ALSO", f"{bold('jetdvfs')}(1), {bold('jetdvfsd.yaml')}(5), {bold('journalctl')}(1)")

    return page("jetdvfsd", 8, "daemon that sets a Jetson's clocks for applications", body())


def members(kind: Any, at: str = "") -> Lines:
    """Members of the configuration: name, type and default."""
    for field in fields(kind):
        default = field.default
        if is_record(type(default)):
            yield from members(type(default), f"{at}{field.name}.")
            continue
        said = sorted(default) if isinstance(default, frozenset) else default
        text = "nothing" if said is None else f"[{', '.join(said)}]" if isinstance(said, list) else str(said)
        yield from (".TP", bold(f"{at}{field.name}"), plain(f"{expected(field.type)}; default: {text}"))


def jetdvfsd_yaml_5() -> str:
    def body() -> Lines:
        yield from (".SH SYNOPSIS", f"\\fI{literal(str(config.DEFAULT_PATH))}\\fR", ".br")
        yield f"\\fI{literal(str(config.DEFAULT_PATH))}.d/*.yaml\\fR"
        yield ".SH DESCRIPTION"
        yield from paragraphs(config.__doc__ or "")
        yield from (
            ".PP",
            prose("Members that are not known are errors; `jetdvfs config check` names every mistake."),
        )
        yield ".SH MEMBERS"
        yield from members(config.Members)
        yield from (".SH SEE ALSO", f"{bold('jetdvfs')}(1), {bold('jetdvfsd')}(8)")

    return page("jetdvfsd.yaml", 5, "configuration of the Jetson DVFS daemon", body())


PAGES = {
    "jetdvfs.1": jetdvfs_1,
    "jetdvfs-lab.1": jetdvfs_lab_1,
    "jetdvfsd.yaml.5": jetdvfsd_yaml_5,
    "jetdvfsd.8": jetdvfsd_8,
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        (folder / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
