# SPDX-License-Identifier: Apache-2.0
"""Accounts for children: numbers that nobody else has, for as long as a child lives.

They are of the range that systemd keeps for ``DynamicUser=`` (61184 to 65519, see https://systemd.io/UIDS-GIDS), in which no
account is made, so that two children have no rights over each other, nor over anything else on the machine.
"""

from __future__ import annotations

import grp
import pwd
import random
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

RANGE = range(61184, 65520)
CANDIDATES = 8
_DYNAMIC = Path("/run/systemd/dynamic-uid")
_PROCESSES = Path("/proc")


class Accounts:
    """Deals out candidates, each to one child at a time; whether others use them the child finds out, as that may take long."""

    def __init__(self) -> None:
        self._dealt: set[int] = set()

    @contextmanager
    def dealt(self) -> Iterator[tuple[int, ...]]:
        """Some numbers that no other child has been dealt; at least one of them is free on any machine that can be imagined."""
        numbers = tuple(random.sample([number for number in RANGE if number not in self._dealt], CANDIDATES))
        self._dealt.update(numbers)
        try:
            yield numbers
        finally:
            self._dealt.difference_update(numbers)


def first_free(candidates: Collection[int]) -> int:
    """The first of these that is no account's or group's, none of systemd's dynamic users', and that no process runs as.

    Raises:
        PermissionError: none is.
    """
    running = set().union(*map(_users, _PROCESSES.glob("[0-9]*/status")))
    for number in candidates:
        if number not in running and not (_DYNAMIC / str(number)).exists() and not _is_known(number):
            return number
    raise PermissionError(
        f"accounts {', '.join(map(str, candidates))} are all in use; one that is free is needed to read models as"
    )


def _is_known(number: int) -> bool:
    for look_up in (pwd.getpwuid, grp.getgrgid):
        try:
            look_up(number)
        except KeyError:
            continue
        return True
    return False


def _users(status: Path) -> set[int]:
    """The users and groups that a process is, by its status file; none where it has ended."""
    try:
        lines = status.read_bytes().splitlines()
    except OSError:
        return set()
    return {int(number) for line in lines if line.startswith((b"Uid:", b"Gid:")) for number in line.split()[1:]}
