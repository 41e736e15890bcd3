# SPDX-License-Identifier: Apache-2.0
"""Colour of text on a terminal. Pipes and files get the text alone, and so does a terminal if ``NO_COLOR`` is set."""

from __future__ import annotations

import os
import sys

from ...kernels.text import printable


class Bold(str):
    """Text to be shown in bold."""

    code = "\x1b[1m"


class Red(str):
    """Text to be shown in red."""

    code = "\x1b[31m"


def shown(text: str) -> str:
    """Printable text, in its colour if standard output is a terminal."""
    coloured = isinstance(text, Bold | Red) and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return f"{text.code}{printable(text)}\x1b[0m" if coloured else printable(text)
