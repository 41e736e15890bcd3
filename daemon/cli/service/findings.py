# SPDX-License-Identifier: Apache-2.0
"""What a check found: whether it is well, what was seen, and what to do about it."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Verdict: TypeAlias = Literal["ok", "note", "unknown", "wrong"]


class Finding(NamedTuple):
    """One line of ``jetdvfs doctor``.

    Attributes:
        check: what was looked at.
        verdict: ``note`` where something works with less than it could, ``unknown`` where it could not be seen.
        said: what was seen.
        remedy: what to do about it, mostly a command; empty where nothing is to be done.
        exit_code: what the command ends with where this is the first thing that is wrong.
    """

    check: str
    verdict: Verdict
    said: str
    remedy: str = ""
    exit_code: int = 5


def ok(check: str, said: str) -> Finding:
    return Finding(check, "ok", said)


def note(check: str, said: str, remedy: str = "") -> Finding:
    return Finding(check, "note", said, remedy)


def unknown(check: str, said: str, remedy: str = "") -> Finding:
    return Finding(check, "unknown", said, remedy)


def wrong(check: str, said: str, remedy: str = "", exit_code: int = 5) -> Finding:
    return Finding(check, "wrong", said, remedy, exit_code)
