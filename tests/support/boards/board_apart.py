# SPDX-License-Identifier: Apache-2.0
"""A simulated board that a process of its own serves, so that the board's programs can be run from here.

While a process starts a program, its interpreter may stand still until the program's file has been read (Python 3.13 starts
it by ``posix_spawn``, Python 3.10 and early 3.11 by ``vfork``, all without letting other threads run): a process that serves
the file itself would wait for itself.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.kernels.network import Network
from jetdvfs.profiles.adapt.application import Application, MessageStream, application_port
from jetdvfs.profiles.board import BoardDescription
from jetdvfs.profiles.twin.application_port import ApplicationPort
from jetdvfs.profiles.twin.serve import serve
from jetdvfs.profiles.twin.simulated_board import simulated_board
from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.tests.support.daemons.board_daemon import BoardFiles

_READY_S = 60.0
_ENDING_S = 15.0


class BoardApart(BoardFiles):
    """A board that another process serves by FUSE, reached by its files and by its application port."""

    def __init__(self, root: Path, application: Application) -> None:
        super().__init__(root)
        self._application = application

    @property
    def clocks(self) -> FrequencyConfiguration:
        return FrequencyConfiguration(**self._application.request("state")["effective"])

    @property
    def reboots(self) -> int:
        """How often one of its programs was allowed to reboot it."""
        return int(self._application.request("state")["reboots"])

    def misbehave(self, tool: str, how: str) -> None:
        self._application.request("fault", kind="tool", tool=tool, how=how)

    def mend(self) -> None:
        self._application.request("fault", kind="clear")

    @contextmanager
    def busy_with(self, network: Network, fps: float) -> Iterator[None]:
        """An application that runs frames until the context ends."""
        loaded = self._application.load(network)
        with socket.socket(socket.AF_UNIX) as application:
            application.connect(str(application_port(self.root)))
            MessageStream(application).send({"op": "run", "network": loaded, "fps": fps, "seconds": 600})
            yield


@contextmanager
def board_apart(root: Path, board: str | BoardDescription = "agx-xavier", jetpack: str = "") -> Iterator[BoardApart]:
    """A board served by FUSE on a new folder; skips the test where that cannot be had."""
    if fuse.missing():
        pytest.skip(f"the simulated board needs FUSE: {fuse.missing()}")
    here, there = multiprocessing.Pipe()
    # Forked from a process without threads that has all it takes loaded: a hundredth of the time of a fresh interpreter.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_serve, args=(board, jetpack, root, there), daemon=True)
    process.start()
    there.close()
    try:
        assert here.poll(_READY_S), "the simulated board was not served in time"
        here.recv()
        with Application(application_port(root)) as application:
            yield BoardApart(root, application)
    finally:
        here.close()
        process.join(_ENDING_S)
    assert process.exitcode == 0


def _serve(board: str | BoardDescription, jetpack: str, root: Path, asker: Connection) -> None:
    """Serve a board until the asker is gone."""
    twin = simulated_board(board, jetpack=jetpack)
    with serve(twin, root, "fuse"), contextlib.closing(ApplicationPort(twin, application_port(root))):
        asker.send(None)
        with contextlib.suppress(EOFError):
            asker.recv()


def start_twin(board: str, mount: Path, backend: str) -> tuple[subprocess.Popen[str], dict[str, object]]:
    """The command that serves a board, and what it says when that is ready."""
    command = [sys.executable, "-m", "jetdvfs.daemon.cli", "twin", "serve", "--json"]
    command += ["--board", board, "--mount", str(mount), "--backend", backend]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())
