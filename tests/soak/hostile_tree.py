# SPDX-License-Identifier: Apache-2.0
"""A simulated board's files, some of which say what no kernel would, hang, or are the last thing that somebody touches."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from jetdvfs.profiles.twin.tree.attributes import Tree, refusal


@dataclass
class Ambush:
    """Ends a process at the n-th read or write of a board's file.

    Attributes:
        pid: the process.
        accesses: which accesses count: ``read``, ``write`` or both.
        left: how many come before the one.
        after: whether the file still takes the access, unknown to the process.
        number: the signal.
    """

    pid: int
    accesses: tuple[str, ...]
    left: int
    after: bool
    number: int = signal.SIGKILL

    def due(self, access: str, thread: int) -> bool:
        """Whether this access, by this thread, is the one; counts it."""
        if access not in self.accesses or process_of(thread) != self.pid:
            return False
        self.left -= 1
        return self.left < 0


def process_of(thread: int) -> int:
    """The process that a thread belongs to; 0 where it has gone."""
    try:
        status = Path(f"/proc/{thread}/status").read_text()
    except OSError:
        return 0
    return int(status.split("Tgid:", 1)[1].split(None, 1)[0])


@dataclass
class Meddling:
    """What is wrong with the files at present; paths with links followed.

    Attributes:
        contents: what files say instead of their values.
        hanging: files of which no read or write comes back until :meth:`clear`, and where they wait.
        ambush: what happens at a certain access, once.
        sprung: whether it has.
    """

    contents: dict[str, bytes] = field(default_factory=dict)
    hanging: set[str] = field(default_factory=set)
    ambush: Ambush | None = None
    sprung: bool = False
    _free: threading.Event = field(default_factory=threading.Event)

    def clear(self) -> None:
        """Let everything be as it is."""
        self.contents.clear()
        self.ambush = None
        self.release()

    def release(self) -> None:
        """Let whoever hangs come back."""
        self.hanging.clear()
        self._free.set()
        self._free = threading.Event()

    def hold_up(self, path: str) -> None:
        if path in self.hanging:
            self._free.wait()

    def spring(self, access: str, thread: int, perform: Callable[[], object]) -> None:
        """End the process whose turn it is; its access fails in any case."""
        ambush = self.ambush
        if ambush is None or not ambush.due(access, thread):
            return
        self.ambush, self.sprung = None, True
        if ambush.after:
            perform()
        os.kill(ambush.pid, ambush.number)
        if ambush.number == signal.SIGKILL:
            raise refusal(errno.EINTR)


class HostileTree(Tree):
    """A board's tree with this in between.

    Args:
        tree: the board's own; shares all it has with this one.
        caller: the thread on whose behalf a file is touched just now.
    """

    def __init__(self, tree: Tree, meddling: Meddling, caller: Callable[[], int]) -> None:
        self.__dict__.update(vars(tree))
        self._meddling, self._caller = meddling, caller

    def read(self, path: str) -> bytes:
        meddling = self._meddling
        meddling.hold_up(path)
        meddling.spring("read", self._caller(), lambda: None)
        if (content := meddling.contents.get(path)) is not None:
            return content
        return super().read(path)

    def write(self, path: str, data: bytes) -> None:
        self._meddling.hold_up(path)
        self._meddling.spring("write", self._caller(), lambda: super(HostileTree, self).write(path, data))
        super().write(path, data)

    def _content(self, path: str, read: Callable[[], object]) -> bytes | None:
        content = self._meddling.contents.get(path)
        return super()._content(path, read) if content is None else content
