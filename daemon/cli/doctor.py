# SPDX-License-Identifier: Apache-2.0
"""Diagnose the installation, the board, the configuration and the daemon: one line each, with the remedy, failures first.

--bug-report writes the findings and the state of board and daemon into an archive, without names that identify them.

examples:
  sudo jetdvfs doctor
  sudo jetdvfs doctor --bug-report
"""

from __future__ import annotations

import argparse
import grp
import os
import platform
import pwd
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from ... import __version__
from ...kernels.text import printable
from ...profiles.board import BoardDescription
from ...profiles.errors import ProfilesError
from ...profiles.timing import SystemClock
from .. import arguments
from ..config import DEFAULT_PATH, INSTALLED_GROUP, ConfigReading, Members, read_config
from ..errors import DaemonError, HardwareBusy, NoDaemon, NotPermitted, UsageError
from ..hardware.axes import title
from ..hardware.baseline import BaselineStore
from ..hardware.clocks.emc_interfaces import NOT_MOUNTED
from ..hardware.files import LONGEST_S, Files
from ..hardware.hardware import LOCKED, Hardware
from ..hardware.jetson_stats import connect
from ..hardware.power_modes import pending_units
from ..profile import choose_profile
from ..system.folders import RUNTIME_DIR, STATE_DIR
from ..system.rivals import find_rivals
from ..system.state import (
    BASELINE_FOLDER,
    default_runtime_dir,
    default_state_dir,
    is_held,
    is_running_system,
    locked_in_passing,
)
from ..wire.client import Client
from ..wire.protocol import answers
from ..worker import landlock, seccomp
from .config import beyond_the_text
from .output import RedText, print_json, shown

Verdict: TypeAlias = Literal["ok", "note", "unknown", "wrong"]


class Finding(NamedTuple):
    """One line of ``jetdvfs doctor``; ``verdict`` is ``note`` for a limited function, ``unknown`` for an unseen one."""

    check: str
    said: str
    remedy: str = ""
    exit_code: int = 5
    verdict: Verdict = "ok"


ok = Finding
note = partial(Finding, verdict="note")
unknown = partial(Finding, verdict="unknown")
wrong = partial(Finding, verdict="wrong")


def is_root() -> bool:
    return os.geteuid() == 0


def _examined_system() -> Iterator[Finding]:
    yield ok("versions", f"jetdvfs {__version__}, Python {platform.python_version()}, kernel {platform.release()}")
    try:
        from ...kernels.trees import _sweep  # noqa: F401
    except ImportError:
        yield note("compiled part", "missing: the sweep runs on NumPy, many times slower", "install with a C compiler present")
    else:
        yield ok("compiled part", "the sweep runs compiled")
    if seccomp.is_offered():
        yield ok("seccomp", "the kernel filters the system calls of readers of models")
    else:
        yield note("seccomp", "this kernel has none: readers of models have one wall less")
    version = landlock.version()
    if version > 0:
        yield ok("Landlock", f"version {version}: readers of models see no files but theirs")
    else:
        yield note("Landlock", "off in this kernel (lsm=), or not in it: readers of models have one wall less")


def membership(name: str) -> Finding:
    try:
        group = grp.getgrnam(name)
    except KeyError:
        return wrong("group", f"there is no group {name}: only root reaches the daemon", "sudo systemd-sysusers", 3)
    if is_root() or group.gr_gid in os.getgroups() or group.gr_gid == os.getegid():
        return ok("group", f"you may ask the daemon{' as root' if is_root() else f': you are in the group {name}'}")
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container that has no name for it
        return wrong("group", f"your user, number {os.getuid()}, has no name here and is not in the group {name}", exit_code=3)
    if user in group.gr_mem:
        return wrong("group", f"you have joined the group {name} since you logged in", "log in again", 3)
    return wrong("group", f"you are not in the group {name}", f"sudo usermod -aG {name} {user}, then log in again", 3)


UNIT = "jetdvfsd.service"
CONFLICTS = ("jetson_clocks", "power-profiles-daemon", "tuned", "tuned-ppd", "tlp", "tlp-pd", "auto-cpufreq")
_BOOTED = Path("/run/systemd/system")
_LONGEST_S = 10.0


def _examined_manager() -> Iterator[Finding]:
    if not _BOOTED.is_dir():
        yield note("service", "systemd does not run this system: jetdvfsd has to be started and watched by other means")
        return
    units = _units(UNIT)
    if units is None:
        yield unknown("service", "systemctl does not answer")
        return
    state = units[UNIT]
    if state["LoadState"] != "loaded":
        yield wrong("service", f"{UNIT} is not installed", "docs/install.md says how", 6)
        return
    running = f"{UNIT} is {state['ActiveState']} ({state['SubState']})"
    if state["ActiveState"] == "active":
        yield ok("service", running)
    elif state["ActiveState"] == "failed":
        yield wrong("service", f"{running}: {state['Result']}", "journalctl -u jetdvfsd -n 20 says why", 6)
    else:
        yield note("service", running, "sudo systemctl start jetdvfsd")
    if state["UnitFileState"] == "enabled":
        yield ok("at boot", "the service is started")
    else:
        yield note("at boot", "the service is not started", "sudo systemctl enable jetdvfsd")
    if state["NRestarts"] != "0":
        yield note("service", f"started again {state['NRestarts']} times after failures", "journalctl -u jetdvfsd says why")


def rivals(root: Path, *, running: bool) -> Iterator[Finding]:
    """Units that set the same clocks: enabled ones, and on a ``running`` machine those of :data:`CONFLICTS`."""
    found = {unit: f"is enabled and runs {command}" for unit, command in find_rivals(root).items()}
    units = _units(*(f"{name}.service" for name in CONFLICTS)) if running and _BOOTED.is_dir() else None
    for unit, state in (units or {}).items():
        if state["ActiveState"] == "active" or state["UnitFileState"].startswith("enabled"):
            found.setdefault(unit, f"is {state['ActiveState']}, {state['UnitFileState'] or 'not enabled'}")
    for unit, what in found.items():
        yield wrong("other services", f"{unit} sets clocks, too: it {what}", f"sudo systemctl disable --now {unit}")
    if not found:
        yield ok("other services", "none that is enabled or runs sets clocks")


def _units(*names: str) -> dict[str, dict[str, str]] | None:
    shown = ("Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "Result", "NRestarts")
    try:
        done = subprocess.run(
            ["systemctl", "show", f"--property={','.join(shown)}", *names],
            capture_output=True,
            text=True,
            check=True,
            timeout=_LONGEST_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    blocks = (dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in done.stdout.split("\n\n"))
    found = {block["Id"]: {name: block.get(name, "") for name in shown} for block in blocks if "Id" in block}
    return found if set(names) <= found.keys() else None


_ANSWER_S = 5.0


def _examined_service(socket: Path) -> Iterator[Finding]:
    try:
        with Client(socket, timeout_s=_ANSWER_S) as client:
            status = client.status()
    except NotPermitted as error:
        yield wrong("daemon", str(error), exit_code=error.exit_code)
    except NoDaemon as error:
        yield wrong("daemon", str(error), "sudo systemctl enable --now jetdvfsd", error.exit_code)
    except DaemonError as error:
        yield wrong("daemon", str(error), "sudo systemctl restart jetdvfsd", error.exit_code)
    else:
        yield ok("daemon", f"answers on {socket}; {len(status['leases']) or 'no'} leases")
        if status["version"] != __version__:
            said = f"the running daemon is version {status['version']}, this command {__version__}"
            yield note("versions", said, "sudo systemctl restart jetdvfsd")
        yield from (note("daemon", reason) for reason in status["degraded"])


def left_behind(root: Path, runtime_dir: Path, state_dir: Path, socket: Path) -> Finding:
    if is_held(root) or (is_running_system(root) and not is_root() and answers(socket)):
        return _kept_by_daemon(socket)
    store = BaselineStore(runtime_dir / BASELINE_FOLDER, state_dir)
    try:
        if store.empty:
            return ok("baseline", f"nothing waits to be restored: {store.folder} keeps no baseline, and no daemon was found")
        if not is_root():
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
        with Client(socket, timeout_s=_ANSWER_S) as client:
            held = client.status()["baseline"] == "held"
    except DaemonError:
        return unknown("baseline", "a daemon runs on this board and does not answer here", "--socket names another")
    if held:
        return ok("baseline", f"kept by the daemon at {socket}, to be restored when nothing is held any more")
    return ok("baseline", f"nothing waits to be restored: the daemon at {socket} holds nothing")


_ORDER: tuple[Verdict, ...] = ("wrong", "note", "unknown", "ok")


def configure(parser: argparse.ArgumentParser) -> None:
    arguments.add_root(parser)
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"default: {DEFAULT_PATH}, if there is one")
    arguments.add_socket(parser)
    arguments.add_state_dir(parser)
    arguments.add_runtime_dir(parser)
    arguments.add_json(parser)
    group = parser.add_argument_group("bug report")
    group.add_argument(
        "--bug-report",
        nargs="?",
        const="",
        metavar="FILE",
        help="write an archive for a bug report, without names of hosts, users and paths, addresses and serial numbers "
        "(default: jetdvfs-BOARD-DATE.tar.gz); on a terminal it lists the members and asks first",
    )
    group.add_argument("--yes", action="store_true", help="with --bug-report: write without asking")
    group.add_argument("--dry-run", action="store_true", help="with --bug-report: print every member; write nothing")


def run(args: argparse.Namespace) -> int:
    if (args.yes or args.dry_run) and args.bug_report is None:
        raise UsageError("--yes and --dry-run need --bug-report")
    findings = list(_examine(args))
    if args.bug_report is not None:
        from . import bug_report  # loaded on use

        return bug_report.run(args, [finding._asdict() for finding in findings])
    ailing = [finding for finding in findings if finding.verdict == "wrong"]
    if args.json:
        print_json({"well": not ailing, "checks": [finding._asdict() for finding in findings]})
    else:
        for finding in sorted(findings, key=lambda one: _ORDER.index(one.verdict)):
            remedy = f"  ->  {finding.remedy}" if finding.remedy else ""
            verdict = f"{finding.verdict:8}"
            said = printable(f"{finding.check:14} {finding.said}{remedy}")
            print(shown(RedText(verdict) if finding.verdict == "wrong" else verdict), said)
    return ailing[0].exit_code if ailing else 0


def _examine(args: argparse.Namespace) -> Iterator[Finding]:
    here = args.root.resolve() == Path("/")
    reading = read_config(args.config)
    members = reading.members or Members()
    yield from _examined_system()
    hardware, identified = _board(args.root, members)
    found = None if hardware is None else hardware.description.name
    configuration = _configuration(reading, members.board or found)
    yield identified
    if hardware is not None:
        yield from _assumed(hardware.description)
        yield from _clocks(hardware, held=is_held(args.root))
        yield from _measured(hardware)
        yield _profile(members, hardware.description.name, running_system=here)
    yield from configuration
    if here:
        yield _jetson_stats()
        yield from _examined_manager()
        yield membership(members.socket_group or INSTALLED_GROUP)
    yield from rivals(args.root, running=here)
    socket = args.socket or arguments.board_socket(args.root)
    yield from _examined_service(socket)
    # On this machine the system's daemon for every user; of another board a user's own, too.
    state_dir = args.state_dir or (STATE_DIR if here and not is_root() else default_state_dir(args.root))
    runtime_dir = args.runtime_dir or (RUNTIME_DIR if here and not is_root() else default_runtime_dir(args.root))
    yield left_behind(args.root, runtime_dir, state_dir, socket)


def _configuration(reading: ConfigReading, board: str | None) -> list[Finding]:
    problems = (*reading.problems, *beyond_the_text(reading, board))
    findings = [wrong("configuration", str(one), exit_code=2) for one in problems]
    findings += [note("configuration", str(remark)) for remark in reading.warnings]
    files = ", ".join(str(layer.path) for layer in reading.stack.layers)
    return findings or [ok("configuration", files or "no file: every member has its default")]


def _board(root: Path, members: Members) -> tuple[Hardware | None, Finding]:
    try:
        hardware = Hardware.probe(
            Files(root, longest_s=LONGEST_S), SystemClock(), board=members.board, clusters=members.clusters
        )
    except DaemonError as error:
        return None, wrong("board", str(error), "name one that it is like: board: NAME in the configuration", error.exit_code)
    release = hardware.identity
    software = ", ".join(
        f"{name} {value}"
        for name, value in (("JetPack", release.jetpack), ("L4T", release.l4t), ("kernel", release.kernel))
        if value
    )
    return hardware, ok(
        "board", f"{hardware.description.title} ({hardware.description.name}), {software or 'of unknown release'}"
    )


def _assumed(board: BoardDescription) -> Iterator[Finding]:
    unread = ", ".join(name for name, mark in board.marks.items() if mark == "unknown")
    if board.sibling:
        text = f"{board.title} is described like {board.sibling}{f'; unknown of its own: {unread}' if unread else ''}"
        yield note("board", text, "the running system's own tables and limits count")


def _clocks(hardware: Hardware, *, held: bool) -> Iterator[Finding]:
    """Findings about the clocks; ``held`` with a daemon on the board, which owns the memory lock."""
    closed = {title(axis): files for axis, files in hardware.closed_files().items()}
    for clock, files in closed.items():
        if files and is_root():
            yield wrong(
                "clock files", f"{clock}: {files[0]} cannot be written", "mount | grep sys says whether its place is read-only"
            )
    if not any(closed.values()):
        yield ok("clock files", f"{', '.join(closed) or 'none'}: all can be written")
    elif not is_root():
        yield unknown("clock files", f"{', '.join(closed)}: root's to write", "sudo jetdvfs doctor tries")
    for said in hardware.notes:
        if (held and said.startswith(LOCKED)) or said in (hardware.mode_note, *hardware.sensors.notes):
            continue
        if "EACCES" in said and not is_root():
            yield unknown("board", said, "sudo jetdvfs doctor sees more")
        elif NOT_MOUNTED in said:
            yield note("debugfs", said, "sudo mount -t debugfs none /sys/kernel/debug")
        else:
            yield note("board", said)
    yield from (wrong("limits", unknown) for unknown in hardware.seen()[1])
    yield from (note("limits", moved) for moved in hardware.moved_limits())


def _measured(hardware: Hardware) -> Iterator[Finding]:
    rails = hardware.sensors.rails_mw()
    if not rails:
        yield note("power rails", "none can be read: energy is predicted and not measured")
    elif not hardware.sensors.notes:
        yield ok("power rails", ", ".join(f"{rail} {power / 1000:.2f} W" for rail, power in rails.items()))
    yield from (note("power rails", said) for said in hardware.sensors.notes)
    mode = hardware.mode()
    unknown_mode = hardware.mode_note or "nvpmodel does not say which is in force"
    yield ok("power mode", f"{mode.id} {mode.name}") if mode else note("power mode", unknown_mode)
    if pending := pending_units(mode, hardware.masks(mode)):
        yield note("power mode", pending, "sudo reboot")


def _profile(members: Members, board: str, *, running_system: bool) -> Finding:
    try:
        profile, notes = choose_profile(members.profile, board, running_system=running_system)
        if profile is not None:
            from ...profiles.bundle.bundle import read_manifest

            read_manifest(profile.path)
    except (DaemonError, ProfilesError) as error:
        return wrong("profile", str(error), "jetdvfs profile list lists them", error.exit_code)
    if profile is None:
        said = next(iter(notes), f"none of board {board}: configurations can be held, nothing can be predicted")
        return note("profile", said)
    simulated = ", measured on a simulated board" if profile.identity.simulated else ""
    return ok("profile", f"{profile.identity.name}{simulated}")


def _jetson_stats() -> Finding:
    with connect() as stats:
        if stats is None:
            return ok("jetson-stats", "not in use: it is never needed")
        return ok("jetson-stats", f"answers: {stats.module or 'a module without a name'}")
