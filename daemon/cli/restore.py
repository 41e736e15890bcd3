# SPDX-License-Identifier: Apache-2.0
"""Restore the baseline of every clock that the daemon, or a killed one, still holds.

A running daemon is asked to end all leases and to restore, through root's socket.

example: sudo jetdvfs restore --dry-run
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ...kernels.text import counted
from ...profiles.timing import SystemClock
from .. import arguments
from ..errors import DaemonError, HardwareBusy, HardwareRefused, NotPermitted
from ..hardware.baseline import LAST_TRY_S
from ..hardware.files import LONGEST_S, Files
from ..hardware.hardware import Hardware
from ..recovery import keeper_of
from ..system.state import (
    BASELINE_FOLDER,
    NoAccess,
    default_runtime_dir,
    default_state_dir,
    is_running_system,
    locked_in_passing,
)
from ..wire.client import Client
from ..wire.protocol import ADMIN_INTERFACE, admin_socket
from .output import print_json


def configure(parser: argparse.ArgumentParser) -> None:
    arguments.add_root(parser)
    arguments.add_state_dir(parser)
    arguments.add_runtime_dir(parser)
    arguments.add_socket(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the changes, make none")
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    if os.geteuid() != 0 and is_running_system(args.root):
        raise NotPermitted("restore needs the rights of root: sudo jetdvfs restore")
    runtime_dir = args.runtime_dir or default_runtime_dir(args.root)
    state_dir = args.state_dir or default_state_dir(args.root)
    outcome = RestoreOutcome((), (), ())
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked_in_passing(args.root, runtime_dir, state_dir))
        except HardwareBusy as error:
            if args.dry_run:
                raise HardwareBusy(
                    "a running daemon does not tell its restores; without --dry-run it is asked to restore"
                ) from error
            outcome = _by_daemon(admin_socket(args.socket or arguments.board_socket(args.root)))
        except NoAccess as error:
            raise NotPermitted(f"restore needs the rights of root: {error}") from error
        else:
            if runtime_dir.is_dir() or state_dir.is_dir():
                outcome = _by_hand(args.root, runtime_dir, state_dir, dry_run=args.dry_run)
    if args.json:
        print_json({**outcome._asdict(), "dry_run": args.dry_run})
    else:
        _say(outcome, "would restore" if args.dry_run else "restored", runtime_dir / BASELINE_FOLDER)
    if outcome.failed:
        raise HardwareRefused(f"not restored: {'; '.join(outcome.failed)}")
    return 0


class RestoreOutcome(NamedTuple):
    """Values restored, set by other programs since, and refused, as lines; number of ``leases`` ended.

    ``locked`` is True if another process keeps the memory lock. ``asked`` is the daemon's socket.
    """

    restored: Sequence[str]
    left: Sequence[str]
    failed: Sequence[str]
    leases: int = 0
    locked: bool = False
    notes: Sequence[str] = ()
    asked: str | None = None


def _by_daemon(admin: Path) -> RestoreOutcome:
    with Client(admin, interface=ADMIN_INTERFACE) as client:
        answer = client.call("Restore", {})
    return RestoreOutcome(answer["restored"], answer["left"], answer["failed"], answer["leases"], asked=str(admin))


def _by_hand(root: Path, runtime_dir: Path, state_dir: Path, *, dry_run: bool) -> RestoreOutcome:
    files = Files(root, longest_s=LONGEST_S)
    keeper = keeper_of(files, runtime_dir, state_dir)
    report = keeper.restore(dry_run=dry_run, longest_s=LAST_TRY_S)
    restored = [f"{write.path} = {write.value}" for write in report.restored]
    locked = not (dry_run and restored) and _is_locked(files)
    notes = dict.fromkeys((*keeper.notes, *report.notes))
    return RestoreOutcome(restored, list(report.left), list(report.failed), locked=locked, notes=list(notes))


def _is_locked(files: Files) -> bool:
    try:
        return bool(Hardware.probe(files, SystemClock()).unlock_memory(dry_run=True))
    except DaemonError:  # no board that is known: nothing to say about it
        return False


def _say(outcome: RestoreOutcome, verb: str, folder: Path) -> None:
    if outcome.leases:
        print(f"{counted(outcome.leases, 'lease')} ended")
    if outcome.asked is not None and not any(outcome._replace(locked=False, asked=None)):
        print(f"nothing to restore: the daemon at {outcome.asked} holds nothing")
    elif not any(outcome._replace(locked=False)):
        print(f"nothing to restore: no daemon runs on this board, and {folder} keeps no baseline of this boot")
    for line in outcome.notes:
        print(line)
    for line in outcome.restored:
        print(f"{verb}  {line}")
    if outcome.locked:
        print("the memory clock is locked by another program; jetdvfs board unlock ends that")
    for line in outcome.left:
        print(f"left as another program set it  {line}")
