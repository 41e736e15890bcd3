# SPDX-License-Identifier: Apache-2.0
"""Bytes read as choices, from which a fuzzer's inputs are put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Choices:
    """Bytes read as choices; when they are used up, every choice is the first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def byte(self) -> int:
        if not self.left:
            return 0
        self._at += 1
        return self._data[self._at - 1]

    def below(self, limit: int) -> int:
        value = self.byte() if limit <= 256 else self.byte() << 8 | self.byte()
        return value % limit

    def of(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def piece(self, size: int) -> bytes:
        start = self._at
        self._at = min(start + size, len(self._data))
        return self._data[start : self._at]
