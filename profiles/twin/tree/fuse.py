# SPDX-License-Identifier: Apache-2.0
"""Files of a simulated board through FUSE: reads ask the board, and refused writes fail in the writer."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import stat
import subprocess
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import TwinError
from .attributes import Attribute, Link, Tree, refusal
from .folder import claim

FILESYSTEM = "jetdvfs-twin"
_PAGE = 4096
_READY_S = 10.0
_KNOWN_NOISE = b"Ignoring invalid max threads value"
"""Logged by libfuse 3.12 and later of its own default."""


def missing() -> str:
    """Reason why FUSE cannot serve here, or empty."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse cannot be opened"
    try:
        import mfusepy  # noqa: F401
    except ImportError as error:
        return f"the Python package mfusepy is not installed ({error})"
    except OSError as error:
        return f"libfuse is not installed ({error})"
    return ""


def _file_operations(tree: Tree) -> Any:
    import mfusepy

    # The serving user is the board's root.
    owner = {"st_uid": os.geteuid(), "st_gid": os.getegid()}

    class TreeOperations(mfusepy.Operations):  # type: ignore[misc]
        """Content is made on a read from the start, as in sysfs."""

        use_ns = True

        def __init__(self) -> None:
            self._open: dict[int, bytes] = {}
            self._next = 0
            self._lock = threading.Lock()

        def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
            node = tree.node(path)
            if node is None:
                return {**owner, "st_mode": stat.S_IFDIR | tree.directory_mode(path), "st_nlink": 2}
            if isinstance(node, Link):
                return {**owner, "st_mode": stat.S_IFLNK | 0o777, "st_nlink": 1, "st_size": len(tree.link_text(path, node))}
            return {**owner, "st_mode": stat.S_IFREG | node.permissions, "st_nlink": 1, "st_size": _PAGE}

        def readlink(self, path: str) -> str:
            node = tree.node(path)
            if not isinstance(node, Link):
                raise refusal(errno.EINVAL)
            return tree.link_text(path, node)

        def readdir(self, path: str, fh: int) -> list[str]:
            return [".", "..", *tree.names(path)]

        def open(self, path: str, flags: int) -> int:
            node = tree.node(path)
            if not isinstance(node, Attribute):
                raise refusal(errno.ENOENT)
            access = flags & os.O_ACCMODE
            if (access != os.O_RDONLY and node.write is None) or (access != os.O_WRONLY and node.read is None):
                raise refusal(errno.EACCES)
            with self._lock:
                self._next += 1
                self._open[self._next] = b""
                return self._next

        def release(self, path: str, fh: int) -> int:
            with self._lock:
                self._open.pop(fh, None)
            return 0

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            if offset == 0:
                self._open[fh] = tree.read(path)
            return self._open[fh][offset : offset + size]

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            tree.write(path, data)
            return len(data)

        def truncate(self, path: str, length: int, fh: int | None = None) -> int:
            # Shells open with O_TRUNC; sysfs ignores it.
            return 0

        def create(self, path: str, mode: int, fi: Any = None) -> int:
            raise refusal(errno.EACCES)

        def mkdir(self, path: str, mode: int) -> int:
            raise refusal(errno.EPERM)

        def unlink(self, path: str) -> int:
            raise refusal(errno.EPERM)

    return TreeOperations()


class FuseMount:
    """Mounted tree, served by threads until :meth:`close`. Raises TwinError if mounting fails."""

    def __init__(self, tree: Tree, mount: Path) -> None:
        self.mount = mount
        self._failure: BaseException | None = None
        release_stale(mount)
        if os.path.ismount(mount):
            raise TwinError(f"{mount} is a mount point already; give another directory, or unmount it first")
        claim(mount)
        self._thread = threading.Thread(target=self._serve, args=(tree,), name="twin-fuse", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _READY_S
        while not _mounted(mount):
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise TwinError(f"{mount}: mounting by FUSE failed ({self._failure or 'no answer'})")
            time.sleep(0.005)

    def _serve(self, tree: Tree) -> None:
        import mfusepy

        _log_without_noise(mfusepy._libfuse)
        try:
            mfusepy.FUSE(
                _file_operations(tree),
                str(self.mount),
                foreground=True,
                allow_other=os.geteuid() == 0,
                default_permissions=True,
                direct_io=True,
                # Names and modes may be cached: a removed file still fails when it is opened.
                attr_timeout=5,
                entry_timeout=5,
                negative_timeout=0,
                fsname=FILESYSTEM,
            )
        except BaseException as error:
            self._failure = error
        finally:
            # libfuse leaves SIGPIPE at its default, deadly action; Python relies on its being ignored. Python itself may
            # set signals in its main thread only.
            ctypes.CDLL(None).signal(signal.SIGPIPE, ctypes.c_void_p(int(signal.SIG_IGN)))

    def close(self) -> None:
        """Unmount; open files then fail with ENOTCONN."""
        _unmount(self.mount)
        self._thread.join(timeout=5.0)


@cache
def _log_without_noise(libfuse: Any) -> object:
    """Let libfuse log on stderr without notes on its own defaults."""
    log_type = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    print_to = ctypes.CDLL(None).vdprintf
    print_to.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)

    def log(_level: int, text: bytes, arguments: int | None) -> None:
        if not text.startswith(_KNOWN_NOISE):
            print_to(2, text, arguments)

    function = log_type(log)
    with contextlib.suppress(AttributeError):  # libfuse before 3.7
        libfuse.fuse_set_log_func(function)
    return function


def release_stale(mount: Path) -> None:
    try:
        os.statvfs(mount)  # never from memory, as attributes may be
    except OSError as error:
        if error.errno == errno.ENOTCONN:
            _unmount(mount)


def _mounted(mount: Path) -> bool:
    with contextlib.suppress(OSError):
        return os.path.ismount(mount) and (mount / "sys").is_dir()
    return False


def _unmount(mount: Path) -> None:
    # Lazily, so that a reader who holds a file open cannot keep the mount alive.
    for command in (["umount", "-l"], ["fusermount3", "-u", "-z"], ["fusermount", "-u", "-z"]):
        with contextlib.suppress(OSError):
            if subprocess.run([*command, str(mount)], capture_output=True, check=False).returncode == 0:
                return
