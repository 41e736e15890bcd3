# SPDX-License-Identifier: Apache-2.0
"""Texts for display: untrusted names made printable, missing packages, closest known words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence


def printable(text: str) -> str:
    """One line in which control characters, line ends, direction marks and zero-width letters become ``?``."""
    return text if text.isprintable() else "".join(character if character.isprintable() else "?" for character in text)


def counted(number: int, noun: str) -> str:
    """Number and noun, such as ``1 launch`` or ``1,204 launches``."""
    plural = f"{noun}es" if noun.endswith(("ch", "sh", "s", "x")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


_SYSTEM_PACKAGES = {"plot": "python3-matplotlib", "notebook": "python3-pandas"}


@contextlib.contextmanager
def needing(what: str, extras: str, refusal: type[Exception]) -> Iterator[None]:
    """Report a failed import as one line with the package and its installation.

    Args:
        what: the verb or feature that needs the package.
        extras: of ``setup.cfg``, as ``plot`` or ``train,plot``.
    """
    try:
        yield
    except ImportError as error:
        missing = f"the Python package {error.name}" if isinstance(error, ModuleNotFoundError) else f"a package ({error})"
        system = _SYSTEM_PACKAGES.get(extras)
        install = f"{f'sudo apt-get install {system}, or ' if system else ''}from a clone: pip install '.[{extras}]'"
        raise refusal(f"{what}: needs {missing} ({install})") from error


def closest_match(word: str, known: Sequence[str]) -> str | None:
    import difflib  # the resident daemon gets here only by mistakes of its configuration

    return next(iter(difflib.get_close_matches(word[:64], known, n=1)), None)


def valid_instead(word: str, known: Sequence[str]) -> str:
    """End of a message about an unknown word: the closest known word, if any, and all known words."""
    meant = closest_match(word, known)
    guess = f" did you mean {meant!r}?" if meant else ""
    return f";{guess} valid: {', '.join(known) or 'none'}"
