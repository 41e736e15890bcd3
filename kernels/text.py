# SPDX-License-Identifier: Apache-2.0
"""Texts that came from others, as they may be shown: names in files, what applications call themselves, what daemons answer."""

from __future__ import annotations

from collections.abc import Sequence


def printable(text: str) -> str:
    """One line without what a terminal, a log or a reader's eye would take for more than letters.

    Control characters, line ends, what turns the direction of writing, and letters of no width become ``?``.
    """
    return text if text.isprintable() else "".join(character if character.isprintable() else "?" for character in text)


_PACKAGES = {"plot": "python3-matplotlib", "notebook": "python3-pandas"}


def how_to_install(extras: str) -> str:
    """Commands that install extras of ``setup.cfg``, given as ``plot`` or ``train,plot``."""
    package = _PACKAGES.get(extras)
    system = f"sudo apt-get install {package}, or " if package else ""
    return f"{system}from a clone: pip install '.[{extras}]'"


def meant_by(word: str, known: Sequence[str]) -> str | None:
    """The known word that is closest to another, None if none is close."""
    import difflib  # the resident daemon loads this module and gets here by mistakes of its configuration alone

    return next(iter(difflib.get_close_matches(word[:64], known, n=1)), None)


def valid_instead(word: str, known: Sequence[str]) -> str:
    """End of a message about an unknown word: the known word that is closest, if one is close, and all known words."""
    meant = meant_by(word, known)
    guess = f" did you mean {meant!r}?" if meant else ""
    return f";{guess} valid: {', '.join(known) or 'none'}"
