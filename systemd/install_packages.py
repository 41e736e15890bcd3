# SPDX-License-Identifier: Apache-2.0
"""Run pip install with one line of output per package.

    python systemd/install_packages.py ARGUMENT...   arguments of ``pip install``

If pip fails, all of its output follows.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time

_WHEEL = re.compile(
    r"^\s*(?:Downloading|Using cached|Processing) (?:\S*/)?([\w.]+)-([\w.+!]+)-[\w.-]+\.whl(?: (\([\d.]+ .?B\))| \(.*\))?$"
)
_BUILDING = re.compile(r"^\s*Building (?:editable|wheel) for ([\w.-]+)")
_UNPACKING = re.compile(r"^Installing collected packages: (.*)")
_COLLECTING = re.compile(r"^Collecting ([\w.-]+)")
_SILENT_S = 5.0


def line_for(said: str, silent_s: float) -> str | None:
    if found := _WHEEL.match(said):
        return " ".join(part for part in (found[1].replace("_", "-"), found[2], found[3]) if part)
    if found := _BUILDING.match(said):
        return f"building {found[1]}"
    if found := _UNPACKING.match(said):
        count = len(found[1].split(","))
        return f"unpacking {count} package{'s' * (count != 1)}"
    if silent_s > _SILENT_S and (found := _COLLECTING.match(said)):
        return f"looking up {found[1]}"
    return None


def main() -> int:
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", *sys.argv[1:]]
    output: list[str] = []
    shown: set[str] = set()
    printed_s = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as pip:
        assert pip.stdout is not None
        for said in pip.stdout:
            output.append(said)
            line = line_for(said, time.monotonic() - printed_s)
            if line is not None and line not in shown:
                shown.add(line)
                print(f"  {line}", flush=True)
                printed_s = time.monotonic()
    if pip.returncode != 0:
        sys.stderr.writelines(output)
    return pip.returncode


if __name__ == "__main__":
    sys.exit(main())
