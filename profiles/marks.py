# SPDX-License-Identifier: Apache-2.0
"""How much of a board description is known: every section carries a mark, and so may its parts.

``verified``: read in a kernel source, a tool, or a dump of a real board; ``derived``: inferred from those; ``unknown``:
neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# From the strongest to the weakest.
MARKS = ("verified", "derived", "unknown")


def weakest(marks: Iterable[str]) -> str:
    """The mark of something that rests on all of these; ``unknown`` where there are none."""
    return MARKS[max((MARKS.index(mark) for mark in marks), default=len(MARKS) - 1)]


def collect_marks(raw: Mapping[str, Any]) -> dict[str, str]:
    """Every mark of a description by the dotted name of what it is about: ``cpu``, ``cpu.governors``, ``modes.base``.

    A section's ``status`` is one mark, or a mapping from its parts to theirs.

    Raises:
        ValueError: a status is not a mark.
    """
    marks = dict(_collect("", raw))
    for name, mark in marks.items():
        if mark not in MARKS:
            raise ValueError(f"status of {name}: {mark!r} is no mark; valid: {', '.join(MARKS)}")
    return marks


def _collect(prefix: str, section: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, part in section.items():
        if not isinstance(part, Mapping) or name == "status":
            continue
        status = part.get("status")
        if isinstance(status, Mapping):
            yield from ((f"{prefix}{name}.{piece}", str(mark)) for piece, mark in status.items())
        elif status is not None:
            yield f"{prefix}{name}", str(status)
        yield from _collect(f"{prefix}{name}.", part)
