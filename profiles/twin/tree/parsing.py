# SPDX-License-Identifier: Apache-2.0
"""How the kernel reads what is written to an attribute."""

from __future__ import annotations

import errno
import re

from .attributes import refusal

_UNSIGNED = re.compile(r"\s*(\d+)")
_TRUE, _FALSE = frozenset("1yYtT"), frozenset("0nNfF")


def scan_unsigned(text: str, bits: int = 64) -> int:
    """``sscanf("%u")`` or ``"%lu"``: leading digits count, what follows them does not, too large numbers wrap.

    Raises:
        OSError: EINVAL, the text does not begin with a digit.
    """
    match = _UNSIGNED.match(text)
    if match is None:
        raise refusal(errno.EINVAL)
    return int(match[1]) % (1 << bits)


def scan_word(text: str, most: int) -> str:
    """``sscanf("%15s")``: the first word, cut.

    Raises:
        OSError: EINVAL, the text has no words.
    """
    words = text.split()
    if not words:
        raise refusal(errno.EINVAL)
    return words[0][:most]


def whole_number(text: str) -> int:
    """``kstrtoul`` with base 0: the whole text is one number.

    Raises:
        OSError: EINVAL, it is not.
    """
    try:
        value = int(text.removesuffix("\n"), 0)
    except ValueError:
        raise refusal(errno.EINVAL) from None
    if value < 0 or text[:1].isspace() or "_" in text:
        raise refusal(errno.EINVAL)
    return value


def truth(text: str) -> bool:
    """``kstrtobool``: the first character decides.

    Raises:
        OSError: EINVAL, that character means neither yes nor no.
    """
    first = text[:1]
    if first not in _TRUE | _FALSE or not first:
        raise refusal(errno.EINVAL)
    return first in _TRUE
