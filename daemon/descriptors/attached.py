# SPDX-License-Identifier: Apache-2.0
"""A descriptor that came with a call and still lies in the queue of its connection."""

from __future__ import annotations

import socket
from dataclasses import dataclass


@dataclass(frozen=True)
class Attached:
    """What a child needs to get the descriptor for itself.

    Closing a stranger's descriptor asks the file system behind it, which may never answer. So the resident process does not
    even receive it: it hands the connection to a child that does.

    Attributes:
        sock: the connection; only its number is for use, to be inherited.
        size: how many bytes are to be received from it, neither more nor less; the descriptor comes with them.
        uid: the user who sent it.
    """

    sock: socket.socket
    size: int
    uid: int
