# SPDX-License-Identifier: Apache-2.0
"""The one way to the board's files: sysfs, debugfs, procfs and the device tree, under an injected root.

The root is ``/`` on a board and a mount point elsewhere. Paths are always given as the board knows them
(``/sys/devices/...``); below another root, absolute links stay below it, as in a chroot.
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from ...profiles.timing import Clock, SystemClock
from ..errors import DaemonError, HardwareBusy, HardwareRefused
from .patience import Patience, retried

WriteObserver = Callable[[str, str], None]
T = TypeVar("T")

LONGEST_S = 0.5
"""How long a file may take to answer, for those who must not wait for ever. The slowest healthy one takes about 10 ms."""

# How long a write is tried again that fails for a reason that may pass: devfreq makes its setpoint only once the governor that
# takes it has started, and a governor that is being exchanged is busy.
_RETRIED_S = 0.1
_RETRY_PAUSE_S = 0.002
_MOST_LINKS = 40
_READ_BYTES = 1 << 16
# No figure of a board is as large; what is comes from a driver that has gone wrong, and fits into no answer.
_MOST = 1 << 53
_FASTEST = 10**12
# What may go away by itself: a node that is not there yet, a powered-off part, a firmware or bus that did not answer.
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
    """Texts, numbers and rates of a board's files."""

    @abstractmethod
    def read_text(self, path: str) -> str:
        """The file's text without trailing white space and NULs.

        Raises:
            HardwareBusy: the node is not there (yet), is powered off, or did not answer; HardwareHangs if at all.
            HardwareRefused: it cannot be read.
        """

    def read_int(self, path: str) -> int:
        """The file's number.

        Raises:
            HardwareBusy: as for :meth:`read_text`.
            HardwareRefused: it cannot be read, or holds no whole number, or one that is no figure of a board.
        """
        text = self.read_text(path)
        try:
            if -_MOST < (number := int(text)) < _MOST:
                return number
        except ValueError:
            pass
        raise HardwareRefused(f"{path}: holds {text[:40]!r}, expected a whole number")

    def find_text(self, path: str) -> str | None:
        """The file's text, or None where it cannot be read now."""
        try:
            return self.read_text(path)
        except DaemonError:
            return None

    def find_int(self, path: str) -> int | None:
        """The file's number, or None where it cannot be read now or holds a word such as ``<unsupported>``."""
        try:
            return self.read_int(path)
        except DaemonError:
            return None

    def find_rate(self, path: str) -> int | None:
        """The file's frequency, or None where it cannot be read now or is none: a word, below zero, or beyond all clocks."""
        rate = self.find_int(path)
        return rate if rate is not None and 0 <= rate <= _FASTEST else None


class Files(Reader):
    """Reads and writes a board's files.

    Args:
        root: directory that stands for the board's ``/``.
        observer: called with ``(path, value)`` after every write that the kernel took, in order.
        longest_s: how long a file may take to answer until it is taken to hang; None waits for ever.
        clock: bounds how long a write is tried again.

    Attributes:
        ended: how many reads and writes have come back or were given up; it grows for as long as the board's files move on.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] = "/",
        observer: WriteObserver | None = None,
        longest_s: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.root = os.path.realpath(root)
        self._patience = None if longest_s is None else Patience(longest_s)
        self._observer = observer
        self._clock = clock or SystemClock()
        self._located: dict[str, str] = {}
        self.ended = 0

    @property
    def hanging(self) -> tuple[str, ...]:
        """The files that do not answer, one line each."""
        return () if self._patience is None else self._patience.hanging

    def read_text(self, path: str) -> str:
        try:
            return self._patiently(path, "reading it", lambda: self._read(path)).decode("utf-8", "replace").rstrip("\0 \t\r\n")
        except OSError as error:
            raise _failure(error, path, "reading it") from error

    def write_text(self, path: str, value: str, valid: Iterable[object] = ()) -> None:
        """Write a value and a newline in one system call, to a file that exists; again for a while where that may help.

        Args:
            valid: values that would be taken, to be listed if this one is refused.

        Raises:
            HardwareBusy: the node is still not there, or busy, or it did not answer; HardwareHangs if at all.
            HardwareRefused: the kernel refused the value, or this process may not write.
        """
        line = f"{value}\n".encode()

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
        """The board path that a link leads to; the path itself if it is none."""
        try:
            place = os.path.realpath(self._locate(path))
        except OSError:
            return path
        return place if self.root == "/" else f"/{os.path.relpath(place, self.root)}"

    def may_write(self, path: str) -> bool:
        """Whether this process has the right to write a file that exists; the kernel may refuse a value all the same."""
        try:
            return os.access(self._locate(path), os.W_OK)
        except OSError:
            return False

    def list_names(self, path: str) -> tuple[str, ...]:
        """The names in a directory, ``policy10`` after ``policy9``; empty where it cannot be listed."""
        try:
            names = self._scan(path)
        except OSError:
            return ()
        return tuple(sorted(names, key=lambda name: (len(name), name)))

    def glob(self, pattern: str) -> tuple[str, ...]:
        """The existing paths that match a pattern; ``*`` and ``?`` stay within one component."""
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
            # An attribute below /sys is a page at most and comes whole (Linux, Documentation/filesystems/sysfs.rst).
            while chunks[-1] and not path.startswith("/sys/"):
                chunks.append(os.read(descriptor, _READ_BYTES))
            return b"".join(chunks)
        finally:
            os.close(descriptor)

    def _write(self, path: str, line: bytes) -> int:
        # Attributes take one value per write call. Creating would turn a wrong path into a silent success.
        descriptor = self._open(path, os.O_WRONLY)
        try:
            return os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def _open(self, path: str, access: int) -> int:
        """Open a file where it was found last, or look for it again: nodes come, go and are renumbered."""
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
        """Where a board path lies on this machine, every link resolved below the root."""
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


class JustRead(Reader):
    """A board's files, some of which were read a moment ago for the same change and are not read again.

    Args:
        texts: what those hold, by path; None for a file whose text could not be told, which is read again.
    """

    def __init__(self, files: Reader, texts: Mapping[str, str | None]) -> None:
        self._files = files
        self._texts = texts

    def read_text(self, path: str) -> str:
        text = self._texts.get(path)
        return self._files.read_text(path) if text is None else text


def rate_in(text: str | None) -> int | None:
    """The frequency that a text is; None for a word, and for a number beyond all clocks."""
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
