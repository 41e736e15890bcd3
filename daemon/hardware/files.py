# SPDX-License-Identifier: Apache-2.0
"""Access to the board's files: sysfs, debugfs, procfs and the device tree, under an injected root.

Below another root than ``/``, absolute links stay below it, as in a chroot.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from ...profiles.timing import Clock, SystemClock
from ..errors import DaemonError, HardwareBusy, HardwareRefused
from .bounded_calls import BoundedCalls, retried

WriteObserver = Callable[[str, str], None]
T = TypeVar("T")

LONGEST_S = 0.5
"""Longest wait for a file; the slowest healthy one takes about 10 ms."""

# Texts read ahead are at most this old when the block begins.
_AHEAD_S = 0.05
# Retries of a write: devfreq makes its setpoint only after its governor has started, which is busy while exchanged.
_RETRIED_S = 0.1
_RETRY_PAUSE_S = 0.002
_MOST_LINKS = 40
_READ_BYTES = 1 << 16
# A larger figure comes from a faulty driver and fits no answer.
_MOST = 1 << 53
_FASTEST = 10**12
# Errors that may pass: a missing node, a powered-off part, a firmware or bus that did not answer.
_TRANSIENT = frozenset(
    {
        errno.EBUSY,
        errno.EAGAIN,
        errno.ENOENT,
        errno.ENODEV,
        errno.ENXIO,
        errno.ETIMEDOUT,
        errno.EINTR,
        errno.EIO,
        errno.EREMOTEIO,
    }
)


class Reader(ABC):
    @abstractmethod
    def read_text(self, path: str) -> str:
        """The file's text without trailing white space and NULs.

        Raises:
            HardwareBusy: the node is missing (yet), powered off, or did not answer; HardwareHangs if not at all.
            HardwareRefused: it cannot be read.
        """

    def read_int(self, path: str) -> int:
        text = self.read_text(path)
        try:
            if -_MOST < (number := int(text)) < _MOST:
                return number
        except ValueError:
            pass
        raise HardwareRefused(f"{path}: holds {text[:40]!r}, expected a whole number")

    def find_text(self, path: str) -> str | None:
        try:
            return self.read_text(path)
        except DaemonError:
            return None

    def find_int(self, path: str) -> int | None:
        """The file's number; None if unreadable or a word such as ``<unsupported>``."""
        try:
            return self.read_int(path)
        except DaemonError:
            return None

    def find_rate(self, path: str) -> int | None:
        """The file's frequency; None if unreadable or implausible."""
        rate = self.find_int(path)
        return rate if rate is not None and 0 <= rate <= _FASTEST else None


class _Block(threading.local):
    """A thread's block of :meth:`Files.together`: paths read, None outside, and bytes read ahead."""

    def __init__(self) -> None:
        self.paths: dict[str, None] | None = None
        self.ahead: dict[str, bytes] = {}


class Files(Reader):
    """Reads and writes a board's files; ``ended`` counts calls completed or given up.

    Args:
        observer: called with ``(path, value)`` after every write that the kernel took, in order.
        longest_s: time without an answer after which a file counts as hanging; None waits for ever.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] = "/",
        observer: WriteObserver | None = None,
        longest_s: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.root = os.path.realpath(root)
        self._patience = None if longest_s is None else BoundedCalls(longest_s)
        self._observer = observer
        self._clock = clock or SystemClock()
        self._located: dict[str, str] = {}
        self._block = _Block()
        self._blocks: dict[str, tuple[str, ...]] = {}
        self.ended = 0

    @property
    def hanging(self) -> tuple[str, ...]:
        return () if self._patience is None else self._patience.hanging

    def read_text(self, path: str) -> str:
        block = self._block
        if block.paths is not None:
            block.paths[path] = None
        data = block.ahead.pop(path, None)
        try:
            if data is None:
                data = self._patiently(path, "reading it", lambda: self._read(path))
        except OSError as error:
            raise _failure(error, path, "reading it") from error
        return data.decode("utf-8", "replace").rstrip("\0 \t\r\n")

    @contextlib.contextmanager
    def together(self, name: str) -> Iterator[None]:
        """Read files of the last block of this name at once; each text serves once, until a write.

        A single read costs ten times as much, as its thread hands it over.
        """
        block = self._block
        if self._patience is None or block.paths is not None:
            yield
            return
        block.ahead = self._patience.call_each(self._blocks.get(name, ()), "reading it", self._read, _AHEAD_S)
        block.paths = {}
        self.ended += 1
        try:
            yield
        finally:
            self._blocks[name] = tuple(block.paths)
            block.paths, block.ahead = None, {}

    def write_text(self, path: str, value: str, valid: Iterable[object] = ()) -> None:
        """Write a value and a newline in one system call to an existing file, with retries; an error lists ``valid`` values."""
        line = f"{value}\n".encode()
        self._block.ahead = {}

        def write() -> int:
            try:
                return self._patiently(path, f"writing {value!r}", lambda: self._write(path, line))
            except OSError as error:
                raise _failure(error, path, f"writing {value!r}", valid) from error

        taken = retried(write, self._clock, longest_s=_RETRIED_S, pause_s=_RETRY_PAUSE_S)
        if taken != len(line):
            raise HardwareRefused(f"{path}: writing {value!r} was cut short after {taken} bytes")
        if self._observer is not None:
            self._observer(path, value)

    def exists(self, path: str) -> bool:
        known = self._located.get(path)
        try:
            return (known is not None and os.path.lexists(known)) or os.path.lexists(self._locate(path))
        except OSError:
            return False

    def resolved(self, path: str) -> str:
        try:
            place = os.path.realpath(self._locate(path))
        except OSError:
            return path
        return place if self.root == "/" else f"/{os.path.relpath(place, self.root)}"

    def may_write(self, path: str) -> bool:
        try:
            return os.access(self._locate(path), os.W_OK)
        except OSError:
            return False

    def list_names(self, path: str) -> tuple[str, ...]:
        """Names in a directory, ``policy10`` after ``policy9``; empty if it cannot be listed."""
        try:
            names = self._scan(path)
        except OSError:
            return ()
        return tuple(sorted(names, key=lambda name: (len(name), name)))

    def glob(self, pattern: str) -> tuple[str, ...]:
        """Existing paths that match a pattern; ``*`` and ``?`` stay within one component."""
        found, checked = [""], False
        for part in pattern.strip("/").split("/"):
            checked = any(sign in part for sign in "*?[")
            if checked:
                found = [f"{base}/{name}" for base in found for name in self.list_names(base or "/") if fnmatchcase(name, part)]
            else:
                found = [f"{base}/{part}" for base in found]
        return tuple(path for path in found if checked or self.exists(path))

    def _patiently(self, path: str, doing: str, call: Callable[[], T]) -> T:
        try:
            return call() if self._patience is None else self._patience.call(path, doing, call)
        finally:
            self.ended += 1

    def _read(self, path: str) -> bytes:
        descriptor = self._open(path, os.O_RDONLY)
        try:
            chunks = [os.read(descriptor, _READ_BYTES)]
            # An attribute below /sys is at most a page and comes whole (Linux, Documentation/filesystems/sysfs.rst).
            while chunks[-1] and not path.startswith("/sys/"):
                chunks.append(os.read(descriptor, _READ_BYTES))
            return b"".join(chunks)
        finally:
            os.close(descriptor)

    def _write(self, path: str, line: bytes) -> int:
        # Attributes take one value per write call. Creating a file would hide a wrong path.
        descriptor = self._open(path, os.O_WRONLY)
        try:
            return os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def _open(self, path: str, access: int) -> int:
        """Open a file at its last place, or look for it again: nodes come, go and are renumbered."""
        if self.root == "/":
            return os.open(path, access | os.O_CLOEXEC)
        known = self._located.get(path)
        if known is not None:
            try:
                return os.open(known, access | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    raise
        self._located[path] = place = self._locate(path)
        return os.open(place, access | os.O_CLOEXEC | os.O_NOFOLLOW)

    def _scan(self, path: str) -> list[str]:
        known = self._located.get(path)
        if known is not None:
            try:
                return _names(known)
            except OSError:
                del self._located[path]
        place = self._locate(path)
        names = _names(place)
        self._located[path] = place
        return names

    def _locate(self, path: str) -> str:
        if self.root == "/":
            return path
        todo, done, links = path.split("/")[::-1], [self.root], 0
        while todo:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                del done[max(1, len(done) - 1) :]
                continue
            try:
                target = str(Path("/".join((*done, part))).readlink())
            except OSError:
                done.append(part)
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.startswith("/"):
                del done[1:]
            todo.extend(target.split("/")[::-1])
        return "/".join(done)


class CachedReader(Reader):
    """A board's files, some just read: ``texts`` by path; an unknown text (None) is read again."""

    def __init__(self, files: Reader, texts: Mapping[str, str | None]) -> None:
        self._files = files
        self._texts = texts

    def read_text(self, path: str) -> str:
        text = self._texts.get(path)
        return self._files.read_text(path) if text is None else text


def rate_in(text: str | None) -> int | None:
    if text is None or not text.isdecimal() or len(text) > len(str(_FASTEST)):
        return None
    return int(text)


def _names(place: str) -> list[str]:
    with os.scandir(place) as entries:
        return [entry.name for entry in entries]


def _failure(error: OSError, path: str, doing: str, valid: Iterable[object] = ()) -> DaemonError:
    number = error.errno or 0
    text = f"{path}: {doing} failed with {errno.errorcode.get(number, 'an error')} ({os.strerror(number)})"
    values = ", ".join(map(str, valid))
    kind = HardwareBusy if number in _TRANSIENT else HardwareRefused
    return kind(f"{text}; valid: {values}" if values else text)
