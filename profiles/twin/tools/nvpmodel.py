# SPDX-License-Identifier: Apache-2.0
"""Simulated nvpmodel.

It turns the GPU's power on, applies masks, cores and clocks, and returns the power to automatic. A mask after the GPU's first
use needs a reboot, confirmed on standard input; else the mode stays. Values outside a clock's table are rounded down silently.
A lower limit above the present upper one fails, with the earlier writes applied and the old mode noted.
"""

from __future__ import annotations

import argparse
import errno
import re
import sys
from collections.abc import Sequence

from .modes_file import NEWER, POWER_AUTO, POWER_ON, ConfiguredMode, ModeLine, ModesFile, parse
from .system import REBOOT_FILE, ToolSystem

CONF = "/etc/nvpmodel.conf"
STATUS = "/var/lib/nvpmodel/status"
_FAILED = 255
_NO_LIMIT = 2**64 - 1


class _Failed(Exception):
    pass


class _NeedsReboot(Exception):
    pass


def main(arguments: Sequence[str], root: str) -> int:
    parser = argparse.ArgumentParser(prog="nvpmodel", description="Simulated: a twin's power modes.")
    parser.add_argument("-q", dest="query", action="store_true", help="say which mode is in force")
    parser.add_argument("-m", dest="mode", type=int, metavar="ID", help="change the mode")
    parser.add_argument("-p", dest="print", action="store_true", help="print the configuration")
    parser.add_argument("-f", dest="file", default=CONF, metavar="FILE", help="another configuration")
    parser.add_argument("--boot", action="store_true", help="apply the mode noted last, or the default, as at boot")
    parser.add_argument("--verbose", action="store_true", help="say more")
    args = parser.parse_args(arguments)
    try:
        tool = SimulatedNvpmodel(ToolSystem(root, "nvpmodel"), args.file, args.verbose)
        if args.print:
            tool.show()
        if args.mode is not None:
            return tool.switch(args.mode)
        if args.boot:
            return tool.switch(tool.noted())
        if args.query:
            tool.query()
    except (_Failed, OSError, ValueError, KeyError) as error:
        print(f"NVPM ERROR: {error}", flush=True)
        return _FAILED
    return 0


class SimulatedNvpmodel:
    def __init__(self, system: ToolSystem, path: str, verbose: bool) -> None:
        self._system = system
        self._verbose = verbose
        self._modes: ModesFile = parse(system.read(path))
        self._say(f"Config file: {path}")

    def noted(self) -> int:
        told = re.match(r"pmode:(\d+)", self._system.find(STATUS) or "")
        return int(told[1]) if told else self._modes.default

    def query(self) -> None:
        if self._system.misbehaves("hangs-on-query"):
            self._system.hang()
        number = self.noted()
        mode = self._modes.mode(number)
        if mode is None:
            raise _Failed(f"mode {number} is noted as the one in force and is not in the configuration")
        if "R32 " in (self._system.find("/etc/nv_tegra_release") or ""):
            print("NVPM WARN: fan mode is not set!")
        prefix = "NVPM VERB: Current mode: " if self._verbose else ""
        print(f"{prefix}NV Power Mode: {mode.name}\n{mode.id}")
        for line in mode.lines:
            path = self._path(line)
            self._say(
                f"PARAM {line.parameter}: ARG {line.argument}: PATH {path}: "
                f"REAL_VAL: {self._system.find(path)} CONF_VAL: {line.value}"
            )

    def show(self) -> None:
        default = self._modes.mode(self._modes.default)
        print(f"NVPM VERB: PM_CONFIG: DEFAULT={default.name if default else '?'}({self._modes.default})")
        for mode in self._modes.modes:
            print(f"NVPM VERB: POWER_MODEL: ID={mode.id} NAME={mode.name}")
            for line in mode.lines:
                print(f"NVPM VERB: {' '.join(line)}")

    def switch(self, number: int) -> int:
        mode = self._modes.mode(number)
        if mode is None:
            raise _Failed(f"there is no mode {number}")
        if self._system.misbehaves("hangs"):
            self._system.hang()
        if self._system.misbehaves("hangs-under-load"):
            self._system.wait_for_idle_gpu()
        if self._system.misbehaves("lies"):
            return 0
        try:
            self._apply(mode)
        except _NeedsReboot:
            if not self._may_reboot(number):
                return _FAILED
            self._note(number)
            self._system.write(REBOOT_FILE, 1)
            return 0
        self._note(number)
        return int(self._system.misbehaves("complains"))

    def _note(self, number: int) -> None:
        self._system.write(STATUS, f"pmode:{number:04d}")

    def _may_reboot(self, number: int) -> bool:
        print(f"NVPM WARN: mode {number} takes a reboot\nNVPM WARN: reboot now? YES/yes to confirm:", flush=True)
        if sys.stdin.readline().strip() in ("YES", "yes"):
            return True
        print("NVPM ERROR: bad input!", flush=True)
        return False

    def _apply(self, mode: ConfiguredMode) -> None:
        def turn(line: ModeLine) -> int:
            if line.parameter == POWER_ON:
                return 0
            if line.parameter == POWER_AUTO:
                return 4
            if line.argument.endswith("_PG_MASK"):
                return 1
            return 2 if self._modes.parameters[line.parameter].kind == "FILE" else 3

        for line in sorted(mode.lines, key=turn):
            path = self._path(line)
            value = self._in_table(line) if self._modes.parameters[line.parameter].kind == "CLOCK" else line.value
            self._say(f"PARAM {line.parameter}: ARG {line.argument}: PATH {path}: VAL {value}")
            if line.argument == "MIN_FREQ":
                highest = self._system.read(self._path(line._replace(argument="MAX_FREQ")))
                if int(value) > int(highest):
                    raise _Failed(f"{line.parameter} MIN_FREQ {value}: greater than the current max value {highest}")
            self._set(line, path, value)

    def _set(self, line: ModeLine, path: str, value: str) -> None:
        if self._system.find(path) == value:
            return
        try:
            self._system.write(path, value)
        except OSError as error:
            if line.argument.endswith("_PG_MASK") and error.errno == errno.EBUSY:
                raise _NeedsReboot from error
            raise

    def _in_table(self, line: ModeLine) -> str:
        """Value in a clock's table: -1 is the highest, 0 the lowest; without a table any number."""
        if "FREQ_TABLE" not in self._modes.parameters[line.parameter].paths:
            return str(_NO_LIMIT) if line.value == "-1" else line.value
        table = sorted(map(int, self._system.read(self._path(line._replace(argument="FREQ_TABLE"))).split()))
        wanted = int(line.value)
        return str(table[-1] if wanted < 0 else max((rate for rate in table if rate <= wanted), default=table[0]))

    def _path(self, line: ModeLine) -> str:
        paths = self._modes.parameters[line.parameter].paths
        newer = paths.get(line.argument + NEWER)
        return newer if newer and self._system.place(newer).exists() else paths[line.argument]

    def _say(self, text: str) -> None:
        if self._verbose:
            print(f"NVPM VERB: {text}", flush=True)
