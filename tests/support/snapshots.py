# SPDX-License-Identifier: Apache-2.0
"""Recorded lists of writes, one file per board, in sections by the system they were recorded on."""

from __future__ import annotations

from collections.abc import Iterable

from jetdvfs.tests.support.paths import SNAPSHOTS

_FOLDER = SNAPSHOTS / "writes"
_SECTION = "== "


def recorded(board: str, system: str) -> str:
    """What was recorded for a board with this system; empty where nothing was."""
    return _sections(board).get(system, "")


def record(board: str, system: str, lines: Iterable[str]) -> None:
    """Write down what a board with this system was made to write; what was recorded for its other systems stays."""
    sections = _sections(board) | {system: "\n".join(lines)}
    text = "".join(f"{_SECTION}{name}\n{sections[name]}\n" for name in sorted(sections))
    (_FOLDER / f"{board}.txt").write_text(text)


def _sections(board: str) -> dict[str, str]:
    path = _FOLDER / f"{board}.txt"
    parts = path.read_text().split(_SECTION)[1:] if path.exists() else []
    return {system: body.rstrip("\n") for system, _, body in (part.partition("\n") for part in parts)}
