# SPDX-License-Identifier: Apache-2.0
"""Put every clock that is still ours back to its baseline. Works without a daemon: on what a killed one left behind.

Where a daemon runs, it is asked to end all leases and to restore, through the socket that is root's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from ..client import Client
from ..errors import HardwareBusy, HardwareRefused
from ..hardware.baseline import Baseline
from ..hardware.files import Files
from ..protocol import ADMIN_INTERFACE, ADMIN_SOCKET_NAME, default_socket
from ..service import BASELINE_NAME, default_state_dir, locked_state

HELP = "put every clock back to its baseline by hand"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", type=Path, default=Path("/"), metavar="DIR", help="where the board's /sys and /proc are")
    parser.add_argument("--state-dir", type=Path, metavar="DIR", help="where the baseline is kept; default: /var/lib/jetdvfs")
    parser.add_argument("--socket", type=Path, metavar="PATH", help="the daemon's socket, should one run")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be restored and what left")


def run(args: argparse.Namespace) -> int:
    state_dir = args.state_dir or default_state_dir()
    if not state_dir.is_dir():
        print("nothing to restore: no baseline is kept")
        return 0
    try:
        with locked_state(state_dir):
            return _by_hand(args.root, state_dir.resolve() / BASELINE_NAME, dry_run=args.dry_run)
    except HardwareBusy:
        if args.dry_run:
            raise
    admin = (args.socket or default_socket()).with_name(ADMIN_SOCKET_NAME)
    with Client(admin, interface=ADMIN_INTERFACE) as client:
        answer = client.call("Restore", {})
    print(f"{answer['leases']} leases ended")
    return _report(answer["restored"], answer["left"], answer["failed"])


def _by_hand(root: Path, path: Path, *, dry_run: bool) -> int:
    baseline = Baseline.load(Files(root), path)
    if baseline is None:
        print("nothing to restore: no baseline of this boot is kept")
        return 0
    report = baseline.restore(dry_run=dry_run)
    restored = [f"{write.path} = {write.value}" for write in report.restored]
    return _report(restored, report.left, report.failed)


def _report(restored: Iterable[str], left: Iterable[str], failed: Iterable[str]) -> int:
    for line in restored:
        print(f"restored  {line}")
    for line in left:
        print(f"left      {line} (set by somebody else since)")
    failures = list(failed)
    if failures:
        raise HardwareRefused(f"not restored: {'; '.join(failures)}")
    return 0
