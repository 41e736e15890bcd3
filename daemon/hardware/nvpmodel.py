# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's power-mode program, run without ever agreeing to a reboot."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import Struct

from ...profiles.board import PowerMode
from ..errors import HardwareBusy, HardwareRefused

PROGRAM = "/usr/sbin/nvpmodel"
# A mode change waits for cores to come and go; an unanswered prompt waits forever.
_LONGEST_S = 30.0
_DYING_S = 1.0
_MOST_SAID = 1 << 16


class ProgramResult(NamedTuple):
    code: int | None
    text: str


RunProgram = Callable[[Sequence[str]], ProgramResult]


def run_program(command: Sequence[str], longest_s: float = _LONGEST_S) -> ProgramResult:
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            raise HardwareRefused(f"{command[0]}: cannot be run ({error.strerror})") from error
        try:
            code: int | None = process.wait(longest_s)
        except subprocess.TimeoutExpired:
            code = None
            _end(process)
        said.seek(0)
        return ProgramResult(code, said.read(_MOST_SAID).decode("utf-8", "replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and all its children. One stuck in the kernel does not die and is not waited for."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_DYING_S)


class ModeSwitch(Struct, frozen=True):
    requested: str
    active: str
    needs_reboot: bool
    text: str

    @property
    def done(self) -> bool:
        return self.active == self.requested


class Nvpmodel:
    def __init__(self, program: str = PROGRAM, run: RunProgram = run_program) -> None:
        self._program = program
        self._run = run

    def query(self) -> str:
        """Name of the mode in force.

        Raises:
            HardwareBusy: it did not answer in time.
            HardwareRefused: unexpected output.
        """
        finished = self._run((self._program, "-q"))
        if finished.code is None:
            raise HardwareBusy(f"{self._program} -q: no answer within {_LONGEST_S:g} s")
        match = re.search(r"NV Power Mode: *(\S+)", finished.text)
        if match is None:
            raise HardwareRefused(f"{self._program} -q: said {finished.text.strip()[:80]!r}, expected 'NV Power Mode: NAME'")
        return match[1]

    def switch(self, mode: PowerMode) -> ModeSwitch:
        """Request a mode; a reboot prompt is never answered.

        The mode in force afterwards counts: the exit code is unreliable. Errors as for :meth:`query`.
        """
        finished = self._run((self._program, "-m", str(mode.id)))
        active = self.query()
        asked = active != mode.name and "reboot" in finished.text.lower()
        late = f"no answer within {_LONGEST_S:g} s; " if finished.code is None else ""
        return ModeSwitch(mode.name, active, asked, late + "; ".join(filter(None, map(str.strip, finished.text.splitlines()))))
