# SPDX-License-Identifier: Apache-2.0
"""How soon a user who does nothing else is told the status, while others do whatever they do.

    python -m jetdvfs.tests.soak.probe

A process of its own. It asks for ``Status`` again and again, at the same moment for ``GetInfo`` on another connection, and has
a byte sent back by a process that does nothing but that: on a busy machine all are late, behind a daemon that is blocked the
byte is not, and where clocks were just set only the status is, which waits until they are read. How long the kernel let the
daemon and this process wait for a processor is taken from ``schedstat``.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jetdvfs.daemon.leases.board.service import WAIT_S
from jetdvfs.daemon.wire.protocol import SERVICE
from jetdvfs.tests.soak.wire import OTHER_GID, OTHER_UID, Gone, Unanswered, Wire, judged

PROBE_UID = OTHER_UID - 1
_PAUSE_S = 0.03
_LONGEST_S = 10.0


class Sample(NamedTuple):
    """One round; times in milliseconds, ``began_s`` on the monotonic clock that all processes share.

    Attributes:
        status_ms: until the status came, or until it was given up.
        info_ms: until the daemon had said who it is, for which it looks at nothing.
        bare_ms: until the byte came back.
        waited_ms: for how long threads of the daemon and the probe were ready to run meanwhile, and no processor was free.
        info_waited_ms: the same until ``info_ms``.
        said: empty for an answer as it should be, else what came instead.
    """

    began_s: float
    status_ms: float
    info_ms: float
    bare_ms: float
    waited_ms: float
    info_waited_ms: float
    said: str

    @property
    def own_ms(self) -> float:
        """The daemon's part of the time until the status came."""
        return max(0.0, self.status_ms - max(self.waited_ms, self.bare_ms))

    @property
    def blocked_ms(self) -> float:
        """The daemon's part of the time until it said who it is: for so long it answered no client."""
        return max(0.0, self.info_ms - max(self.info_waited_ms, self.bare_ms))

    def fault(self, longest_ms: float) -> str:
        """A fault, if no client may wait longer, but for a status until clocks just set are read; else empty."""
        if self.said:
            return f"status was refused ({self.said})"
        if self.blocked_ms > longest_ms:
            return f"call was answered later than {longest_ms:g} ms"
        status_ms = longest_ms + 1e3 * WAIT_S
        return f"status was answered later than {status_ms:g} ms" if self.own_ms > status_ms else ""


class Probe:
    """The process that asks; a context manager that ends it."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "jetdvfs.tests.soak.probe"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(15)

    def watch(self, path: Path) -> None:
        """Begin to ask on this socket."""
        self._say(str(path))

    def stop(self) -> list[Sample]:
        """End that; what came of it."""
        self._say("")
        assert self._process.stdout is not None
        return [Sample(*sample) for sample in json.loads(self._process.stdout.readline())]

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RuntimeError(f"who asks for the status has ended with {self._process.wait(15)}") from None


def blocked(samples: Sequence[Sample], left_out: Sequence[tuple[float, float]], longest_ms: float) -> list[Sample]:
    """The rounds in which the daemon took longer than it may, but for those that reach into one of these intervals."""
    late = (one for one in samples if one.fault(longest_ms))
    return [
        one
        for one in late
        if not any(one.began_s < end and one.began_s + one.status_ms / 1e3 > begin for begin, end in left_out)
    ]


def main() -> None:
    bare = _echo()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(OTHER_GID)
        os.setuid(PROBE_UID)
    wires: tuple[Wire, Wire] | tuple[()] = ()
    path, samples = "", list[Sample]()
    while True:
        ready, _, _ = select.select([sys.stdin], [], [], _PAUSE_S if path else None)
        if ready:
            line = os.read(0, 4096).decode()
            if not line:
                os._exit(0)
            if path:
                print(json.dumps(samples), flush=True)
            path, samples = line.strip(), []
            _close(wires)
            wires = ()
            continue
        with contextlib.suppress(Gone):
            wires = wires or (Wire(Path(path), os.geteuid()), Wire(Path(path), os.geteuid(), interface=SERVICE))
            try:
                samples.append(_round(*wires, bare))
                if samples[-1].said:
                    raise Gone
            except (Gone, Unanswered):
                _close(wires)
                wires = ()


def _close(wires: Sequence[Wire]) -> None:
    for wire in wires:
        wire.close()


def _echo() -> socket.socket:
    """The end of a connection to a process that sends back what comes."""
    here, there = socket.socketpair()
    if os.fork() == 0:
        here.close()
        os.close(0)
        with contextlib.suppress(OSError):
            while data := there.recv(64):
                there.send(data)
        os._exit(0)
    there.close()
    return here


def _round(wire: Wire, info: Wire, bare: socket.socket) -> Sample:
    pid, _, _ = struct.unpack("3i", wire.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    before = _delays_ns(pid)
    began = time.monotonic()
    wire.send("Status", {})
    info.send("GetInfo", {})
    bare.send(b"x")
    wires = {wire.sock: wire, info.sock: info}
    came_ms, waited_ms = dict[socket.socket, float](), dict[socket.socket, float]()
    said, data = list[str](), b""
    while not wires.keys() <= came_ms.keys():
        left_s = _LONGEST_S - (time.monotonic() - began)
        missing: list[socket.socket | int] = [0, *({bare, *wires} - came_ms.keys())]
        ready, _, _ = select.select(missing, [], [], max(0.0, left_s))
        if 0 in ready or not ready:
            said += [] if ready else ["no answer"]
            break
        for sock in (one for one in ready if isinstance(one, socket.socket)):
            came_ms[sock], waited_ms[sock] = 1e3 * (time.monotonic() - began), _waited_ms(pid, before)
            try:
                answer = wires[sock].message() if sock in wires else sock.recv(64)
            except Unanswered:
                said.append("half an answer")
                continue
            data = answer if sock is wire.sock else data
    if bare not in came_ms:
        bare.recv(64)
    now_ms, now_waited_ms = 1e3 * (time.monotonic() - began), _waited_ms(pid, before)
    if data:
        reply = judged("Status", data)
        said += [*([reply.error] if reply.error else []), *reply.complaints]
    status_ms, info_ms, bare_ms = (came_ms.get(sock, now_ms) for sock in (*wires, bare))
    status_waited_ms, info_waited_ms = (waited_ms.get(sock, now_waited_ms) for sock in wires)
    return Sample(began, status_ms, info_ms, bare_ms, status_waited_ms, info_waited_ms, "; ".join(said))


def _delays_ns(pid: int) -> dict[str, int]:
    """For how long each thread of a process, and this process, have waited for a processor, ever."""
    tasks = [Path("/proc/self")]
    with contextlib.suppress(OSError):  # a daemon that is killed goes while it is looked at
        tasks += Path(f"/proc/{pid}/task").iterdir()
    found = {}
    for path in tasks:
        with contextlib.suppress(OSError, IndexError):
            found[path.name] = int((path / "schedstat").read_text().split()[1])
    return found


def _waited_ms(pid: int, before: dict[str, int]) -> float:
    """For how long they have waited since.

    A thread that waits for a processor may hold what the others need, the interpreter's lock: so all of them count.
    """
    return sum(now - before.get(name, 0) for name, now in _delays_ns(pid).items()) / 1e6


if __name__ == "__main__":
    main()
