# SPDX-License-Identifier: Apache-2.0
"""What a child is told when it is started, before it is confined: nothing of it comes from a stranger."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from ...profiles.documents import convert


@dataclass(frozen=True)
class Task:
    """How a child does its job.

    Attributes:
        socket: the number of the socket on which it is asked and answers.
        accounts: the numbers of which it takes one as its user and group, where it is root.
        threads: how many it may have besides the one it starts with.
        connection: the number of the connection on which a client's descriptor waits.
        outputs: further descriptors that it works with.
        folders: what it may read.
    """

    socket: int
    accounts: tuple[int, ...] = ()
    threads: int = 0
    connection: int | None = None
    outputs: tuple[int, ...] = ()
    folders: tuple[str, ...] = ()

    @property
    def keep(self) -> tuple[int, ...]:
        """The descriptors it inherits."""
        return (self.socket, *self.outputs, *(() if self.connection is None else (self.connection,)))

    def to_argument(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, text: str) -> Task:
        return convert(json.loads(text), cls)
