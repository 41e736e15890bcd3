# SPDX-License-Identifier: Apache-2.0
"""Programs of this product that a verb runs as children for a while: a daemon of its own, a simulated board."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import DaemonError, NoDaemon
from ..wire.client import Client

START_S = 30.0
_STOP_S = 15.0


class ChildError(DaemonError):
    """A child did not start or ended early; its own words are in the text."""

    exit_code = 5


@dataclass
class Child:
    """A child, and the file that holds what it said on standard error."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    def last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self.popen.poll()}"

    def stop(self) -> int | None:
        """Ask it to end, wait, and insist after a while."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        return self.popen.returncode


def spawn(name: str, command: Sequence[str], folder: Path) -> Child:
    """Start a module of the product; its standard output is a pipe, what it complains about lies in ``folder``.

    However this process ends, it is asked to end then; where this one could not remove ``folder``, it does.
    """
    log = folder / f"{name.split()[-1]}.log"
    tethered = [sys.executable, "-m", "jetdvfs.daemon.cli.tethered", str(os.getpid()), str(folder), *command]
    with log.open("wb") as errors:
        popen = subprocess.Popen(tethered, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, cwd=folder)
    return Child(name, popen, log)


def when_it_answers(daemon: Child, socket: Path) -> Client:
    """A connection to a daemon that was just started.

    Raises:
        ChildError: it ended, or did not answer in time.
    """
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
