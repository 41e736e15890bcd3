# SPDX-License-Identifier: Apache-2.0
"""What a demonstration plays on: a simulated board and the real daemon on it, each a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import select
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from ....daemon.cli.children import START_S, Child, ChildError, spawn, when_it_answers
from ....daemon.hardware.files import Files
from ....daemon.hardware.hardware import Hardware
from ....daemon.planning.limits import Limits
from ....daemon.wire.client import Client
from ....kernels.grid import FrequencyConfiguration
from ....kernels.units import AXES
from ...board import BoardDescription
from ...timing import SystemClock


class Stage:
    """A simulated board and ``jetdvfsd`` on it, for as long as the context lasts.

    Args:
        board: the board's name.
        node: which individual of it.
        profile: the daemon's profile; empty for none.
        backend: how the tree is served: ``auto``, ``fuse`` or ``folder``.
        perturbed: which other silicon (:func:`~jetdvfs.profiles.twin.silicon.perturbed.perturbed`); 0 for the board's own.

    Attributes:
        root: the simulated board's file tree.
        application_port: the socket on which applications on the board are driven.
        backend: how it is served, ``fuse`` or ``folder``.
        notice: what the twin cannot do with this backend, or an empty string.
        socket: the daemon's socket.

    Raises:
        ChildError: one of the two did not start.
    """

    def __init__(self, board: str, node: int, profile: str, backend: str, perturbed: int = 0) -> None:
        self._names = (board, node, profile)
        self._perturbed = perturbed
        self._stack = contextlib.ExitStack()
        self.root = Path()
        self.application_port = ""
        self.backend = backend
        self.notice = ""
        self.socket = Path()
        self._daemon: Child | None = None

    def __enter__(self) -> Stage:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jetdvfs-demo-")))
            self._start_twin(stack, folder)
            self._folder = folder
            self.socket = folder / "jetdvfs.sock"
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _start_twin(self, stack: contextlib.ExitStack, folder: Path) -> None:
        board, node, _ = self._names
        mount = folder / "board"
        mount.mkdir()
        command = [
            "jetdvfs.daemon.cli",
            "twin",
            "serve",
            "--board",
            board,
            "--mount",
            str(mount),
            "--seed",
            str(node),
            "--backend",
            self.backend,
            "--perturbed",
            str(self._perturbed),
            "--json",
        ]
        twin = spawn("the simulated board", command, folder)
        stack.callback(twin.stop)
        said: dict[str, Any] = json.loads(_first_line(twin))
        self.root = Path(said["mount"])
        self.application_port = said["bench"]
        self.backend = said["backend"]
        self.notice = said.get("notice") or ""

    def start_daemon(self) -> Client:
        """Start ``jetdvfsd`` on the board and connect to it.

        Raises:
            ChildError: it ended, or did not answer in time.
        """
        board, _, profile = self._names
        folders = ["--state-dir", str(self._folder / "state"), "--runtime-dir", str(self._folder / "run")]
        command = ["jetdvfs.daemon.service", "--root", str(self.root), "--socket", str(self.socket), *folders]
        chosen = ["--profile", profile] if profile else []
        self._daemon = spawn("jetdvfsd", [*command, "--board", board, *chosen], self._folder)
        self._stack.callback(self._daemon.stop)
        client = when_it_answers(self._daemon, self.socket)
        self._stack.callback(client.close)
        return client

    def stop_daemon(self) -> int | None:
        """End the daemon as ``systemctl stop`` does; its exit code."""
        assert self._daemon is not None
        return self._daemon.stop()


def clock_files(files: Files, description: BoardDescription) -> dict[str, str]:
    """The files by which clocks are set, of whichever drivers the board has, with their values, read as anybody would."""
    places: list[tuple[str, tuple[str, ...]]] = [
        (f"/sys/devices/system/cpu/cpufreq/{policy.name}", ("scaling_governor", "scaling_min_freq", "scaling_max_freq"))
        for policy in description.cpu_policies
    ]
    devfreq = [path for path in description.section("gpu")["devfreq"] if files.exists(path)]
    places += [(path, ("governor", "min_freq", "max_freq")) for path in devfreq[:1]]  # the others are links to it
    emc = description.section("emc")
    names = {"bpmp": ("mrq_rate_locked",), "override": ("clk_state",), "devfreq": ("min_freq", "max_freq")}
    places += [(emc[way], names[way]) for way in names if way in emc]
    paths = [f"{folder}/{name}" for folder, each in places for name in each]
    paths += [emc[way] for way in ("halt", "cap") if way in emc]
    return {path: text.strip() for path in paths if (text := files.find_text(path)) is not None}


def offered(files: Files, description: BoardDescription) -> tuple[FrequencyConfiguration, Limits]:
    """The top clocks that a board's power mode offers, and the range that it leaves each clock."""
    grid = Hardware.probe(files, SystemClock(), board=description.name).grid()
    axes = {axis: grid.levels(axis) for axis in AXES}
    return grid.top, Limits.within({axis: (levels[0], levels[-1]) for axis, levels in axes.items()})


def _first_line(process: Child) -> str:
    assert process.popen.stdout is not None
    descriptor = process.popen.stdout.fileno()
    deadline = time.monotonic() + START_S
    text = b""
    while b"\n" not in text:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(descriptor, 1 << 16) if ready else b""
        if not chunk:
            raise ChildError(f"{process.name} did not start: {process.last_words()}")
        text += chunk
    return text.split(b"\n")[0].decode()
