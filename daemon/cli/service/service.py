# SPDX-License-Identifier: Apache-2.0
"""Whether the daemon answers, what it complains of, and what one that died has left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .... import __version__
from ...errors import DaemonError, HardwareBusy, NoDaemon, NotPermitted
from ...hardware.baseline import BaselineStore
from ...system.board_lock import is_held, is_running_system
from ...system.state import BASELINE_FOLDER, OLDER_BASELINE_NAME, locked_in_passing
from ...wire.client import Client
from ...wire.protocol import answers
from . import system
from .findings import Finding, note, ok, unknown, wrong

_LONGEST_S = 5.0


def examine(socket: Path) -> Iterator[Finding]:
    try:
        with Client(socket, timeout_s=_LONGEST_S) as client:
            status = client.status()
    except NotPermitted as error:
        yield wrong("daemon", str(error), exit_code=error.exit_code)
    except NoDaemon as error:
        yield wrong("daemon", str(error), "sudo systemctl enable --now jetdvfsd", error.exit_code)
    except DaemonError as error:
        yield wrong("daemon", str(error), "sudo systemctl restart jetdvfsd", error.exit_code)
    else:
        yield from _answered(socket, status)


def _answered(socket: Path, status: dict[str, Any]) -> Iterator[Finding]:
    yield ok("daemon", f"answers on {socket}; {len(status['leases']) or 'no'} leases")
    if status["version"] != __version__:
        said = f"the running daemon is version {status['version']}, this command {__version__}"
        yield note("versions", said, "sudo systemctl restart jetdvfsd")
    yield from (note("daemon", reason) for reason in status["degraded"])


def left_behind(root: Path, runtime_dir: Path, state_dir: Path, socket: Path) -> Finding:
    """The baseline of a board: that of the daemon that runs on it, or one that a daemon has left in its folder."""
    if is_held(root) or (is_running_system(root) and not system.is_root() and answers(socket)):
        return _kept_by_daemon(socket)
    store = BaselineStore(runtime_dir / BASELINE_FOLDER, state_dir / OLDER_BASELINE_NAME)
    try:
        if store.empty:
            return ok("baseline", f"nothing waits to be restored: {store.folder} keeps no baseline, and no daemon was found")
        if not system.is_root():
            return unknown(
                "baseline", f"{store.folder} is kept: clocks are held, or were left behind", "sudo jetdvfs doctor sees which"
            )
        with locked_in_passing(root, runtime_dir, state_dir):
            said = f"{store.folder} is left behind by a daemon that died: clocks are not as they were found"
            return wrong("baseline", said, "sudo jetdvfs restore")
    except HardwareBusy:
        return ok("baseline", "kept by the running daemon, to be restored when nothing is held any more")
    except DaemonError as error:
        return wrong("baseline", str(error))


def _kept_by_daemon(socket: Path) -> Finding:
    try:
        with Client(socket, timeout_s=_LONGEST_S) as client:
            held = client.status()["baseline"] == "held"
    except DaemonError:
        return unknown("baseline", "a daemon runs on this board and does not answer here", "--socket names another")
    if held:
        return ok("baseline", f"kept by the daemon at {socket}, to be restored when nothing is held any more")
    return ok("baseline", f"nothing waits to be restored: the daemon at {socket} holds nothing")
