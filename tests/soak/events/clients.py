# SPDX-License-Identifier: Apache-2.0
"""What applications do: ask, hold, report, die. A slot is a client; those with odd numbers are another user's."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from dataclasses import dataclass

from jetdvfs.daemon.wire import protocol
from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.soak.stage import Stage
from jetdvfs.tests.soak.wire import OTHER_UID, Gone, Unanswered, Wire
from jetdvfs.tests.support.paths import REFERENCE

_FRAMES_MS = 12.5


def _mhz(configuration: FrequencyConfiguration) -> str:
    cpu, gpu, emc = configuration
    return f"{cpu / 1e3:g},{gpu / 1e6:g},{emc / 1e6:g} MHz"


@dataclass(frozen=True)
class Hold:
    """A client holds a configuration."""

    slot: int
    configuration: FrequencyConfiguration

    def words(self) -> str:
        return f"client {self.slot} holds {_mhz(self.configuration)}"

    def play(self, stage: Stage) -> None:
        reply = stage.ask(self.slot, "Hold", {"configuration": self.configuration._asdict(), "reason": "soak"})
        if not reply.error and self.slot in stage.actors:
            stage.actors[self.slot].leases[reply.parameters["lease"]] = self.configuration
        stage.tell(f"-> {reply.error or 'lease ' + str(reply.parameters.get('lease'))} {reply.parameters.get('message', '')}")


@dataclass(frozen=True)
class HoldTarget:
    """A client loads a model where it has none, and holds what a target needs."""

    slot: int
    target: str
    fps: float | None

    def words(self) -> str:
        return f"client {self.slot} holds {self.target}" + (f" at {self.fps:g} fps" if self.fps else "")

    def play(self, stage: Stage) -> None:
        actor = stage.actor(self.slot)
        if actor is None or not (actor.networks or Load(self.slot).load(stage)):
            return
        parameters = {"network": actor.networks[-1], "target": self.target}
        reply = stage.ask(self.slot, "Hold", {**parameters, **({"fps": self.fps} if self.fps else {})})
        if not reply.error and self.slot in stage.actors:
            stage.actors[self.slot].leases[reply.parameters["lease"]] = None
        stage.tell(f"-> {reply.error or 'lease ' + str(reply.parameters.get('lease'))} {reply.parameters.get('message', '')}")


@dataclass(frozen=True)
class Load:
    """A client has a model read: one of the reference networks, or a small one."""

    slot: int
    model: str = ""

    def words(self) -> str:
        return f"client {self.slot} loads {self.model or 'a small model'}"

    def play(self, stage: Stage) -> None:
        self.load(stage)

    def load(self, stage: Stage) -> bool:
        """Whether it was loaded."""
        with (REFERENCE / f"{self.model}.pt" if self.model else stage.model).open("rb") as file:
            inputs = [{"shape": [1, 3, 224, 224]}]
            reply = stage.ask(self.slot, "LoadModel", {"inputs": inputs, "name": "soak"}, [file.fileno()])
        actor = stage.actors.get(self.slot)
        if reply.error or actor is None:
            stage.tell(f"-> {reply.error} {reply.parameters.get('message', '')}")
            return False
        actor.networks.append(reply.parameters["network"]["network"])
        return True


@dataclass(frozen=True)
class Ask:
    """A client asks something that changes nothing."""

    slot: int
    method: str

    def words(self) -> str:
        return f"client {self.slot} asks for {self.method}"

    def play(self, stage: Stage) -> None:
        actor = stage.actor(self.slot)
        parameters: dict[str, object] = {}
        if self.method in ("Predict", "Plan", "Unload"):
            if actor is None or not (actor.networks or Load(self.slot).load(stage)):
                return
            parameters["network"] = actor.networks[-1]
        if self.method == "Plan":
            parameters["target"] = "min-edp"
        reply = stage.ask(self.slot, self.method, parameters)
        if self.method == "Unload" and not reply.error and actor is not None:
            actor.networks.pop()


@dataclass(frozen=True)
class Release:
    """A client releases its oldest lease, or another one's."""

    slot: int
    of: int

    def words(self) -> str:
        return f"client {self.slot} releases a lease of client {self.of}"

    def play(self, stage: Stage) -> None:
        owner = stage.actors.get(self.of)
        lease = next(iter(owner.leases), "99999") if owner is not None else "99999"
        reply = stage.ask(self.slot, "Release", {"lease": lease})
        owner = stage.actors.get(self.of)
        if not reply.error and owner is not None:
            owner.leases.pop(lease, None)
        may = (self.slot % 2 == 0 or self.of % 2 == 1) and lease != "99999"
        if reply.error == "" and not may:
            stage.blame(f"Release of another user's or no lease was answered as done: lease {lease}")


KINDS_OF_FRAMES = ("steady", "zero", "shortest", "longest", "zero and slow", "early and late")


def latencies_ms(kind: str, frames: int) -> list[float]:
    """Latencies of a report: as applications have them, and the extremes that the interface admits."""
    pairs = {
        "steady": (_FRAMES_MS, _FRAMES_MS),
        "zero": (0.0, 0.0),
        "shortest": (1e-9, 1e-9),
        "longest": (1e7, 1e7),
        "zero and slow": (0.0, 1000.0),
        "early and late": (1.0, 1000.0),
    }
    first, second = pairs[kind]
    return [first] * (frames - frames // 2) + [second] * (frames // 2)


@dataclass(frozen=True)
class Report:
    """A client reports frames, of latencies that vary as ``kind`` says."""

    slot: int
    frames: int
    kind: str = "steady"

    def words(self) -> str:
        return f"client {self.slot} reports {self.frames} {self.kind} frames"

    def play(self, stage: Stage) -> None:
        actor = stage.actors.get(self.slot)
        lease = next(iter(actor.leases), "99999") if actor is not None else "99999"
        stage.ask(self.slot, "Report", {"lease": lease, "latency_ms": latencies_ms(self.kind, self.frames)})


@dataclass(frozen=True)
class Leave:
    """A client goes: closes, or is killed while the daemon answers it."""

    slot: int
    asking: bool

    def words(self) -> str:
        return f"client {self.slot} goes" + (" with a question on its way" if self.asking else "")

    def play(self, stage: Stage) -> None:
        actor = stage.actors.pop(self.slot, None)
        if actor is None:
            return
        with contextlib.suppress(Gone, Unanswered):
            if self.asking:
                actor.wire.send("Status", {})
        actor.wire.close()


@dataclass(frozen=True)
class Killed:
    """A process of its own holds a configuration and is killed, with signal 9."""

    configuration: FrequencyConfiguration
    after_s: float

    def words(self) -> str:
        return f"a process asks for {_mhz(self.configuration)} and is killed {1e3 * self.after_s:.0f} ms later"

    def play(self, stage: Stage) -> None:
        if not stage.pid and not stage.up():
            return
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                wire = Wire(stage.places.socket)
                wire.call("Hold", {"configuration": self.configuration._asdict(), "app": "killed"})
                time.sleep(60)
            os._exit(0)
        time.sleep(self.after_s)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@dataclass(frozen=True)
class HalfClosed:
    """A client asks some questions, closes its writing end, and reads: it gets its answers."""

    uid: int
    questions: int

    def words(self) -> str:
        return f"a client asks {self.questions} times, closes its writing end, and reads"

    def play(self, stage: Stage) -> None:
        if not stage.pid and not stage.up():
            return
        came = 0
        try:
            wire = Wire(stage.places.socket, self.uid, timeout_s=stage.patience.answers_s)
            with contextlib.closing(wire):
                for _ in range(self.questions):
                    wire.send("Status", {})
                wire.sock.shutdown(socket.SHUT_WR)
                for _ in range(self.questions):
                    stage.judge(wire.receive("Status"))
                    came += 1
        except (Gone, Unanswered, OSError) as error:
            time.sleep(0.05)
            if stage.pid:
                stage.blame(f"half-closed: not every answer came ({error})")
            stage.tell(f"{came} of {self.questions} answers came")


@dataclass(frozen=True)
class Flood:
    """A client asks without end for a moment, by many connections or on one, reading or not."""

    connections: int
    questions: int
    reads: bool

    def words(self) -> str:
        how = "and reads" if self.reads else "and reads nothing"
        return f"another user opens {self.connections} connections, asks {self.questions} times on each {how}"

    def play(self, stage: Stage) -> None:
        if not stage.pid and not stage.up():
            return
        wires: list[Wire] = []
        data = json.dumps({"method": f"{protocol.INTERFACE}.Status", "parameters": {}}).encode() + b"\0"
        for _ in range(self.connections):
            with contextlib.suppress(Gone):
                wires.append(Wire(stage.places.socket, OTHER_UID, timeout_s=2.0))
        for wire in wires:
            with contextlib.suppress(Gone, OSError):
                wire.sock.setblocking(False)
                wire.sock.send(data * self.questions)
                wire.sock.settimeout(2.0)
        deadline = time.monotonic() + 1.0
        for wire in wires if self.reads else ():
            with contextlib.suppress(Gone, Unanswered):
                for _ in range(self.questions):
                    if time.monotonic() > deadline:
                        break
                    reply = wire.receive("Status")
                    if reply.error != "LimitReached":
                        stage.judge(reply)
        for wire in wires:
            wire.close()
