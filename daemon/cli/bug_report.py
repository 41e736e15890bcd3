# SPDX-License-Identifier: Apache-2.0
"""The archive of ``jetdvfs doctor --bug-report``."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import platform
import re
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from ... import __version__
from ...kernels.stored_files import replacing
from ...kernels.text import counted, printable
from ...profiles.timing import SystemClock
from .. import arguments
from ..config import ConfigReading, Members, read_config
from ..errors import DaemonError, InputError, NoDaemon, UsageError
from ..hardware.files import LONGEST_S, Files
from ..hardware.hardware import Hardware
from ..hardware.identity import read_identity
from ..wire.client import Client
from . import board, config, log, status
from .output import print_json, progress, table
from .placeholders import Placeholders

_LIBRARIES = ("numpy", "pyyaml", "msgspec", "systemd-python", "treelite", "jetson-stats", "torch", "tensorrt")
_ANSWER_S = 5.0


def run(args: argparse.Namespace, findings: Sequence[Mapping[str, Any]]) -> int:
    write = not args.dry_run
    if write and args.bug_report:
        _check(Path(args.bug_report))
    with progress("collecting facts"):
        found = {**_facts(args, read_config(args.config)), "doctor.json": list(findings)}
    facts = json.loads(json.dumps(found, default=str))
    name = f"jetdvfs-{facts['board.json'].get('board', 'unknown-board')}-{time.strftime('%Y-%m-%d')}"
    path = Path(args.bug_report or f"{name}.tar.gz")
    if write:
        _check(path)
    hidden = Placeholders(args.root, _paths(args, facts["configuration.json"]))
    members = {member: _text(hidden.value(fact)) for member, fact in facts.items()}
    if not args.json:
        replaced = ", ".join(counted(count, kind) for kind, count in hidden.counts.items() if count)
        print(f"{printable(str(path))}, with placeholders for {replaced or 'nothing'}:")
        print(table(["member", "bytes"], [[member, f"{len(text.encode()):,}"] for member, text in members.items()]))
        print("" if write else _shown(members), end="")
    if write and not args.yes and sys.stdin is not None and sys.stdin.isatty():
        write = _agreed(path, members)
    if write:
        _write(path, name, members)
    if args.json:
        listed = [{"name": member, "bytes": len(text.encode()), "text": text} for member, text in members.items()]
        print_json({"file": str(path), "written": write, "replaced": hidden.counts, "members": listed})
    else:
        print("written; attach it to your report" if write else "nothing was written")
    return 0


def _check(path: Path) -> None:
    if os.path.lexists(path):
        raise UsageError(f"--bug-report {path}: exists; expected the name of a new file")
    if not path.parent.is_dir():
        raise UsageError(f"--bug-report {path}: no folder {path.parent}; expected a file in a folder that exists")


def _facts(args: argparse.Namespace, reading: ConfigReading) -> dict[str, Any]:
    files, members = Files(args.root, longest_s=LONGEST_S), reading.members or Members()
    identity = read_identity(files)
    try:
        hardware = Hardware.probe(files, SystemClock(), board=members.board, clusters=members.clusters)
        description = {name: part for name, part in hardware.description.raw.items() if name not in ("sources", "twin")}
        about = {**board.observe(hardware, ""), "description": description}
    except DaemonError as error:
        about = {"error": str(error), **asdict(identity)}
    versions = {
        "jetdvfs": __version__,
        "python": platform.python_version(),
        "system": (files.find_text("/etc/os-release") or "").partition("\n")[0],
        "machine": platform.machine(),
        "kernel": identity.kernel or platform.release(),
        "l4t": identity.l4t,
        "jetpack": identity.jetpack,
        **{one.name: one.version for one in metadata.distributions() if str(one.name).lower() in _LIBRARIES},
    }
    shown = None if reading.members is None else config.members_shown(reading)
    remarks = [str(one) for one in (*reading.problems, *reading.warnings)]
    told = {"versions.json": versions, "board.json": about, "configuration.json": {"members": shown, "remarks": remarks}}
    return told | _daemon(args)


def _daemon(args: argparse.Namespace) -> dict[str, Any]:
    """Status, reasons and decisions of the daemon; without one, the decisions in the journal of the running system."""
    try:
        with Client(args.socket or arguments.board_socket(args.root), timeout_s=_ANSWER_S) as client:
            answer, entries = client.status(), client.log()
        return {"status.json": answer, "why.txt": [*status.why(answer)], "log.txt": ["decisions:", *map(log.line, entries)]}
    except DaemonError as error:
        lines = [str(error)]
    if args.root.resolve() == Path("/"):
        with contextlib.suppress(NoDaemon):
            lines += map(log.line, log.journal())
    return {"status.json": {"error": lines[0]}, "log.txt": lines}


def _paths(args: argparse.Namespace, configuration: Any) -> list[str]:
    """Paths of this command line and of the configuration."""
    given = (args.root, args.config, args.socket, args.state_dir, args.runtime_dir, Path.cwd())
    paths = [str(one) for one in given if one is not None]
    paths += re.findall(r'"(/[^"]+)"', json.dumps(configuration, ensure_ascii=False))
    return [*paths, *map(os.path.realpath, paths)]


def _text(fact: Any) -> str:
    if isinstance(fact, list) and isinstance(fact[0], str):
        return "".join(f"{printable(line)}\n" for line in fact)
    return json.dumps(fact, indent=1) + "\n"


def _shown(members: Mapping[str, str]) -> str:
    return "".join(f"\n== {member}\n{text}" for member, text in members.items())


def _agreed(path: Path, members: Mapping[str, str]) -> bool:
    while True:
        print(f"write {printable(str(path))}? [y]es, [n]o, [s]how the text: ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip().lower()
        if answer not in ("s", "show"):
            return answer in ("y", "yes")
        print(_shown(members), file=sys.stderr)


def _write(path: Path, name: str, members: Mapping[str, str]) -> None:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        for member, text in members.items():
            entry = tarfile.TarInfo(f"{name}/{member}")
            entry.size, entry.mtime = len(text.encode()), int(time.time())
            archive.addfile(entry, io.BytesIO(text.encode()))
    try:
        with replacing(path, 0o644) as file:
            file.write(held.getvalue())
    except OSError as error:
        raise InputError(f"--bug-report {path}: cannot be written ({error.strerror}); expected a writable folder") from error
