# SPDX-License-Identifier: Apache-2.0
"""Where a scenario plays: one board, the real daemon as a service manager would keep it, its clients, and what went wrong."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jetdvfs.daemon.wire import protocol
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.soak.boards import ServedBoard
from jetdvfs.tests.soak.processes import Resources, is_ending
from jetdvfs.tests.soak.wire import OTHER_UID, Gone, Reply, Unanswered, Wire


@dataclass(frozen=True)
class Patience:
    """How long things may take.

    Attributes:
        settles_s: until all is well once whatever was wrong has been mended.
        answers_s: until an answer comes.
    """

    settles_s: float = 12.0
    answers_s: float = 10.0


#: How long a daemon may take to start, on a machine on which others work too, and to end.
STARTS_S, ENDS_S, _DIES_S = 20.0, 6.0, 1.0
SLOTS = 4
HOOKS = Path(__file__).with_name("hooks")


@dataclass
class Actor:
    """A client: a connection, and what it holds."""

    wire: Wire
    leases: dict[str, FrequencyConfiguration | None] = field(default_factory=dict)
    networks: list[str] = field(default_factory=list)


@dataclass
class Places:
    """The folders and files of a scenario."""

    folder: Path

    def __post_init__(self) -> None:
        self.root = self.folder / "root"
        self.state = self.folder / "state"
        self.run = self.folder / "run"
        self.config = self.folder / "jetdvfsd.yaml"
        self.log = self.folder / "log"
        self.socket = self.run / protocol.SOCKET_NAME
        self.admin = self.run / protocol.ADMIN_SOCKET_NAME


class Stage:
    """One scenario's board, daemon and clients.

    Attributes:
        troubles: what broke a promise, one line each.
        told: what happened when, in words.
        reconfigured: whether the configuration may keep leases from what they ask for.
        strangers: what somebody else wrote to files, by path, oldest first.
        left_out: intervals in which nobody can be answered: the daemon is stopped, dead or starting.
        refusals: how often the daemon did not start although it could have given the board back.
        lost: whether all that the daemon knows of the board as it was has been destroyed.
        unusable: what of ``board``, ``state``, ``run`` and ``config`` may keep the daemon from starting now.
        small_disks: whether the daemon's folders are file systems of their own, small enough to be filled.
        read_only: those that are read-only now.
        starting: added to the environment of the next daemon to be started.
        pending: done right after that.
    """

    def __init__(
        self,
        board: ServedBoard,
        places: Places,
        options: Sequence[str],
        model: Path,
        *,
        small_disks: bool = False,
        daemon: str = "jetdvfs.daemon.service",
        patience: Patience | None = None,
    ) -> None:
        self.patience = patience or Patience()
        self.board, self.places, self.model, self.small_disks = board, places, model, small_disks
        self.read_only: set[Path] = set()
        self.troubles: list[str] = []
        self.told: list[str] = []
        self.reconfigured = False
        self.strangers: dict[str, list[str]] = {}
        self.left_out: list[tuple[float, float]] = []
        self.lost = False
        self.unusable: set[str] = set()
        self.found = board.settings()
        self.actors: dict[int, Actor] = {}
        self.answered_ms: list[float] = []
        self.pending: list[Callable[[], None]] = []
        self.fresh: Resources | None = None
        self._command = [sys.executable, "-m", daemon, "--root", str(places.root), "--config", str(places.config)]
        self._command += ["--socket", str(places.socket), "--state-dir", str(places.state)]
        self._command += ["--runtime-dir", str(places.run), *options]
        self._began = time.monotonic()
        self.refusals = 0
        self._killed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._down_since: float | None = time.monotonic()
        self.starting: dict[str, str] = {}

    # What is written down.

    def tell(self, words: str) -> None:
        self.told.append(f"{time.monotonic() - self._began:7.3f} s  {words}")

    def blame(self, what: str) -> None:
        """Note a broken promise."""
        self.tell(f"BROKEN: {what}")
        self.troubles.append(what)

    @property
    def calm(self) -> bool:
        """Whether nothing is wrong on purpose, so that the board must soon be as the leases ask."""
        return not (self.unusable or self.reconfigured or self.strangers or self.lost)

    # The daemon.

    @property
    def pid(self) -> int:
        """The daemon's process, or 0."""
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    def start(self) -> None:
        """Start the daemon without waiting for it."""
        places = self.places
        env = {**os.environ, "PYTHONPATH": str(HOOKS), **self.starting}
        self.starting = {}
        with places.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd="/")
        self._killed = False
        self.tell(f"the daemon is started, pid {self._process.pid}")
        for pending in self.pending:
            pending()
        self.pending.clear()

    def up(self) -> bool:
        """Have the daemon running and answering, started again where it has ended; whether that could be had."""
        for _ in range(6):
            if not self.pid:
                self._bury()
                self.start()
            if self.answers(STARTS_S):
                if self._down_since is not None:
                    self.left_out.append((self._down_since, time.monotonic()))
                    self._down_since = None
                    self.fresh = Resources.of(self.pid)
                return True
            if self.pid and is_ending(self.pid):
                self._bury_what_hangs(_DIES_S)
            if self.pid:
                self.blame(f"started, but nobody answers within {STARTS_S:g} s")
                self.kill()
                return False
            if self._ended_in_order():
                return False
        self.blame("the daemon ends again and again while it starts")
        return False

    def answers(self, within_s: float = 1.0) -> bool:
        """Whether a status can be had."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            with contextlib.suppress(Gone, Unanswered):
                wire = Wire(self.places.socket, timeout_s=max(0.1, deadline - time.monotonic()))
                with contextlib.closing(wire):
                    self.judge(wire.call("Status"))
                    return True
            if not self.pid or is_ending(self.pid):
                return False
            time.sleep(0.01)
        return False

    def _ended_in_order(self) -> bool:
        """Whether a daemon that did not start said why, and had a reason."""
        assert self._process is not None
        code = self._process.wait()
        if self._killed or code == -signal.SIGKILL:
            return False
        self._killed = True
        last = (self.log_text().splitlines() or [""])[-1]
        self.tell(f"the daemon refuses to start: {code}, {last[:300]}")
        if code not in (2, 3, 5) or not self.unusable:
            self.blame(f"the daemon does not start: exit code {code}: {_neutral(last)}")
        elif not self.unusable & {"board", "run"} and not self.lost:
            # It has all it needs to give the board back, which it does before it complains of anything else.
            self.refusals += not any("could not start" in text for text in self.troubles)
        return True

    def _bury(self) -> None:
        """See why the daemon is no more."""
        if self._process is None:
            return
        code = self._process.wait()
        if not self._killed and code != -signal.SIGKILL:
            self.blame(f"the daemon ended by itself with {code}")
        self._killed = True
        self.gone()
        self._hang_up()

    def gone(self) -> None:
        """Note from when on nobody can be answered."""
        if self._down_since is None:
            self._down_since = time.monotonic()

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None and self.pid:
            self._killed = True
            self.gone()
            self._process.kill()
            self._bury_what_hangs(_DIES_S)
            self._hang_up()

    def _bury_what_hangs(self, within_s: float) -> int | None:
        """Wait for the process to be gone; one that hangs in the kernel is let out of there. None for one that stays."""
        assert self._process is not None
        for _ in range(2):
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(within_s)
            if not self.board.release():
                break
            self.tell("it hangs in the kernel, from which it is let out now")
        return None

    def _hang_up(self) -> None:
        """The clients see that the daemon has gone."""
        for actor in self.actors.values():
            actor.wire.close()
        self.actors.clear()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ask the daemon to end, which it does in order."""
        if self._process is None or not self.pid:
            return
        self.gone()
        self._process.send_signal(number)
        code = self._bury_what_hangs(ENDS_S)
        if code is None:
            self.blame(f"asked to end, it has not within {ENDS_S:g} s")
            self.kill()
            return
        self._killed = True
        if code not in (0, -signal.SIGKILL):
            self.blame(f"asked to end, it ends with {code}")
        self._hang_up()

    def ended_by_signal(self, number: int) -> int | None:
        """Let the daemon have been ended by a signal that it need not survive; the board must be as it was all the same.

        Returns:
            Its exit code; None where it does not end.
        """
        if self._process is None:
            return None
        self.gone()
        code = self._bury_what_hangs(ENDS_S)
        self.tell(f"{signal.Signals(number).name} came to: {code}")
        if code is None:
            self.blame(f"told to end by {signal.Signals(number).name}, it has not within {ENDS_S:g} s")
            self.kill()
        self._killed = True
        self._hang_up()
        return code

    def signal(self, number: int) -> None:
        if self.pid:
            os.kill(self.pid, number)

    def log_text(self) -> str:
        try:
            return self.places.log.read_text(errors="replace")
        except OSError:
            return ""

    # Clients.

    def actor(self, slot: int) -> Actor | None:
        """The client of a slot, connected; None where the daemon cannot be had."""
        if slot in self.actors:
            return self.actors[slot]
        if not self.pid and not self.up():
            return None
        try:
            wire = Wire(self.places.socket, OTHER_UID if slot % 2 else 0, timeout_s=self.patience.answers_s)
        except Gone:
            if not self.up():
                return None
            with self.broken(slot):
                wire = Wire(self.places.socket, OTHER_UID if slot % 2 else 0, timeout_s=self.patience.answers_s)
                self.actors[slot] = Actor(wire)
            return self.actors.get(slot)
        self.actors[slot] = Actor(wire)
        return self.actors[slot]

    def ask(self, slot: int, method: str, parameters: dict[str, Any] | None = None, descriptors: Sequence[int] = ()) -> Reply:
        """A call of a slot's client; one with the error ``gone`` where the daemon cannot be had or has just been ended."""
        reply, actor = Reply(method, {}, "gone"), self.actor(slot)
        if actor is None:
            return reply
        began = time.monotonic()
        with self.broken(slot):
            reply = self.judge(actor.wire.call(method, parameters, descriptors))
            self.answered_ms.append(1e3 * (time.monotonic() - began))
            if reply.error == "LimitReached" and "connections are open" in reply.parameters["message"]:
                self._drop(slot)  # it is hung up on, as it was told
        return reply

    @contextlib.contextmanager
    def broken(self, slot: int) -> Iterator[None]:
        """Take a connection that ends for what it is: right where the daemon has been ended, else a broken promise."""
        try:
            yield
        except Gone as error:
            self._drop(slot)
            if self.alive_for(0.3):
                self.blame(f"hung up on a client that had done nothing wrong: {error}")
            self.gone()
        except Unanswered as error:
            self._drop(slot)
            self.blame(f"a call was not answered: {error}")

    def alive_for(self, seconds: float) -> bool:
        """Whether the daemon runs, and still does after some time."""
        deadline = time.monotonic() + seconds
        while self.pid and time.monotonic() < deadline:
            time.sleep(0.01)
        return bool(self.pid)

    def _drop(self, slot: int) -> None:
        actor = self.actors.pop(slot, None)
        if actor is not None:
            actor.wire.close()

    def judge(self, reply: Reply) -> Reply:
        for complaint in reply.complaints:
            self.blame(complaint)
        return reply

    def wanted(self) -> FrequencyConfiguration | None:
        """What the leases that clients hold ask for together; None for nothing, or where a plan decides."""
        asked = [one for actor in self.actors.values() for one in actor.leases.values()]
        known = [one for one in asked if one is not None]
        if len(known) < len(asked) or not known:
            return None
        return FrequencyConfiguration(*(max(axis) for axis in zip(*known, strict=True)))

    def leases(self) -> int:
        return sum(len(actor.leases) for actor in self.actors.values())


def _neutral(text: str) -> str:
    """A line of the log without what differs from run to run."""
    return " ".join(word for word in text.split() if "/" not in word)[:200]
