# SPDX-License-Identifier: Apache-2.0
"""What systemd says of the service, and of others that would set the same clocks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...system.rivals import find_rivals
from .findings import Finding, note, ok, unknown, wrong

UNIT = "jetdvfsd.service"
CONFLICTS = ("jetson_clocks", "power-profiles-daemon", "tuned", "tuned-ppd", "tlp", "tlp-pd", "auto-cpufreq")
"""Services that set clocks, too; the unit names them as conflicts."""
_BOOTED = Path("/run/systemd/system")
_LONGEST_S = 10.0


def examine() -> Iterator[Finding]:
    if not _BOOTED.is_dir():
        yield note("service", "systemd does not run this system: jetdvfsd has to be started and watched by other means")
        return
    units = _units(UNIT)
    if units is None:
        yield unknown("service", "systemctl does not answer")
        return
    yield from _service(units[UNIT])


def rivals(root: Path, *, running: bool) -> Iterator[Finding]:
    """Findings about units that set the same clocks: enabled ones, and those of :data:`CONFLICTS` that run.

    Args:
        root: directory that stands for the system's ``/``.
        running: it is this machine's own.
    """
    found = {unit: f"is enabled and runs {command}" for unit, command in find_rivals(root).items()}
    units = _units(*(f"{name}.service" for name in CONFLICTS)) if running and _BOOTED.is_dir() else None
    for unit, state in (units or {}).items():
        if state["ActiveState"] == "active" or state["UnitFileState"].startswith("enabled"):
            found.setdefault(unit, f"is {state['ActiveState']}, {state['UnitFileState'] or 'not enabled'}")
    for unit, what in found.items():
        yield wrong("other services", f"{unit} sets clocks, too: it {what}", f"sudo systemctl disable --now {unit}")
    if not found:
        yield ok("other services", "none that is enabled or runs sets clocks")


def _service(state: Mapping[str, str]) -> Iterator[Finding]:
    if state["LoadState"] != "loaded":
        yield wrong("service", f"{UNIT} is not installed", "docs/installing.md says how", 6)
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


def _units(*names: str) -> dict[str, dict[str, str]] | None:
    """What systemctl shows of each unit."""
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
