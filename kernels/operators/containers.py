# SPDX-License-Identifier: Apache-2.0
"""Lists and dictionaries of tensors that change while a network runs: the JIT does not see what becomes of each item.

Of a list it follows what is appended, inserted or set right after it was made, in the same block and before anybody reads it
(torch/csrc/jit/passes/remove_mutation.cpp). Of any other that changes, and of every dictionary that does, all items are needed
if one is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .values import Memory, tensors_in

_FOLLOWED = frozenset(("append", "insert", "_set_item"))
_OTHERS = frozenset(("extend", "pop", "popitem", "clear", "reverse", "__delitem__", "Delete", "add_", "update", "setdefault"))


@dataclass
class _Held:
    """A container, which is held so that no other takes its identity."""

    container: Any
    read: bool = False
    changed: bool = False
    closed: bool = False
    writers: set[int] = field(default_factory=set)
    memory: list[Memory] = field(default_factory=list)


class Containers:
    """Which containers changed, were read, and hold what."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}

    def given(self, name: str, args: Sequence[Any], straight: bool) -> None:
        """An operator is about to be given these; ``straight`` says that no block is around it."""
        for place, value in enumerate(args):
            if type(value) is not list and type(value) is not dict:
                continue
            changes = place == 0 and (name in _FOLLOWED or name in _OTHERS)
            if not changes and not tensors_in(value):
                continue
            held = self._held.setdefault(id(value), _Held(value))
            if changes:
                held.memory += [tensor.memory for tensor in tensors_in(args)]
                held.closed |= held.read or not straight or name in _OTHERS or type(value) is dict
                held.changed = True
                held.writers |= {tensor.memory.writer for tensor in tensors_in(args)}
            held.read |= not changes or name in ("pop", "popitem")
            held.closed |= type(value) is dict and name != "__getitem__"

    def has_changed(self, container: Any) -> bool:
        return id(container) in self._held and self._held[id(container)].changed

    def mixed(self) -> list[Memory]:
        """The memory of what is or was in containers that change."""
        return [memory for held in self._held.values() for memory in held.memory]

    def needed(self) -> set[int]:
        """The launches whose results were put into containers that changed out of the JIT's sight and were read."""
        writers: set[int] = set()
        for held in self._held.values():
            if held.closed and held.read:
                writers |= held.writers | {tensor.memory.writer for tensor in tensors_in(held.container)}
        return writers - {-1}
