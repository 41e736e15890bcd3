# SPDX-License-Identifier: Apache-2.0
"""Values with fields that comparisons ignore."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct


class PartlyCompared(Struct, frozen=True, eq=False):
    """Base of values whose comparison and hash ignore the fields named by ``_ignored``."""

    _ignored: ClassVar[frozenset[str]] = frozenset()

    def _compared(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name not in self._ignored)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._compared() == other._compared()

    def __ne__(self, other: object) -> bool:  # msgspec has its own
        return not self == other

    def __hash__(self) -> int:
        return hash(self._compared())
