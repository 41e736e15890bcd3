# SPDX-License-Identifier: Apache-2.0
"""Reads a model through a foreign descriptor, whose file may still change."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ..errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_T = TypeVar("_T")

FILE_BYTES = 1 << 40
READ_BYTES = 256 << 20


class ModelFile(io.RawIOBase):
    """A regular file, copied piece by piece: never mapped, never read past its initial size.

    Args:
        descriptor: open for reading; its offset, shared with the sender, is neither used nor moved.
        read_bytes: most bytes read, without the weights, most of the file.

    Raises:
        InputError: no regular file; on reading, it shrank or is too long; from :meth:`check`, it changed.
    """

    def __init__(self, descriptor: int, *, read_bytes: int = READ_BYTES) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._position = 0
        self._left = read_bytes
        self._fault: InputError | None = None
        self._before = self._attempt(lambda: os.fstat(descriptor))
        if not stat.S_ISREG(self._before.st_mode):
            kind = next((name for test, name in _KINDS if test(self._before.st_mode)), "something else")
            raise InputError(f"model: its descriptor is {kind}; expected a regular file open for reading")
        if not 0 < self._before.st_size <= FILE_BYTES:
            raise InputError(f"model: the file has {self._before.st_size} bytes; expected 1 to {FILE_BYTES}")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._before.st_size}[whence]
        if base + offset < 0:
            raise ValueError("seek before the start")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        wanted = max(0, min(len(view), self._before.st_size - self._position))
        if wanted > self._left:
            raise self._fail(f"model: more than {READ_BYTES} bytes of it would have to be read")
        data = self._attempt(lambda: os.pread(self._descriptor, wanted, self._position)) if wanted else b""
        if wanted and not data:
            raise self._fail(f"model: the file shrank below {self._before.st_size} bytes while it was read")
        view[: len(data)] = data
        self._position += len(data)
        self._left -= len(data)
        return len(data)

    def check(self) -> None:
        if self._fault is not None:
            raise self._fault
        now = self._attempt(lambda: os.fstat(self._descriptor))
        if (now.st_size, now.st_mtime_ns) != (self._before.st_size, self._before.st_mtime_ns):
            raise self._fail("model: the file changed while it was read")

    def _fail(self, text: str) -> InputError:
        self._fault = InputError(text)
        return self._fault

    def _attempt(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except OSError as error:
            raise self._fail(f"model: its descriptor cannot be read ({error.strerror})") from error


_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)
