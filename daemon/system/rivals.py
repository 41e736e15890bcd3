# SPDX-License-Identifier: Apache-2.0
"""Other units that set clocks, found in the files of all enabled units.

A service that ran at boot and ended counts: it runs again at the next boot, or when its timer is due.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

_FOLDERS = [f"{place}/systemd/system" for place in ("etc", "run", "usr/local/lib", "usr/lib", "lib")]
_OURS = frozenset({"jetdvfsd.service", "jetdvfsd.socket", "nvpmodel.service", "nvpower.service"})
"""Units of this product, and of NVIDIA's initial settings."""
_RUNS = re.compile(r"^\s*Exec(?:Start|StartPre|StartPost|Condition)\s*=(.*)$", re.MULTILINE)
_STARTS = re.compile(r"^\s*(?:Unit|Wants|Requires|BindsTo|Upholds)\s*=(.*)$", re.MULTILINE)
_ONCE = (
    r"jetson_clocks(?:\.sh)?(?!\s+--(?:show|store|help))|nvpmodel\b[^\n;&|]*\s(?:-m\s*\w+|--mode\S*)"
    r"|cpupower(?!\s+(?:\S*info|monitor))|cpufreq-set"
)
_SERVICES = "tlp(?:-pd)?|tuned(?:-ppd)?|power-profiles-daemon|auto-cpufreq"
_OF_SCRIPT, _OF_UNIT = (
    re.compile(rf"(?<![\w.-])({commands})(?=$|[\s;&|'\")])", re.MULTILINE) for commands in (_ONCE, f"{_ONCE}|{_SERVICES}")
)
_MOST_BYTES = 1 << 16


def find_rivals(root: Path) -> dict[str, str]:
    todo, seen = [*_enabled(root)], dict[str, str]()
    known = set(_OURS)
    while todo:
        unit = todo.pop()
        if unit in known:
            continue
        known.add(unit)
        text = "\n".join(_texts(root, unit)).replace("\\\n", " ")
        todo += [name for line in _STARTS.findall(text) for name in line.split()]
        if unit.endswith((".timer", ".path", ".socket")):
            todo.append(f"{unit.rpartition('.')[0]}.service")
        if command := _command(root, _RUNS.findall(text)):
            seen[unit] = command
    if command := _set_in(_text(root / "etc/rc.local"), _OF_SCRIPT):
        seen["rc-local.service"] = command
    return dict(sorted(seen.items()))


def who_sets(paths: Collection[str], root: Path) -> tuple[str, ...]:
    """Processes that may have just written files below ``root``: those with one open, and commands that set clocks.

    Ended processes leave no trace. Open files of a process are visible with its rights only.
    """
    real = {os.path.realpath(root / path.lstrip("/")) for path in paths}
    found = []
    for process in (path for path in Path("/proc").iterdir() if path.name.isdecimal() and path.name != str(os.getpid())):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ").strip()
            command = _set_in(words, _OF_UNIT)
            if not command:
                with contextlib.suppress(PermissionError):
                    opened = (str(one.readlink()) for one in (process / "fd").iterdir())
                    command = words.partition(" ")[0] if not real.isdisjoint(opened) else ""
            if command:
                unit = re.findall(r"([\w@.\\:-]+\.service)", (process / "cgroup").read_text())
                found.append(f"{command} (pid {process.name}{f', {unit[-1]}' if unit else ''})")
    return tuple(found)


def _enabled(root: Path) -> Iterator[str]:
    for folder in _FOLDERS:
        for pattern in ("*.wants/*", "*.requires/*"):
            yield from (link.name for link in (root / folder).glob(pattern))


def _texts(root: Path, unit: str) -> Iterator[str]:
    """A unit's file in the first folder that has one, and its drop-ins; nothing if masked."""
    names = dict.fromkeys((unit, re.sub(r"@[^.]*\.", "@.", unit)))
    places = (root / folder / name for name in names for folder in _FOLDERS)
    found = next((path for path in places if path.is_symlink() or path.is_file()), None)
    if found is None:
        return
    target = found.readlink() if found.is_symlink() else None
    if target is not None and str(target) == "/dev/null":
        return
    # An absolute link is relative to the root.
    yield _text(root / str(target).lstrip("/") if target is not None and target.is_absolute() else found)
    for name in names:
        for folder in _FOLDERS:
            yield from (_text(path) for path in (root / folder / f"{name}.d").glob("*.conf"))


def _command(root: Path, lines: list[str]) -> str:
    for line in lines:
        if found := _set_in(line, _OF_UNIT):
            return found
        for word in re.findall(r"/[^\s;&|'\"]+", line):
            script = _text(root / word.lstrip("/"))
            if script.startswith("#!") and (found := _set_in(script, _OF_SCRIPT)):
                return found
    return ""


def _set_in(text: str, commands: re.Pattern[str]) -> str:
    found = commands.search(re.sub(r"(?m)^\s*#.*$", "", text))
    return " ".join(found[1].split()) if found else ""


def _text(path: Path) -> str:
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
