# SPDX-License-Identifier: Apache-2.0
"""Talks to the real daemon as nobody should, for as long as wanted, and stops at whatever breaks it.

    make fuzz MINUTES=60                                                 # as root
    python -m jetdvfs.tests.fuzz.socket_calls --replay FILE              # conversations that were kept

What is said is drawn by ``socket_inputs.py``. After each conversation every answer is held against the interface; after some,
another client is told the status, and the daemon's descriptors, threads, children, memory and log are looked at. What breaks it
is looked for among the last conversations, each with a fresh daemon, and kept as JSON, to be made a test of
(``tests/fuzz/sockets``).
"""

from __future__ import annotations

import argparse
import array
import contextlib
import json
import shutil
import socket
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jetdvfs.daemon.wire import protocol
from jetdvfs.tests.fuzz.socket_files import Files
from jetdvfs.tests.fuzz.socket_inputs import Conversation, conversation
from jetdvfs.tests.soak import boards, checks
from jetdvfs.tests.soak.boards import Boards
from jetdvfs.tests.soak.events import service
from jetdvfs.tests.soak.stage import Places, Stage
from jetdvfs.tests.soak.wire import OTHER_UID, Gone, Unanswered, Wire, judged
from jetdvfs.tests.support.profiles.small_bundle import make_bundle

_LOOK_EVERY = 50
_REMEMBERED = 120
_ANSWER_S = 5.0
_WORKERS = "worker: {timeout_s: 3}\n"


class Target:
    """A daemon to talk to, on a simulated board that is a plain folder; a context manager that ends it.

    Attributes:
        complaints: what it did wrong.
        answers: how often it said what.
    """

    def __init__(self, folder: Path) -> None:
        self._stack = contextlib.ExitStack()
        self._folder = folder
        self.complaints: list[str] = []
        self.answers: Counter[str] = Counter()

    def __enter__(self) -> Target:
        folder = self._folder
        folder.mkdir()
        folder.chmod(0o755)
        make_bundle(folder / "stumps")
        places = Places(folder)
        places.run.mkdir()
        places.config.write_text(service.BASIS + _WORKERS)
        self._files = self._stack.enter_context(Files(folder / "fuse"))
        # Not in a folder, which now and then takes back what was just written to it.
        board = self._stack.enter_context(Boards()).new("agx-xavier", "fuse", places.root)
        self._stage = Stage(board, places, ["--profile", str(folder / "stumps")], folder / "none")
        self._stack.callback(self._stage.kill)
        assert self._stage.up(), self._stage.log_text()
        self._fresh = self._stage.fresh
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def talk(self, said: Conversation) -> None:
        """Have one conversation."""
        path = self._stage.places.admin if said.admin else self._stage.places.socket
        interface = protocol.ADMIN_INTERFACE if said.admin else protocol.INTERFACE
        try:
            wire = Wire(path, 0 if said.admin else OTHER_UID, timeout_s=_ANSWER_S, interface=interface)
        except Gone as gone:
            self.complaints.append(f"no connection: {gone}")
            return
        names = {b"@network": b"n1", b"@lease": b"1"}
        left = len(said.methods)
        with contextlib.closing(wire), contextlib.suppress(Gone, Unanswered, OSError):
            for piece in said.pieces:
                data = piece.data
                for name, known in names.items():
                    data = data.replace(name, known)
                self._send(wire.sock, data, piece.kind, piece.count)
                if piece.waits and said.reads and left:
                    left -= 1
                    self._hear(wire, names)
            if said.half_closes:
                wire.sock.shutdown(socket.SHUT_WR)
            for _ in range(left if said.reads else 0):
                self._hear(wire, names)

    def _send(self, sock: socket.socket, data: bytes, kind: str, count: int) -> None:
        handles = [self._files.open(kind) for _ in range(min(count, 4))] if count else []
        try:
            rights = array.array("i", [handles[number % len(handles)] for number in range(count)])
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if handles else []
            sent = sock.sendmsg([data], ancillary)
            sock.sendall(data[sent:])
        finally:
            for handle in handles:
                self._files.close(handle, kind)

    def _hear(self, wire: Wire, names: dict[bytes, bytes]) -> None:
        """Take the next answer. Text that was spoilt may have become other calls, or none: it is held against no method."""
        try:
            reply = judged("", wire.message(), wire.interface)
        except (Gone, Unanswered) as nothing:
            self.answers[type(nothing).__name__] += 1
            raise
        self.answers[reply.error or "answered"] += 1
        self.complaints += reply.complaints
        network, lease = reply.parameters.get("network"), reply.parameters.get("lease")
        if isinstance(network, dict):
            names[b"@network"] = str(network.get("network")).encode()
        if isinstance(lease, str):
            names[b"@lease"] = lease.encode()

    def look(self) -> None:
        """See how the daemon is."""
        stage = self._stage
        if not stage.pid:
            self.complaints.append("the daemon has ended")
            return
        began = time.monotonic()
        status = checks.status_of(stage)
        took_s = time.monotonic() - began
        if status is None:
            self.complaints.append("another client is not told the status")
        elif took_s > 1.0:
            self.complaints.append(f"another client's status took {took_s:.1f} s")
        self.complaints += stage.troubles
        stage.troubles.clear()
        checks.check_log(stage)
        self.complaints += stage.troubles
        stage.troubles.clear()

    def settle(self) -> None:
        """See what the daemon has kept of all that was said; nobody else is connected."""
        stage = self._stage
        self._files.let_go()
        if stage.pid:
            checks.check_resources(stage)
            checks.check_given_back(stage, "after all connections had ended")
        self.complaints += stage.troubles
        stage.troubles.clear()

    def log(self) -> str:
        return self._stage.log_text()


def main() -> int:
    parser = argparse.ArgumentParser(description="Talks to the real daemon as nobody should.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first conversation")
    parser.add_argument("--replay", type=Path, help="have the conversations of this file instead")
    parser.add_argument("--failures", type=Path, default=Path("build/socket-failures"), help="where what breaks it is kept")
    args = parser.parse_args()
    if missing := boards.obstacle():
        print(f"cannot be done here: {missing}", file=sys.stderr)
        return 77
    if args.replay:
        complaints = replay(kept(args.replay))
        print("\n".join(complaints) or "nothing broke")
        return 1 if complaints else 0
    return run(args.seed, args.minutes, args.failures)


def run(seed: int, minutes: float, failures: Path) -> int:
    """Fuzz for some minutes; the exit code."""
    began, broken, done = time.monotonic(), 0, 0
    answers: Counter[str] = Counter()
    seeds = iter(range(seed, sys.maxsize))
    while time.monotonic() - began < 60 * minutes:
        with _target() as target:
            last: deque[int] = deque(maxlen=_REMEMBERED)
            while time.monotonic() - began < 60 * minutes and not target.complaints:
                last.append(next(seeds))
                target.talk(conversation(last[-1]))
                done += 1
                if done % _LOOK_EVERY == 0:
                    target.look()
                if done % (20 * _LOOK_EVERY) == 0:
                    target.settle()
                    elapsed = time.monotonic() - began
                    print(
                        f"{done} conversations, {done / elapsed:.0f} a second, {broken} broke it, "
                        f"{max(0.0, minutes - elapsed / 60):.1f} min left",
                        file=sys.stderr,
                        flush=True,
                    )
            if not target.complaints:
                target.look()
                target.settle()
            answers += target.answers
            complaints, log = list(dict.fromkeys(target.complaints)), target.log()
        if complaints:
            broken += 1
            print(f"conversation {last[-1]} or one before it: {'; '.join(complaints)[:1000]}", flush=True)
            print("\n".join(f"  | {line}" for line in log.splitlines()[-30:]), flush=True)
            _keep(failures, last)
    elapsed = time.monotonic() - began
    print(f"{done} conversations in {elapsed / 60:.1f} min, {done / elapsed:.1f} a second, {broken} broke it")
    print("answers: " + ", ".join(f"{name} {count}" for name, count in answers.most_common()))
    return 1 if broken else 0


def replay(conversations: Iterable[Conversation]) -> list[str]:
    """What a fresh daemon does wrong when these are had with it."""
    with _target() as target:
        for said in conversations:
            target.talk(said)
        target.look()
        target.settle()
        return list(dict.fromkeys(target.complaints))


def kept(path: Path) -> list[Conversation]:
    """The conversations of a file."""
    return [Conversation.from_json(one) for one in json.loads(path.read_text())]


def _keep(folder: Path, seeds: Sequence[int]) -> None:
    """Keep the one conversation that breaks a fresh daemon, or else all of the last."""
    folder.mkdir(parents=True, exist_ok=True)
    blamed = list(reversed(seeds))[:8]
    for seed in blamed:
        if replay([conversation(seed)]):
            blamed, seeds = [seed], [seed]
            break
    name = folder / f"{seeds[-1]}.json"
    name.write_text(json.dumps([conversation(seed).to_json() for seed in seeds], indent=1))
    what = "by itself breaks it" if len(seeds) == 1 else "is the last of them"
    print(f"  kept in {name}: conversation {seeds[-1]} {what}", flush=True)


@contextlib.contextmanager
def _target() -> Iterator[Target]:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    folder.chmod(0o755)
    try:
        with Target(folder / "daemon") as target:
            yield target
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
