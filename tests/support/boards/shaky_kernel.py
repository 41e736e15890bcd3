# SPDX-License-Identifier: Apache-2.0
"""A kernel whose files misbehave for a while: read wrongly or not at all, refuse what is written, or take it and do nothing."""

from __future__ import annotations

import errno
import os
from typing import Any

from jetdvfs.tests.support.boards.hardware_kernel import Kernel

GARBAGE = ("", "²", "\x00\x00", "�", "-1", "0x1f", "12 34", "Segmentation fault", "schedutilschedutil", "9" * 400)


class ShakyKernel(Kernel):
    """A kernel's clock files, some of which misbehave as many times as they are told to.

    Attributes:
        misread: what a file reads as instead, once for every entry; a number is an error of the kernel's.
        ignored: how often a file takes a value and keeps its old one.
        refused: how often a file refuses.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self.misread: dict[str, list[str | int]] = {}
        self.ignored: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        super().__init__(*args, **options)

    def behave(self) -> None:
        self.misread, self.ignored, self.refused = {}, {}, {}

    def _read(self, path: str) -> bytes:
        if self.misread.get(path):
            wrong = self.misread[path].pop(0)
            if isinstance(wrong, int):
                raise OSError(wrong, os.strerror(wrong))
            return wrong.encode()
        return super()._read(path)

    def _write(self, path: str, line: bytes) -> int:
        if self.refused.get(path, 0):
            self.refused[path] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.ignored.get(path, 0):
            self.ignored[path] -= 1
            return len(line)
        return super()._write(path, line)
