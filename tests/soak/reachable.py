# SPDX-License-Identifier: Apache-2.0
"""What this process's Python objects take, but for those of a part of it: seen to grow without tracing allocations."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterable, Iterator

import numpy as np

_CODE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.FrameType, type)


def bytes_beside(part: object, *, ends: tuple[type, ...]) -> int:
    """Bytes of all objects but those that a part refers to.

    Args:
        part: what is not counted, with all that can be reached from it.
        ends: types at whose instances that search stops: what the part shares with the rest.
    """
    gc.collect()
    left_out = {number for number, _ in _reached([part], (*_CODE, *ends))}
    return sum(size for number, size in _reached(gc.get_objects(), (), left_out) if number not in left_out)


def _reached(roots: Iterable[object], ends: tuple[type, ...], found: object = None) -> Iterator[tuple[int, int]]:
    """The identity and size of each object that can be reached, but for what was found out by this search."""
    waiting, seen = list(roots), set[int]()
    own = {id(waiting), id(seen), id(found)}
    while waiting:
        one = waiting.pop()
        if id(one) in seen or id(one) in own or isinstance(one, ends):
            continue
        seen.add(id(one))
        yield id(one), sys.getsizeof(one)
        waiting += gc.get_referents(one)
        if isinstance(one, np.ndarray) and one.base is not None:
            waiting.append(one.base)  # arrays do not tell the collector
