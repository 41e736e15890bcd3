# SPDX-License-Identifier: Apache-2.0
"""Descriptors as clients send them: in the queue of a connection."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from jetdvfs.daemon.descriptors.disposal import DescriptorGrant


@contextmanager
def attached(*descriptors: int, uid: int | None = None) -> Iterator[DescriptorGrant]:
    """These descriptors, sent with a message that nobody has received."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        socket.send_fds(theirs, [b"call"], descriptors)
        yield DescriptorGrant(ours, 4, os.getuid() if uid is None else uid)
