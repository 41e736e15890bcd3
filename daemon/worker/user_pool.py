# SPDX-License-Identifier: Apache-2.0
"""Unused accounts for children, each while it lives.

They are from systemd's range for ``DynamicUser=`` (61184 to 65519, see https://systemd.io/UIDS-GIDS), so children have no
rights over each other or the rest of the machine.
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


class UserPool:
    """Deals candidates, each to one child at a time; the child checks for other uses, which may take long."""

    def __init__(self) -> None:
        self._dealt: set[int] = set()

    @contextmanager
    def dealt(self) -> Iterator[tuple[int, ...]]:
        """Numbers dealt to no other child; enough that one is free on any machine."""
        numbers = tuple(random.sample([number for number in RANGE if number not in self._dealt], CANDIDATES))
        self._dealt.update(numbers)
        try:
            yield numbers
        finally:
            self._dealt.difference_update(numbers)


def first_free(candidates: Collection[int]) -> int:
    """The first number without account, group, systemd's dynamic user, or process, or PermissionError."""
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
    try:
        lines = status.read_bytes().splitlines()
    except OSError:
        return set()
    return {int(number) for line in lines if line.startswith((b"Uid:", b"Gid:")) for number in line.split()[1:]}
