# SPDX-License-Identifier: Apache-2.0
"""A connection that hides nothing of what the daemon answers, and holds every answer against its interface."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from jetdvfs.daemon.wire import protocol
from jetdvfs.daemon.wire.calls import ADMIN, PUBLIC
from jetdvfs.tests.support.daemons.replies import check_reply

#: Another user than root, and a group of no more rights than that user has.
OTHER_UID, OTHER_GID = 65534, 65534
INTERFACES = {interface.name: interface for interface in (PUBLIC, ADMIN)}
_CHUNK = 1 << 16
_REFUSALS = range(2, 7)


class Gone(Exception):
    """The connection ended before an answer came."""


class Unanswered(Exception):
    """No answer came in time."""


@dataclass(frozen=True)
class Reply:
    """One answer.

    Attributes:
        error: its short name, empty for none.
        complaints: what is wrong with it: against the interface, more than one line, Internal.
    """

    method: str
    parameters: dict[str, Any]
    error: str = ""
    complaints: tuple[str, ...] = ()


@dataclass
class Wire:
    """A connection to the daemon as a user; calls are raw messages."""

    path: Path
    uid: int = 0
    timeout_s: float = 20.0
    interface: str = protocol.INTERFACE
    sock: socket.socket = field(init=False)
    _buffer: bytearray = field(init=False, default_factory=bytearray)

    def __post_init__(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout_s)
        try:
            with acting_as(self.uid):
                self.sock.connect(os.fspath(self.path))
        except OSError as error:
            self.sock.close()
            raise Gone(f"cannot connect: {error.strerror or error}") from error

    def close(self) -> None:
        self.sock.close()

    def call(self, method: str, parameters: Mapping[str, Any] | None = None, descriptors: Sequence[int] = ()) -> Reply:
        """One call and its answer.

        Raises:
            Gone, Unanswered: there is none.
        """
        self.send(method, parameters or {}, descriptors)
        return self.receive(method)

    def send(self, method: str, parameters: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        data = json.dumps({"method": f"{self.interface}.{method}", "parameters": parameters}).encode() + b"\0"
        self.send_bytes(data, descriptors)

    def send_bytes(self, data: bytes, descriptors: Sequence[int] = ()) -> None:
        try:
            sent = socket.send_fds(self.sock, [data], list(descriptors)) if descriptors else 0
            self.sock.sendall(data[sent:])
        except TimeoutError:
            raise Unanswered("what was sent is not read") from None
        except BrokenPipeError:
            pass  # what it said before it hung up is still to be read
        except OSError as error:
            raise Gone(str(error.strerror)) from error

    def receive(self, method: str) -> Reply:
        return judged(method, self.message(), self.interface)

    def message(self) -> bytes:
        """The next message's bytes."""
        ends = time.monotonic() + self.timeout_s
        while (end := self._buffer.find(0)) < 0:
            left = ends - time.monotonic()
            if left <= 0:
                raise Unanswered(f"no answer in {self.timeout_s:g} s")
            self.sock.settimeout(left)
            try:
                chunk = self.sock.recv(_CHUNK)
            except TimeoutError:
                continue
            except OSError as error:
                raise Gone(str(error.strerror)) from error
            if not chunk:
                raise Gone("it hung up" + (" in the middle of an answer" if self._buffer else ""))
            self._buffer += chunk
        found = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return found


def judged(method: str, data: bytes, interface: str = protocol.INTERFACE) -> Reply:
    """An answer's bytes as a reply, and what is wrong with it."""
    try:
        message = json.loads(data, parse_constant=_refuse_constant)
        assert isinstance(message, dict)
    except (ValueError, AssertionError):
        return Reply(method, {}, "", (f"{method}: the answer is not a JSON object: {data[:100]!r}",))
    parameters = message.get("parameters") or {}
    complaints: list[str] = []
    definition = INTERFACES[interface]
    if strange := message.keys() - {"error", "parameters", "continues"}:
        complaints.append(f"{method}: the answer has the members {sorted(strange)}")
    error = message.get("error")
    if error is None:
        try:
            check_reply(definition, method, parameters) if method in definition.decoders else None
        except msgspec.ValidationError as mismatch:
            complaints.append(f"{method}: answered against the interface: {mismatch}")
        return Reply(method, parameters, "", tuple(complaints))
    short = str(error).rpartition(".")[2]
    if str(error).startswith(protocol.SERVICE):
        return Reply(method, parameters, short, tuple(complaints))
    text, code = parameters.get("message"), parameters.get("exit_code")
    if short not in definition.errors:
        complaints.append(f"{method}: the error {error} is not in the interface")
    if not isinstance(text, str) or "\n" in text or not text:
        complaints.append(f"{method}: refused in other than one line: {text!r:.100}")
    if code not in _REFUSALS:
        complaints.append(f"{method}: refused with the exit code {code}")
    if short == "Internal":
        complaints.append(f"{method}: Internal ({text!s:.200})")
    return Reply(method, parameters, short, tuple(complaints))


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Be another user for a moment: the kernel notes who connects, by effective user."""
    if uid == os.geteuid():
        yield
        return
    os.setegid(OTHER_GID)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
