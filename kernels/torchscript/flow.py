# SPDX-License-Identifier: Apache-2.0
"""From the notes on a forward pass to what the passes of PyTorch's JIT go by (:mod:`jetdvfs.kernels.rewriting.optimizing`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..operators.tracking import Tracking
from ..operators.values import Memory, Tensor, tensors_in
from ..rewriting.optimizing import Flow


def flow_of(tracking: Tracking, result: Any) -> Flow:
    """Which launches the results need, and which ones stand for others, as far as the JIT's caution allows."""
    given = list(tensors_in(result))
    return Flow(
        results={tensor.memory.writer for tensor in given if tensor.memory.writer >= 0}
        | tracking.lasting
        | tracking.containers.needed(),
        together=tracking.together,
        needs=tracking.needs,
        before=tracking.before,
        either=tracking.either,
        same=_standing(tracking, given),
        joinable=_joinable(tracking),
    )


def _joinable(tracking: Tracking) -> dict[int, tuple[int, int]]:
    """Of every ``cat`` whose list nobody changes, what two must have in common: the block, and the dimension as written."""
    return {
        launch: (note.block, note.dim)
        for launch, note in tracking.joined.items()
        if type(note.dim) is int and not tracking.containers.has_changed(note.parts)
    }


class _Aliases:
    """What may be the same memory, and what is known of it: whether it is seen from outside, and written into again."""

    def __init__(self, handed_out: Iterable[Memory]) -> None:
        self._same: dict[int, Memory] = {}
        self._seen = {id(memory) for memory in handed_out}
        self._overwritten: set[int] = set()

    def _one(self, memory: Memory) -> Memory:
        while id(memory) in self._same:
            memory = self._same[id(memory)]
        return memory

    def unite(self, first: Memory, second: Memory) -> None:
        first, second = self._one(first), self._one(second)
        if first is second:
            return
        if self._is_seen(second):
            self._seen.add(id(first))
        if self.is_overwritten(second):
            self._overwritten.add(id(first))
        self._same[id(second)] = first

    def is_overwritten(self, memory: Memory) -> bool:
        memory = self._one(memory)
        return memory.overwritten or id(memory) in self._overwritten

    def _is_seen(self, memory: Memory) -> bool:
        memory = self._one(memory)
        return memory.outside or id(memory) in self._seen

    def may_become_one(self, first: Memory, second: Memory) -> bool:
        if self.is_overwritten(first) or self.is_overwritten(second):
            return False
        return not (self._is_seen(first) and self._is_seen(second))


def _standing(tracking: Tracking, given: Sequence[Tensor]) -> dict[int, int]:
    aliases = _Aliases(tensor.memory for tensor in given)
    for group in tracking.alias:
        for memory in group[1:]:
            aliases.unite(group[0], memory)
    mixed = {id(memory) for memory in tracking.containers.mixed()}
    same: dict[int, int] = {}
    for folded in tracking.folded:
        if not any(map(aliases.is_overwritten, folded.memory)):
            same.update(dict.fromkeys(folded.launches, -1))
    for note in tracking.neutral:
        if not {id(note.source), id(note.made)} & mixed and aliases.may_become_one(note.source, note.made):
            same[note.launch] = note.writer
            aliases.unite(note.source, note.made)
    for alike in tracking.alike:
        if not any(map(aliases.is_overwritten, alike.read)) and all(aliases.may_become_one(*pair) for pair in alike.made):
            same.update({alike.second + place: alike.first + place for place in range(alike.count)})
            for pair in alike.made:
                aliases.unite(*pair)
    return same
