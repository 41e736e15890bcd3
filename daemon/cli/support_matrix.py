# SPDX-License-Identifier: Apache-2.0
"""What is known of every board on every JetPack, as a Markdown table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...profiles.board import SECTIONS, BoardDescription

_INTRO = """\
# Boards

What the product knows of each board, by JetPack. *verified*: the paths and rules were read in a kernel source, in a tool, or
in a dump of a real board; *derived*: inferred from those; *unknown*: neither, so that the driver tries and says what it finds.
Whatever is described here, the running system's own tables and limits win.

A board is one file in `profiles/boards`; to add one, add its file. `jetdvfs board show NAME` shows what it says, part by part.

JetPack 4's stock Ubuntu 18.04 has a Python too old for this package; its kernels and boards are supported under newer
userlands. The table is printed by `jetdvfs board matrix`.
"""


def matrix(boards: Sequence[BoardDescription]) -> list[dict[str, str]]:
    """One row per board and JetPack: ``board``, ``jetpack``, ``l4t``, ``kernel``, and the mark of every feature."""
    return [
        {
            "board": board.name,
            "jetpack": release.jetpack,
            "l4t": release.l4t,
            "kernel": release.kernel,
            **{section: board.mark(section, release) for section in SECTIONS},
        }
        for board in boards
        for release in board.releases
    ]


def markdown(boards: Sequence[BoardDescription]) -> Iterator[str]:
    """The lines of ``docs/boards.md``."""
    yield from _INTRO.splitlines()
    yield ""
    rows = matrix(boards)
    yield f"| {' | '.join(rows[0])} |"
    yield f"|{'---|' * len(rows[0])}"
    for row in rows:
        yield f"| {' | '.join(row.values())} |"
