# SPDX-License-Identifier: Apache-2.0
"""A command that runs while something is held or measured: its output and its signals are its own."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)
_CANNOT_EXECUTE, _NO_SUCH_COMMAND = 126, 127
NEVER_RAN = (_CANNOT_EXECUTE, _NO_SUCH_COMMAND)
"""What shells return for a command that could not be executed."""


def refused(command: str, tell: Callable[[str], object]) -> int | None:
    """Say why a command cannot be executed, and return the exit code that shells have for that; None where it can."""
    if shutil.which(command) is not None:
        return None
    found = bool(command) and Path(command).exists()
    tell(f"{command}: {'cannot be executed' if found else 'no such command'}")
    return _CANNOT_EXECUTE if found else _NO_SUCH_COMMAND


def run_command(command: list[str], mask: Iterable[int], tell: Callable[[str], object]) -> int:
    """Run the command with this signal mask and return its exit code, 128 + N where signal N ended it, as shells do.

    Whoever calls this has blocked :data:`ENDING` before; it stays blocked.
    """
    try:
        # It takes signals from its first moment on: until it has replaced this program, by their default.
        pid = os.posix_spawnp(command[0], command, os.environ, setsigmask=mask, setsigdef=[*ENDING, *_PYTHON_IGNORES])
    except OSError as error:
        tell(f"{command[0]}: {error.strerror}")
        return _NO_SUCH_COMMAND if isinstance(error, FileNotFoundError) else _CANNOT_EXECUTE

    def pass_on(number: int, _: object) -> None:
        os.kill(pid, number)

    # The lease must outlive the command. A terminal's interrupt reaches the command by itself, if it was there already.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    if signal.SIGINT in signal.sigpending():
        os.kill(pid, signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    # Once it is waited for, its number may be somebody else's.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code
