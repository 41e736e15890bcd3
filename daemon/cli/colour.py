# SPDX-License-Identifier: Apache-2.0
"""Colour of text on a terminal. Pipes and files get the text alone, and so does a terminal if ``NO_COLOR`` is set."""

from __future__ import annotations

import os
import sys

from ...kernels.text import printable


class Bold(str):
    """Text to be shown in bold."""


class Red(str):
    """Text to be shown in red."""


def shown(text: str) -> str:
    """Printable text, in its colour if standard output is a terminal."""
    code = {Bold: "\x1b[1m", Red: "\x1b[31m"}.get(type(text), "")
    coloured = code and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return f"{code}{printable(text)}\x1b[0m" if coloured else printable(text)
