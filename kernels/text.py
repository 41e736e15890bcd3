# SPDX-License-Identifier: Apache-2.0
"""Texts that came from others, as they may be shown: names in files, what applications call themselves, what daemons answer."""

from __future__ import annotations

from collections.abc import Sequence


def printable(text: str) -> str:
    """One line without what a terminal, a log or a reader's eye would take for more than letters.

    Control characters, line ends, what turns the direction of writing, and letters of no width become ``?``.
    """
    return text if text.isprintable() else "".join(character if character.isprintable() else "?" for character in text)


def meant_by(word: str, known: Sequence[str]) -> str | None:
    """The known word that is closest to another, None if none is close."""
    import difflib  # the resident daemon loads this module and gets here by mistakes of its configuration alone

    return next(iter(difflib.get_close_matches(word[:64], known, n=1)), None)
