# SPDX-License-Identifier: Apache-2.0
"""Files of a simulated board as a plain folder, without FUSE.

A thread learns of writes by inotify and passes them to the board. A plain folder cannot refuse: after an invalid write the old
value reappears, with one line here. Nor can it see the end of a short value written over a longer one without a newline and
truncation.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import posixpath
import select
import shutil
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ...errors import TwinError
from .attributes import Tree

_MARK = ".jetdvfs-twin"
_REFRESH_S, _SETTLING_S = 0.1, 0.005
_SETTLES_S = 0.05
_LEASE_TRIES, _LEASE_PAUSE_S = 4, 0.0005
_VALUE_BYTES = 1 << 16
_IN_MODIFY, _IN_CLOSE_WRITE = 0x2, 0x8
_OWN_NS = 1  # time of this thread's writes, to tell another writer of the same value apart
_EVENT = struct.Struct("iIII")


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def claim(folder: Path) -> None:
    """Make a directory, or clear a killed twin's remains. Raises TwinError."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / _MARK).exists():
        _empty(folder)
    elif any(folder.iterdir()):
        raise TwinError(f"{folder} is not empty; a simulated board needs a directory of its own")


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != _MARK:
            entry.unlink(missing_ok=True)
    (folder / _MARK).unlink(missing_ok=True)


class FolderMirror:
    """Tree as files of a folder (empty, new, or left by a twin), updated until :meth:`close`. Raises TwinError.

    ``report`` is called for every write that should be refused.
    """

    def __init__(self, tree: Tree, folder: Path, report: Callable[[str], None] = _report) -> None:
        self._tree = tree
        self._folder = folder
        self._report = report
        self._shown: dict[str, bytes] = {}
        self._changed_ns: dict[str, int] = {}
        self._links: set[str] = set()
        claim(folder)
        (folder / _MARK).touch()
        self._watcher = _Watcher()
        self._refresh()
        self._stop, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._follow, name="twin-folder", daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.write(self._wake, b"x")
        self._thread.join()
        self._watcher.close()
        os.close(self._stop)
        os.close(self._wake)
        _empty(self._folder)

    def _place(self, path: str) -> Path:
        return self._folder / path.lstrip("/")

    def _follow(self) -> None:
        settled_at = 0.0
        while True:
            # After a write things move within milliseconds; otherwise only sensors do.
            pause = _SETTLING_S if time.monotonic() < settled_at else _REFRESH_S
            ready, _, _ = select.select([self._stop, self._watcher.descriptor], [], [], pause)
            if self._stop in ready:
                return
            if self._watcher.descriptor in ready:
                for path, closed in self._watcher.events().items():
                    if self._take(path, closed):
                        settled_at = time.monotonic() + _SETTLES_S
            self._refresh()

    def _take(self, path: str, closed: bool) -> bool:
        shown = self._shown.get(path)
        try:
            changed_ns = self._place(path).stat().st_mtime_ns
            content = self._place(path).read_bytes()
        except OSError:
            return False
        if shown is None or (content == shown and changed_ns == self._changed_ns[path]):
            return False
        if content or closed:
            self._changed_ns[path] = changed_ns
        if not content:
            # Truncated, and about to be written; or closed like that, which writes nothing.
            if closed:
                self._put_back(path, content, shown)
            return False
        try:
            self._tree.write(path, content.split(b"\n", 1)[0])
        except OSError as error:
            self._report(f"refused: {path}: {content[:40]!r} ({error.strerror}); a plain folder could not say so to the writer")
            self._put_back(path, content, shown)
            return False
        self._shown[path] = content
        return True

    def _put_back(self, path: str, written: bytes, shown: bytes) -> None:
        self._shown[path] = written
        self._put(path, shown)

    def _refresh(self) -> None:
        contents = self._tree.contents(self._shown)
        for path, content in contents.items():
            if content is not None and self._shown.get(path) != content:
                self._put(path, content)
        links = dict(self._tree.links())
        for gone in [*(self._shown.keys() - contents.keys()), *(self._links - links.keys())]:
            self._place(gone).unlink(missing_ok=True)
            self._shown.pop(gone, None), self._changed_ns.pop(gone, None)
        for path, link in links.items():
            if path not in self._links:
                self._make_folder(posixpath.dirname(path))
                self._place(path).symlink_to(self._tree.link_text(path, link))
        self._links = set(links)

    def _put(self, path: str, content: bytes) -> None:
        place = self._place(path)
        if path not in self._shown:
            self._create(path, place, content)
            return
        if place.exists() and not os.access(place, os.W_OK):
            place.chmod(0o600)
        try:
            descriptor = os.open(place, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            self._create(path, place, content)
            return
        try:
            with _alone(descriptor):
                told = os.fstat(descriptor).st_mtime_ns == self._changed_ns[path]
                if told and os.pread(descriptor, _VALUE_BYTES, 0) == self._shown[path]:
                    # In place, so that open readers see the new value, and never an empty file.
                    self._shown[path] = content
                    os.pwrite(descriptor, content, 0)
                    os.ftruncate(descriptor, len(content))
                    os.utime(descriptor, ns=(_OWN_NS, _OWN_NS))
                    self._changed_ns[path] = _OWN_NS
                os.fchmod(descriptor, self._tree.permissions(path))
        finally:
            os.close(descriptor)

    def _create(self, path: str, place: Path, content: bytes) -> None:
        self._make_folder(posixpath.dirname(path))
        fresh = place.with_name(f".{place.name}.new")
        try:
            fresh.write_bytes(content)
            fresh.chmod(self._tree.permissions(path))
            os.utime(fresh, ns=(_OWN_NS, _OWN_NS))
            self._shown[path], self._changed_ns[path] = content, _OWN_NS
            fresh.replace(place)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise

    def _make_folder(self, path: str) -> None:
        place = self._place(path)
        if place.is_dir():
            return
        if path != "/":
            self._make_folder(posixpath.dirname(path))
        place.mkdir(exist_ok=True)
        place.chmod(self._tree.directory_mode(path))
        self._watcher.watch(place, path)


@contextlib.contextmanager
def _alone(descriptor: int) -> Iterator[None]:
    """Hold a lease on a file against other openers; go on without if it is open."""
    leased = _leased(descriptor)
    try:
        yield
    finally:
        if leased:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def _leased(descriptor: int) -> bool:
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # tells of an opener who waits; ignored by default
    # A writer has the file open for a moment, and its value would be lost.
    for left in reversed(range(_LEASE_TRIES)):
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError:
            if left:
                time.sleep(_LEASE_PAUSE_S)
        else:
            return True
    return False


class _Watcher:
    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise TwinError(f"a plain folder cannot be watched here: inotify: {os.strerror(ctypes.get_errno())}")
        self._watched: dict[int, str] = {}

    def watch(self, place: Path, path: str) -> None:
        watch = self._libc.inotify_add_watch(self.descriptor, os.fsencode(place), _IN_MODIFY | _IN_CLOSE_WRITE)
        if watch < 0:
            raise TwinError(f"{place} cannot be watched: inotify: {os.strerror(ctypes.get_errno())}")
        self._watched[watch] = path

    def events(self) -> dict[str, bool]:
        """Files changed since the last call, and True if the writer has closed them."""
        found: dict[str, bool] = {}
        try:
            data = os.read(self.descriptor, 1 << 16)
        except BlockingIOError:
            return found
        while data:
            watch, mask, _, length = _EVENT.unpack_from(data)
            name = data[_EVENT.size : _EVENT.size + length].rstrip(b"\0").decode()
            data = data[_EVENT.size + length :]
            if watch in self._watched and name:
                path = posixpath.join(self._watched[watch], name)
                found.pop(path, None)
                found[path] = bool(mask & _IN_CLOSE_WRITE)
        return found

    def close(self) -> None:
        os.close(self.descriptor)
