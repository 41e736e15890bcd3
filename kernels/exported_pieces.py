# SPDX-License-Identifier: Apache-2.0
"""A large JSON text, read piece by piece: unneeded values are skipped, and never held all at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from .budget import Account
from .errors import BudgetExceeded

_BLANK = re.compile(r"[ \t\r\n]*")
_FIRST = 1 << 12
_GROWTH = 4
#: Characters between checks of the memory.
_LOOK = 1 << 18


class JsonText:
    """The text of a JSON document; ``account`` bounds one piece, and reading."""

    def __init__(self, text: str, account: Account, object_hook: Callable[[dict[str, Any]], Any] | None = None) -> None:
        self._text = text
        self._account = account
        self._unseen = 0
        self._decode = json.JSONDecoder(object_hook=object_hook).raw_decode

    def value(self, at: int) -> tuple[Any, int]:
        """The value that starts at a place, and its end.

        Raises:
            ValueError: no value.
            BudgetExceeded: it is larger than the limit of a piece.
        """
        self._account.step()
        limit = self._account.budget.graph_bytes
        size = min(_FIRST, limit)
        while True:
            piece = self._text[at : at + size]
            whole = at + size >= len(self._text)
            try:
                made, end = self._decode(piece)
            except ValueError:
                if whole:
                    raise
            else:
                if whole or end < len(piece):  # a number may go on
                    self._unseen += end
                    if self._unseen > _LOOK:
                        self._unseen = 0
                        self._account.check()
                    return made, at + end
            if size >= limit:
                raise BudgetExceeded(f"a value of more than {limit} bytes in JSON, the most that is parsed at a time")
            size = min(size * _GROWTH, limit)

    def members(self, at: int, visits: Mapping[str, Callable[[int], int]]) -> int:
        """Visit the members of the object at a place that have an entry in ``visits``; return its end.

        A visit is called with the start of the value, and returns its end.
        """
        place = self._after(at, "{")
        while self._text[place : place + 1] != "}":
            name, place = self.value(place)
            start = self._after(place, ":")
            visit = visits.get(name) if isinstance(name, str) else None
            place = self._next(visit(start) if visit else self.skip(start), "}")
        return place + 1

    def entries(self, at: int, keep: Callable[[str, Any], None]) -> int:
        """Pass each member of the object at a place to ``keep``; return its end."""
        place = self._after(at, "{")
        while self._text[place : place + 1] != "}":
            name, place = self.value(place)
            made, end = self.value(self._after(place, ":"))
            keep(str(name), made)
            place = self._next(end, "}")
        return place + 1

    def items(self, at: int, keep: Callable[[Any], None]) -> int:
        place = self._after(at, "[")
        while self._text[place : place + 1] != "]":
            made, end = self.value(place)
            keep(made)
            place = self._next(end, "]")
        return place + 1

    def finish(self, at: int) -> None:
        if self._blank(at) < len(self._text):
            raise ValueError(f"something follows the end at {at}")

    def skip(self, at: int) -> int:
        if self._text[at : at + 1] not in ("{", "["):
            return self.value(at)[1]
        place, depth = at + 1, 1
        while depth:
            found = _BRACKET.search(self._text, place)
            if found is None:
                raise ValueError("it ends within a list or an object")
            self._account.step()
            depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(found[0], 0)
            place = found.end()
        return place

    def _after(self, at: int, sign: str) -> int:
        place = self._blank(at)
        if self._text[place : place + 1] != sign:
            raise ValueError(f"{sign!r} expected at {place}")
        return self._blank(place + 1)

    def _next(self, at: int, closing: str) -> int:
        place = self._blank(at)
        if self._text[place : place + 1] == ",":
            return self._blank(place + 1)
        if self._text[place : place + 1] != closing:
            raise ValueError(f"{closing!r} expected at {place}")
        return place

    def _blank(self, at: int) -> int:
        found = _BLANK.match(self._text, at)
        return at if found is None else found.end()


#: A bracket, or a whole string, within which brackets do not count.
_BRACKET = re.compile(r'[{}\[\]]|"(?:[^"\\]|\\.)*"')
