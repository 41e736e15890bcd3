# SPDX-License-Identifier: Apache-2.0
"""What becomes of the daemon: killed at any moment, stopped, reloaded, suspended."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass

from jetdvfs.daemon.wire import protocol
from jetdvfs.tests.soak.stage import Stage
from jetdvfs.tests.soak.wire import Gone, Unanswered, Wire

#: Configurations by what is in them; what clocks they allow is checked by nobody but the daemon.
GOOD = {
    "plain": "",
    "limits": "limits: {gpu_hz: {max: 700000000}, cpu_khz: {max: 1500000}}\n",
    "floors off": "floors: off\n",
    "axes": "axes: [cpu, gpu]\n",
    "apart": "cpu_clusters: apart\n",
    "few leases": "clients: {leases: 3, networks: 2}\n",
}
BAD = {
    "no YAML": "limits: {gpu_hz: [\n",
    "a wrong type": "limits: {gpu_hz: {max: fast}}\n",
    "min above max": "limits: {cpu_khz: {min: 2000000, max: 1000000}}\n",
    "a list": "- 1\n- 2\n",
    "binary": "\x00\x01\x02",
    "no such group": "socket_group: nobody-has-this-group\n",
    "limits below all levels": "limits: {gpu_hz: {max: 50000000}}\n",
    "limits between levels": "limits: {cpu_khz: {min: 1190401, max: 1190402}}\n",
}
_HEEDED_S = 0.5
BASIS = "socket_group: nogroup\n"


@dataclass(frozen=True)
class Kill:
    """kill -9, now; the service manager starts it again."""

    def words(self) -> str:
        return "the daemon is killed"

    def play(self, stage: Stage) -> None:
        stage.kill()


@dataclass(frozen=True)
class Ambush:
    """kill -9 or SIGSTOP at the n-th time from now on that the daemon reads or writes a file of the board."""

    access: str
    left: int
    after: bool
    starting: bool

    def words(self) -> str:
        when = "its next start" if self.starting else "now"
        return f"the daemon is killed {'after' if self.after else 'before'} {self.access} number {self.left + 1} from {when} on"

    def play(self, stage: Stage) -> None:
        accesses = ("read", "write") if self.access == "access" else (self.access,)

        def lay() -> None:
            if stage.pid:
                stage.board.ambush(stage.pid, accesses, self.left, self.after, signal.SIGKILL)

        if self.starting:
            stage.pending.append(lay)
        else:
            lay()


@dataclass(frozen=True)
class KillAtState:
    """kill -9 at the n-th time that the daemon, started again, touches its own files by name (opens, renames, removes)."""

    left: int
    starts: bool

    def words(self) -> str:
        return f"started anew, the daemon is killed as it touches its own files for the {self.left + 1}th time"

    def play(self, stage: Stage) -> None:
        if self.starts:
            stage.stop()
        stage.starting = {"JETDVFS_SOAK_KILL_AT": str(self.left), "JETDVFS_SOAK_BELOW": str(stage.places.folder)}
        if self.starts:
            stage.up()


@dataclass(frozen=True)
class Stop:
    """SIGTERM or SIGINT; the service manager starts it again when somebody asks."""

    number: int

    def words(self) -> str:
        return f"the daemon is sent {signal.Signals(self.number).name}"

    def play(self, stage: Stage) -> None:
        stage.stop(self.number)


@dataclass(frozen=True)
class Odd:
    """Signals that end a process unless it says otherwise; the board must be as it was, whatever comes of it."""

    number: int

    def words(self) -> str:
        return f"the daemon is sent {signal.Signals(self.number).name}, and ends or goes on"

    def play(self, stage: Stage) -> None:
        if not stage.pid:
            return
        said = len(stage.log_text())
        stage.signal(self.number)
        if stage.alive_for(_HEEDED_S) and "ending" not in stage.log_text()[said:]:
            return
        stage.ended_by_signal(self.number)


@dataclass(frozen=True)
class Reload:
    """Another configuration is put in place, and the daemon told: by SIGHUP, or by root's socket."""

    what: str
    by_signal: bool

    def words(self) -> str:
        return f"the configuration becomes: {self.what}, told by " + ("SIGHUP" if self.by_signal else "root's socket")

    def play(self, stage: Stage) -> None:
        good = self.what in GOOD
        text = BASIS + (GOOD if good else BAD)[self.what]
        before = stage.places.config.read_text()
        stage.places.config.write_text(text)
        if good or "levels" in self.what:  # limits that leave no level may be taken, with a warning
            stage.reconfigured = self.what not in ("plain", "floors off")
        if not stage.pid:
            if not good:
                stage.unusable.add("config")
                self._start_with_it(stage)
                stage.places.config.write_text(before)
            return
        if self.by_signal:
            stage.signal(signal.SIGHUP)
            time.sleep(0.1)
            # One that lies in wait may have killed it over its next write.
            if not stage.alive_for(0.1) and stage.ended_by_signal(signal.SIGHUP) != -signal.SIGKILL:
                stage.blame("SIGHUP ends the daemon instead of reloading")
        else:
            self._ask(stage)
        if not good:
            # An operator who is told so puts it right.
            stage.places.config.write_text(before)

    def _start_with_it(self, stage: Stage) -> None:
        stage.up()
        stage.unusable.discard("config")

    def _ask(self, stage: Stage) -> None:
        try:
            admin = Wire(stage.places.admin, timeout_s=stage.patience.answers_s, interface=protocol.ADMIN_INTERFACE)
            reply = stage.judge(admin.call("Reload"))
            admin.close()
            stage.tell(f"-> {reply.error or 'reloaded'} {reply.parameters}")
        except Gone as error:
            if stage.alive_for(0.3):
                stage.blame(f"root's socket hung up: {error}")
        except Unanswered as error:
            stage.blame(f"Reload was not answered: {error}")


@dataclass(frozen=True)
class Restore:
    """Root asks for the board back."""

    def words(self) -> str:
        return "root has the board given back"

    def play(self, stage: Stage) -> None:
        if not stage.pid:
            return
        try:
            admin = Wire(stage.places.admin, timeout_s=stage.patience.answers_s, interface=protocol.ADMIN_INTERFACE)
            reply = stage.judge(admin.call("Restore"))
            admin.close()
            stage.tell(f"-> {reply.error or reply.parameters}")
        except Gone as error:
            if stage.alive_for(0.3):
                stage.blame(f"root's socket hung up: {error}")
            return
        except Unanswered as error:
            stage.blame(f"Restore was not answered: {error}")
            return
        for actor in stage.actors.values():
            actor.leases.clear()


@dataclass(frozen=True)
class Pause:
    """The daemon is stopped and let go on, as by a suspend or a debugger."""

    seconds: float

    def words(self) -> str:
        return f"the daemon stands still for {self.seconds:g} s"

    def play(self, stage: Stage) -> None:
        if not stage.pid:
            return
        began = time.monotonic()
        stage.signal(signal.SIGSTOP)
        time.sleep(self.seconds)
        stage.signal(signal.SIGCONT)
        stage.left_out.append((began, time.monotonic() + 0.05))
