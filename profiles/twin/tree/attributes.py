# SPDX-License-Identifier: Apache-2.0
"""File tree of a simulated board: attributes that behave like the kernel's.

The tree adds kernel manners: a newline after every value, one value per write, errors at once, EACCES for a missing method even
for root (``KERNFS_ROOT_EXTRA_OPEN_PERM_CHECK``), and nodes that come and go.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import threading
from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

from msgspec import Struct

from ...timing import Clock
from ..faults import Faults

_UNSIGNED = re.compile(r"\s*(\d+)")
_TRUE, _FALSE = frozenset("1yYtT"), frozenset("0nNfF")


def scan_unsigned(text: str, bits: int = 64) -> int:
    """``sscanf("%u")`` or ``"%lu"``: leading digits, wrapped if too large; OSError EINVAL without any."""
    match = _UNSIGNED.match(text)
    if match is None:
        raise refusal(errno.EINVAL)
    return int(match[1]) % (1 << bits)


def scan_word(text: str, most: int) -> str:
    """``sscanf("%15s")``: the first word, cut; OSError EINVAL without any."""
    words = text.split()
    if not words:
        raise refusal(errno.EINVAL)
    return words[0][:most]


def whole_number(text: str) -> int:
    """``kstrtoul`` with base 0: one number as the whole text, else OSError EINVAL."""
    try:
        value = int(text.removesuffix("\n"), 0)
    except ValueError:
        raise refusal(errno.EINVAL) from None
    if value < 0 or text[:1].isspace() or "_" in text:
        raise refusal(errno.EINVAL)
    return value


def truth(text: str) -> bool:
    """``kstrtobool``: decided by the first character, else OSError EINVAL."""
    first = text[:1]
    if first not in _TRUE | _FALSE or not first:
        raise refusal(errno.EINVAL)
    return first in _TRUE


_MOST_LINKS = 40


def refusal(number: int, path: str = "") -> OSError:
    """Error of a kernel function that returns ``-number``."""
    return OSError(number, os.strerror(number), path or None)


class Attribute(Struct, frozen=True):
    """One file.

    Attributes:
        read: its value; its text gets a newline, bytes are served unchanged. None: not readable.
        write: takes the text, returns the writer's delay in s, if any, raises OSError to refuse.
        mode: permission bits; by default the kernel's for its methods.
        present: True if the node exists now.
        delay_s: time of a read (a firmware round trip).
        turn: lock of a device's writers.
        fixed: True for a constant value.
    """

    read: Callable[[], object] | None
    write: Callable[[str], float | None] | None = None
    mode: int = 0
    present: Callable[[], bool] = lambda: True
    delay_s: float = 0.0
    turn: AbstractContextManager[object] | None = None
    fixed: bool = False

    @property
    def permissions(self) -> int:
        if self.mode:
            return self.mode
        return (0o444 if self.read else 0) | (0o200 if self.write else 0)


def constant(value: object, *, present: Callable[[], bool] = lambda: True) -> Attribute:
    text = str(value)
    return Attribute(lambda: text, present=present, fixed=True)


class Link(Struct, frozen=True):
    target: str
    present: Callable[[], bool] = lambda: True


Nodes: TypeAlias = Iterator[tuple[str, Attribute | Link]]
"""Files by path."""


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else f"{value}\n".encode()


class Tree:
    """Files by absolute path; ``present`` is a context in which the board's time stops."""

    def __init__(self, present: Callable[[], AbstractContextManager[object]], clock: Clock, faults: Faults) -> None:
        self._present = present
        self._clock = clock
        self._faults = faults
        self._nodes: dict[str, Attribute | Link] = {}
        self._children: dict[str, dict[str, None]] = {"/": {}}
        self._private: dict[str, int] = {}
        self._structure = threading.Lock()

    def add(self, nodes: Nodes) -> None:
        for path, node in nodes:
            self.put(path, node)

    def put(self, path: str, node: Attribute | Link) -> None:
        with self._structure:
            self._nodes[path] = node
            while path != "/":
                parent, name = posixpath.split(path)
                self._children.setdefault(parent, {})[name] = None
                path = parent

    def restrict(self, directory: str, mode: int) -> None:
        self._private[directory] = mode

    def exists(self, path: str) -> bool:
        if self._faults.vanished(path):
            return False
        node = self._nodes.get(path)
        if node is not None:
            return node.present()
        children = self._children.get(path)
        return children is not None and (path == "/" or any(self.exists(posixpath.join(path, name)) for name in children))

    def node(self, path: str) -> Attribute | Link | None:
        """Attribute or link; None for a directory. Raises OSError ENOENT."""
        if not self.exists(path):
            raise refusal(errno.ENOENT, path)
        return self._nodes.get(path)

    def permissions(self, path: str) -> int:
        node = self._nodes.get(path)
        return node.permissions if isinstance(node, Attribute) else 0

    def directory_mode(self, path: str) -> int:
        return self._private.get(path, 0o755)

    def names(self, path: str) -> list[str]:
        return [name for name in self._children.get(path, ()) if self.exists(posixpath.join(path, name))]

    def link_text(self, path: str, link: Link) -> str:
        """Relative link target, valid at any mount."""
        return posixpath.relpath(link.target, posixpath.dirname(path))

    def resolve(self, path: str) -> str:
        """Path with links followed. Raises OSError ENOENT, ELOOP."""
        todo, done, links = [part for part in path.split("/") if part][::-1], "/", 0
        while todo:
            done = posixpath.join(done, todo.pop())
            node = self._nodes.get(done)
            if isinstance(node, Link):
                links += 1
                if links > _MOST_LINKS:
                    raise refusal(errno.ELOOP, path)
                if not self.exists(done):
                    raise refusal(errno.ENOENT, path)
                todo += [part for part in node.target.split("/") if part][::-1]
                done = "/"
        return done

    def files(self) -> Iterator[tuple[str, Attribute]]:
        return ((path, node) for path, node in list(self._nodes.items()) if isinstance(node, Attribute) and self.exists(path))

    def links(self) -> Iterator[tuple[str, Link]]:
        return ((path, node) for path, node in list(self._nodes.items()) if isinstance(node, Link) and self.exists(path))

    def read(self, path: str) -> bytes:
        """Present bytes of a file, after its read time. Raises the kernel's OSError."""
        attribute = self._attribute(path)
        if attribute.read is None:
            raise refusal(errno.EACCES, path)
        seconds = self._faults.hold_up(path) + attribute.delay_s
        if seconds:
            self._clock.sleep(seconds)
        self._faults.check(path, "read")
        with self._present():
            return _bytes(attribute.read())

    def contents(self, known: Container[str]) -> dict[str, bytes | None]:
        """Readable files at one moment; None for unreadable and for ``known`` fixed ones."""
        found: dict[str, bytes | None] = {}
        with self._present():
            for path, attribute in self.files():
                if attribute.read is not None:
                    found[path] = None if attribute.fixed and path in known else self._content(path, attribute.read)
        return found

    def write(self, path: str, data: bytes) -> None:
        """Pass one write to a file; returns when the kernel would, and raises its OSError."""
        attribute = self._attribute(path)
        if attribute.write is None:
            raise refusal(errno.EACCES, path)
        try:
            text = data.decode("ascii").rstrip("\n\0")
        except UnicodeDecodeError:
            raise refusal(errno.EINVAL, path) from None
        with attribute.turn or nullcontext():
            self._faults.check(path, "write")
            with self._present():
                seconds = attribute.write(text)
            if seconds:
                self._clock.sleep(seconds)

    def _content(self, path: str, read: Callable[[], object]) -> bytes | None:
        try:
            self._faults.check(path, "read")
            return _bytes(read())
        except OSError:
            return None

    def _attribute(self, path: str) -> Attribute:
        node = self.node(path)
        if isinstance(node, Attribute):
            return node
        raise refusal(errno.EISDIR if node is None else errno.EINVAL, path)
