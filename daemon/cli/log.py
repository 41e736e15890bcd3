# SPDX-License-Identifier: Apache-2.0
"""Show the daemon's last decisions and their reasons: leases, clocks, missed targets, new plans.

The daemon keeps 512 decisions. Older ones, and those of a stopped daemon, are in the journal.

examples:
  jetdvfs log --follow
  jetdvfs log --since 10 --lease 3
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ...kernels.text import printable
from .. import arguments
from ..errors import NoDaemon, UsageError
from ..system.decision_log import ENTRIES_KEPT
from ..system.journal import IDENTIFIER, KINDS
from ..wire.client import Client


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--lines", type=arguments.whole(1), metavar="N", help="only the last N")
    parser.add_argument("--since", type=float, metavar="MINUTES", help="only those of the last MINUTES")
    parser.add_argument("--lease", metavar="LEASE", help="only those of this lease")
    parser.add_argument("--follow", action="store_true", help="print new decisions, too, until interrupted")
    parser.add_argument("--journal", action="store_true", help="ask the journal instead of the daemon")
    arguments.add_socket(parser)
    parser.add_argument("--json", action="store_true", help="print each entry as JSON, on one line")


def run(args: argparse.Namespace) -> int:
    with contextlib.suppress(KeyboardInterrupt):
        for entry in _of_journal(args) if args.journal else _daemon(args):
            print(json.dumps(entry) if args.json else line(entry), flush=True)
    return 0


def _daemon(args: argparse.Namespace) -> Iterator[Mapping[str, Any]]:
    try:
        client = Client(args.socket)
    except NoDaemon:
        if args.follow or shutil.which("journalctl") is None:
            raise
        yield from _of_journal(args)
        return
    with client:
        entries = client.log(args.lease)
        if args.lease and not entries and args.lease not in {one["lease"] for one in client.status()["leases"]}:
            raise UsageError(f"no lease {args.lease}: none of that name is held, and the daemon has no entry of it")
        last = entries[-1]["number"] if entries else 0
        if args.since is not None:
            entries = [entry for entry in entries if entry["time_s"] >= time.time() - 60 * args.since]
        yield from entries[-args.lines :] if args.lines else entries
        if args.follow:
            yield from client.watch(args.lease, after=last)


def _of_journal(args: argparse.Namespace) -> Iterator[Mapping[str, Any]]:
    more = ["--follow"] if args.follow else []
    more += [f"--since=-{args.since:g}min"] if args.since is not None else []
    more += [f"JETDVFS_LEASE={args.lease}"] if args.lease else []
    return journal(*more, lines=args.lines or ENTRIES_KEPT)


def journal(*more: str, lines: int = ENTRIES_KEPT) -> Iterator[Mapping[str, Any]]:
    """Decisions in the journal; ``more`` are arguments of journalctl. Raises NoDaemon."""
    command = ["journalctl", "--identifier", IDENTIFIER, "--output", "json", "--quiet", "--lines", str(lines), *more]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError as error:
        raise NoDaemon(f"journalctl: {error.strerror}") from error
    with process:
        assert process.stdout is not None
        for number, line in enumerate(process.stdout, 1):
            if (entry := _entry(number, line)) is not None:
                yield entry
    if process.returncode:
        raise NoDaemon(f"journalctl ended with {process.returncode}; are you in the group systemd-journal or adm?")


def _entry(number: int, line: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(line)
        kind = KINDS.get(found.get("MESSAGE_ID", ""))
        time_s = int(found["__REALTIME_TIMESTAMP"]) / 1e6
        message = str(found["MESSAGE"])
    except (ValueError, KeyError, AttributeError):
        return None
    if kind is None:
        return None
    about = {name: found.get(f"JETDVFS_{name.upper()}") for name in ("lease", "app", "configuration", "reason")}
    return {"number": number, "time_s": time_s, "kind": kind, "message": message, **about}


def line(entry: Mapping[str, Any]) -> str:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry["time_s"]))
    message, reason = entry["message"], entry["reason"] or ""
    why = "" if reason in message else f": {reason}"
    return f"{moment}  {entry['kind'].replace('_', ' '):14}  {printable(message + why)}"
