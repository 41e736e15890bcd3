# SPDX-License-Identifier: Apache-2.0
"""How much of a board description is known: every section carries a mark, and so may its parts.

``verified``: read in a kernel source, a tool, or a dump of a real board; ``derived``: inferred from those; ``unknown``:
neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, get_args

from .documents import DocumentError, Place, dotted

Mark: TypeAlias = Literal["verified", "derived", "unknown"]
MARKS: tuple[str, ...] = get_args(Mark)
"""From the strongest to the weakest."""


def weakest(marks: Iterable[str]) -> str:
    """The mark of something that rests on all of these; ``unknown`` where there are none."""
    return MARKS[max((MARKS.index(mark) for mark in marks), default=len(MARKS) - 1)]


def collect_marks(raw: Mapping[str, Any]) -> dict[str, str]:
    """Every mark of a description by the dotted name of what it is about: ``cpu``, ``cpu.governors``, ``modes.base``.

    A section's ``status`` is one mark, or a mapping from its parts to theirs.

    Raises:
        DocumentError: a status is not a mark.
    """
    return dict(_collect(raw, ()))


def derived(raw: Any) -> Any:
    """A description of which nothing is verified: what is so of one board was inferred for another."""
    if isinstance(raw, Mapping):
        return {key: _lowered(value) if key in ("status", "marks") else derived(value) for key, value in raw.items()}
    return [derived(item) for item in raw] if isinstance(raw, list) else raw


def _lowered(status: Any) -> Any:
    if isinstance(status, Mapping):
        return {part: _lowered(mark) for part, mark in status.items()}
    return "derived" if status == "verified" else status


def _collect(section: Mapping[str, Any], at: Place) -> Iterator[tuple[str, str]]:
    for name, part in section.items():
        if not isinstance(part, Mapping) or name == "status":
            continue
        here = (*at, name)
        status = part.get("status")
        if isinstance(status, Mapping):
            yield from ((dotted((*here, piece)), _mark(mark, (*here, "status", piece))) for piece, mark in status.items())
        elif status is not None:
            yield dotted(here), _mark(status, (*here, "status"))
        yield from _collect(part, here)


def _mark(value: Any, at: Place) -> str:
    if value not in MARKS:
        raise DocumentError(f"expected {', '.join(MARKS[:-1])} or {MARKS[-1]}, got {value!r:.60}", at)
    return str(value)
