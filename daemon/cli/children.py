# SPDX-License-Identifier: Apache-2.0
"""Child processes of a verb."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from ..errors import DaemonError, NoDaemon
from ..wire.client import Client

START_S = 30.0
_STOP_S = 15.0


class ChildError(DaemonError):
    """A child did not start or ended early."""

    exit_code = 5


class Child(Struct):
    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    def last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self.popen.poll()}"

    def stop(self) -> int | None:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        return self.popen.returncode


def spawn(name: str, command: Sequence[str], folder: Path) -> Child:
    """Start a module, with a pipe as output and errors in ``folder``; it ends, and the folder is removed, with this process."""
    log = folder / f"{name.split()[-1]}.log"
    tethered = [sys.executable, "-m", "jetdvfs.daemon.cli.tethered", str(os.getpid()), str(folder), *command]
    with log.open("wb") as errors:
        popen = subprocess.Popen(tethered, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, cwd=folder)
    return Child(name, popen, log)


def when_it_answers(daemon: Child, socket: Path) -> Client:
    deadline = time.monotonic() + START_S
    while True:
        try:
            client = Client(socket)
            client.status()
            return client
        except NoDaemon as error:
            if daemon.popen.poll() is not None or time.monotonic() > deadline:
                raise ChildError(f"{daemon.name} did not start: {daemon.last_words()}") from error
            time.sleep(0.05)


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)
_CANNOT_EXECUTE, _NO_SUCH_COMMAND = 126, 127
NEVER_RAN = (_CANNOT_EXECUTE, _NO_SUCH_COMMAND)


def refused(command: str, tell: Callable[[str], object]) -> int | None:
    if shutil.which(command) is not None:
        return None
    found = bool(command) and Path(command).exists()
    tell(f"{command}: {'cannot be executed' if found else 'no such command'}")
    return _CANNOT_EXECUTE if found else _NO_SUCH_COMMAND


def run_command(command: list[str], mask: Iterable[int], tell: Callable[[str], object]) -> int:
    """Run the command with this signal mask; return its exit code, 128 + N for signal N.

    The caller has blocked :data:`ENDING`; it stays blocked.
    """
    try:
        # Default signal handling until the command has replaced this program.
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
    # After the wait its number may be another process's.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code
