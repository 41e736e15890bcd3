# SPDX-License-Identifier: Apache-2.0
"""Descriptors of every kind that a client may send, among them some of a file system that never answers."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from jetdvfs.tests.support.models import handmade

_MOUNTED_S = 5.0
_FOREVER_S = 3600.0
MODEL = handmade.archive(handmade.forward("return torch.relu(x)"))
#: Descriptors whose use may take something from the daemon for as long as a worker may take.
RARE_KINDS = ("reading hangs", "closing hangs", "looking hangs")


def _pipe() -> int:
    reading, writing = os.pipe()
    os.close(writing)
    return reading


def _memory(data: bytes) -> int:
    handle = os.memfd_create("model")
    os.write(handle, data)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _looped() -> int:
    """A socket that holds itself, on its way to nobody."""
    here, there = socket.socketpair()
    with here, there:
        socket.send_fds(there, [b"x"], [here.fileno()])
        return os.dup(here.fileno())


_MAKERS: dict[str, Callable[[], int]] = {
    "a model": lambda: _memory(MODEL),
    "half a model": lambda: _memory(MODEL[: len(MODEL) // 2]),
    "an empty file": lambda: _memory(b""),
    "a sparse file": lambda: _sparse(),
    "/dev/null": lambda: os.open("/dev/null", os.O_RDWR),
    "/dev/zero": lambda: os.open("/dev/zero", os.O_RDONLY),
    "/proc/self/mem": lambda: os.open("/proc/self/mem", os.O_RDONLY),
    "a pipe": _pipe,
    "a folder": lambda: os.open("/", os.O_RDONLY),
    "a path only": lambda: os.open("/etc/hostname", os.O_PATH),
    "for writing only": lambda: os.open("/dev/null", os.O_WRONLY),
    "a socket": lambda: socket.socket(socket.AF_UNIX).detach(),
    "a socket that holds itself": _looped,
    "an event": lambda: os.eventfd(0),
}
KINDS = ("a model", "a model", "a model", *_MAKERS)


def _sparse() -> int:
    handle = os.memfd_create("sparse")
    os.ftruncate(handle, 1 << 33)
    return handle


class Files:
    """Makes descriptors; as a context manager it ends the file system that never answers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: list[int] = []
        self._opened: dict[str, int] = {}
        self._server: BaseProcess | None = None

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()

    def open(self, kind: str) -> int:
        """A new descriptor of a kind; of the plainest where a file system cannot be mounted."""
        if kind not in RARE_KINDS:
            return _MAKERS[kind]()
        if self._server is None and not self._mount():
            return _MAKERS["a model"]()
        # Opened once: whoever looks for a file again may be the one who hangs.
        if kind not in self._opened:
            self._opened[kind] = os.open(self._folder / kind.replace(" ", "-"), os.O_RDONLY | os.O_NONBLOCK)
            self._kept.append(self._opened[kind])
        return os.dup(self._opened[kind])

    def close(self, handle: int, kind: str) -> None:
        """Close a descriptor; one whose closing might hang only when its file system has gone."""
        if kind in RARE_KINDS and self._server is not None:
            self._kept.append(handle)
        else:
            os.close(handle)

    def let_go(self) -> None:
        """Let everybody who waits for the file system come back with an error."""
        if self._server is None:
            return
        assert self._server.pid is not None
        os.kill(self._server.pid, signal.SIGKILL)
        self._server.join()
        self._server = None
        for handle in self._kept:
            with contextlib.suppress(OSError):
                os.close(handle)
        self._kept.clear()
        self._opened.clear()
        subprocess.run(["umount", "-l", self._folder], capture_output=True, check=False)

    def _mount(self) -> bool:
        self._folder.mkdir(exist_ok=True)
        self._server = multiprocessing.get_context("fork").Process(target=_serve, args=(self._folder,), daemon=True)
        self._server.start()
        deadline = time.monotonic() + _MOUNTED_S
        while not os.path.ismount(self._folder):
            if time.monotonic() > deadline:
                self.let_go()
                return False
            time.sleep(0.01)
        return True


def _serve(folder: Path) -> None:
    import mfusepy

    class NeverAnswers(mfusepy.Operations):
        """Three files, each of which hangs at one of what may be done with it."""

        use_ns = True

        def __init__(self) -> None:
            self._opened: set[str] = set()

        def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
            if path == "/":
                return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
            if path == "/looking-hangs" and path in self._opened:
                time.sleep(_FOREVER_S)
            return {"st_mode": stat.S_IFREG | 0o444, "st_nlink": 1, "st_size": len(MODEL)}

        def open(self, path: str, flags: int) -> int:
            self._opened.add(path)
            return 1

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            if path == "/reading-hangs":
                time.sleep(_FOREVER_S)
            return MODEL[offset : offset + size]

        def flush(self, path: str, fh: int) -> int:
            if path == "/closing-hangs":
                time.sleep(_FOREVER_S)
            return 0

    options: dict[str, Any] = {"foreground": True, "allow_other": True, "direct_io": True, "attr_timeout": 0}
    mfusepy.FUSE(NeverAnswers(), str(folder), **options)
