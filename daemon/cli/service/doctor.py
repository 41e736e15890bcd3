# SPDX-License-Identifier: Apache-2.0
"""Say what works here, what does not, and what to do about it: a line for each.

Looks at this system, the board, the configuration, the service and the daemon, and changes nothing. Every user may ask; what
only root can see is marked `unknown`. `wrong` keeps the daemon from its job and comes first, `note` makes it do less than it
could. Ends with 0 where nothing is wrong, else with the exit code of the first thing that is.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from ....kernels.text import printable
from ....profiles.bundle.bundle import read_manifest
from ....profiles.errors import ProfilesError
from ....profiles.timing import SystemClock
from ... import arguments
from ...config import DEFAULT_PATH, INSTALLED_GROUP, ConfigReading, Members, read_config
from ...errors import DaemonError
from ...hardware.axes import title
from ...hardware.clocks.emc_ways import NOT_MOUNTED
from ...hardware.files import LONGEST_S, Files
from ...hardware.hardware import LOCKED, Hardware
from ...hardware.jetson_stats import connect
from ...profile import choose_profile
from ...system.board_lock import is_held
from ...system.folders import RUNTIME_DIR, STATE_DIR
from ...system.state import default_runtime_dir, default_state_dir
from ..colour import Red, shown
from ..output import print_json
from . import manager, service, system
from .config import beyond_the_text
from .findings import Finding, Verdict, note, ok, unknown, wrong

_ORDER: tuple[Verdict, ...] = ("wrong", "note", "unknown", "ok")


def configure(parser: argparse.ArgumentParser) -> None:
    arguments.add_root(parser)
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"default: {DEFAULT_PATH}, if there is one")
    arguments.add_socket(parser)
    arguments.add_state_dir(parser)
    arguments.add_runtime_dir(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    findings = list(_examine(args))
    ailing = [finding for finding in findings if finding.verdict == "wrong"]
    if args.json:
        print_json({"well": not ailing, "checks": [finding._asdict() for finding in findings]})
    else:
        for finding in sorted(findings, key=lambda one: _ORDER.index(one.verdict)):
            remedy = f"  ->  {finding.remedy}" if finding.remedy else ""
            verdict = f"{finding.verdict:8}"
            said = printable(f"{finding.check:14} {finding.said}{remedy}")
            print(shown(Red(verdict) if finding.verdict == "wrong" else verdict), said)
    return ailing[0].exit_code if ailing else 0


def _examine(args: argparse.Namespace) -> Iterator[Finding]:
    here = args.root.resolve() == Path("/")
    reading = read_config(args.config)
    members = reading.members or Members()
    yield from system.examine()
    hardware, identified = _board(args.root, members)
    found = None if hardware is None else hardware.description.name
    configuration = _configuration(reading, members.board or found)
    yield identified
    if hardware is not None:
        yield from _clocks(hardware, held=is_held(args.root))
        yield from _measured(hardware)
        yield _profile(members, hardware.description.name, running_system=here)
    yield from configuration
    if here:
        yield _jetson_stats()
        yield from manager.examine()
        yield system.membership(members.socket_group or INSTALLED_GROUP)
    yield from manager.rivals(args.root, running=here)
    socket = args.socket or arguments.board_socket(args.root)
    yield from service.examine(socket)
    # Of this machine the system's daemon, whoever asks; of a board elsewhere one of the user's own, too.
    state_dir = args.state_dir or (STATE_DIR if here and not system.is_root() else default_state_dir(args.root))
    runtime_dir = args.runtime_dir or (RUNTIME_DIR if here and not system.is_root() else default_runtime_dir(args.root))
    yield service.left_behind(args.root, runtime_dir, state_dir, socket)


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


def _clocks(hardware: Hardware, *, held: bool) -> Iterator[Finding]:
    """Findings about the clocks.

    Args:
        held: a daemon runs on the board: the lock of the memory clock is its own, or its own finding.
    """
    closed = {title(axis): files for axis, files in hardware.closed_files().items()}
    for clock, files in closed.items():
        if files and system.is_root():
            yield wrong(
                "clock files", f"{clock}: {files[0]} cannot be written", "mount | grep sys says whether its place is read-only"
            )
    if not any(closed.values()):
        yield ok("clock files", f"{', '.join(closed) or 'none'}: all can be written")
    elif not system.is_root():
        yield unknown("clock files", f"{', '.join(closed)}: root's to write", "sudo jetdvfs doctor tries")
    for said in hardware.notes:
        if (held and said.startswith(LOCKED)) or said in (hardware.mode_note, *hardware.sensors.notes):
            continue
        if "EACCES" in said and not system.is_root():
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


def _profile(members: Members, board: str, *, running_system: bool) -> Finding:
    try:
        profile, notes = choose_profile(members.profile, board, running_system=running_system)
        if profile is not None:
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
