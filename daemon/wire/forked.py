# SPDX-License-Identifier: Apache-2.0
"""What becomes of a client's objects in a child that its process forks, as multiprocessing and data loaders do.

A connection, its leases and their threads stay the parent's alone: a child that spoke on the socket would garble what the
parent says, one that kept it open would outlive the parent with the clocks held, and a lock that another thread held at the
fork is never released in the child.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class StaysBehind(Protocol):
    """What lives in the process that made it only."""

    def after_fork(self) -> None:
        """In the child: let go of everything, without a word to anybody and without waiting for any lock."""
        ...


# The interpreter has one such hook for the whole process, and none can be taken back.
_living: weakref.WeakSet[StaysBehind] = weakref.WeakSet()


def stays_behind(one: StaysBehind) -> None:
    """Have ``after_fork`` called in every child, for as long as the object lives."""
    _living.add(one)


def _in_child() -> None:
    for one in list(_living):
        one.after_fork()


os.register_at_fork(after_in_child=_in_child)
