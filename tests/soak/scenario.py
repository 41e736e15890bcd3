# SPDX-License-Identifier: Apache-2.0
"""What happens to a daemon in one scenario, drawn from a seed and from nothing else."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jetdvfs.kernels.grid import FrequencyConfiguration
from jetdvfs.tests.soak.events import board, clients, disk, hostile, service
from jetdvfs.tests.soak.events.event import Event
from jetdvfs.tests.soak.stage import SLOTS
from jetdvfs.tests.soak.wire import OTHER_UID
from jetdvfs.tests.soak.world import OTHER_BOARDS, USUAL_BOARD, World, pick, world

_MODELS = ("squeezenet1_0", "mobilenet_v2", "resnet18", "googlenet")
_ERRORS = ("EBUSY", "EIO", "ENOENT", "EINVAL", "EPERM", "EACCES", "ETIMEDOUT", "ENODEV", "EAGAIN")
_TARGETS = ("min-energy", "min-edp", "latency_ms=50", "latency_ms=20", "latency_ms=0.001", "power_mw=15000", "energy_mj=400")


@dataclass(frozen=True)
class Check:
    """Once things have settled, the board is as the leases ask, or as it was found."""

    def words(self) -> str:
        return "things settle, and are looked at"


@dataclass(frozen=True)
class Scenario:
    """One scenario.

    Attributes:
        stops_holding: whether the daemon is stopped in the end while clients hold; else they go first.
    """

    seed: int
    board: str
    backend: str
    themes: tuple[str, ...]
    events: tuple[Event | Check, ...]
    stops_holding: bool

    def words(self) -> str:
        lines = [f"{number:2}. {event.words()}" for number, event in enumerate(self.events, 1)]
        ending = (
            "the daemon is stopped while clients hold" if self.stops_holding else "the clients go, then the daemon is stopped"
        )
        head = f"seed {self.seed}: {self.board} by {self.backend}, {', '.join(self.themes)}"
        return "\n".join([head, *lines, f"    {ending}"])


def scenario(seed: int) -> Scenario:
    """The scenario of a seed: the same wherever and whenever it is drawn."""
    draw = random.Random(f"jetdvfs soak {seed}")
    name = USUAL_BOARD if draw.random() < 0.75 else draw.choice(OTHER_BOARDS)
    folder = draw.random() < 0.1
    known = [theme for theme in THEMES if not folder or theme in _WITHOUT_KERNEL]
    themes = tuple(dict.fromkeys(draw.choices(known, [THEMES[theme].weight for theme in known], k=draw.choice((1, 1, 2, 3)))))
    on = world(name)
    events: list[Event | Check] = list(_traffic(draw, on, draw.randint(1, 4)))
    for theme in themes:
        for event in THEMES[theme].draw(draw, on):
            events.append(event)
            if draw.random() < 0.6:
                events += _traffic(draw, on, 1)
        if draw.random() < 0.4:
            events.append(Check())
    return Scenario(seed, name, "folder" if folder else "fuse", themes, tuple(events), draw.random() < 0.4)


def _traffic(draw: random.Random, on: World, number: int) -> Iterator[Event]:
    """What clients do all day."""
    for _ in range(number):
        slot = draw.randrange(SLOTS)
        kind = pick(
            draw,
            [
                (10, "hold"),
                (3, "target"),
                (1, "load"),
                (3, "release"),
                (2, "report"),
                (2, "leave"),
                (3, "status"),
                (1, "predict"),
                (1, "plan"),
            ],
        )
        if kind == "hold":
            yield clients.Hold(slot, on.configuration(draw))
        elif kind == "target":
            yield clients.HoldTarget(slot, draw.choice(_TARGETS), draw.choice((None, None, 30.0, 5.0)))
        elif kind == "release":
            yield clients.Release(slot, slot if draw.random() < 0.7 else draw.randrange(SLOTS))
        elif kind == "report":
            yield clients.Report(slot, draw.choice((1, 32, 200)), draw.choice(clients.KINDS_OF_FRAMES))
        elif kind == "leave":
            yield clients.Leave(slot, draw.random() < 0.5)
        elif kind == "load":
            yield clients.Load(slot, draw.choice(_MODELS))
        elif kind == "status":
            yield clients.Ask(slot, "Status")
        else:
            yield clients.Ask(slot, kind.capitalize())


def _deaths(draw: random.Random, on: World) -> Iterator[Event]:
    for _ in range(draw.randint(2, 5)):
        kind = pick(draw, [(4, "kill"), (2, "leave"), (2, "half")])
        if kind == "kill":
            yield clients.Killed(on.configuration(draw), draw.choice((0.0, 0.01, 0.05, 0.1, 0.2)))
        elif kind == "leave":
            yield clients.Leave(draw.randrange(SLOTS), True)
        else:
            yield clients.HalfClosed(draw.choice((0, OTHER_UID)), draw.randint(1, 3))


def _crashes(draw: random.Random, on: World) -> Iterator[Event]:
    for _ in range(draw.randint(1, 3)):
        kind = pick(draw, [(2, "now"), (4, "write"), (2, "read"), (3, "start"), (2, "state")])
        if kind == "now":
            yield board.Wait(draw.choice((0.0, 0.01, 0.05)))
            yield service.Kill()
            continue
        if kind == "state":
            yield service.KillAtState(draw.randrange(12), starts=True)
            yield from _traffic(draw, on, 2)
            continue
        if kind == "start":
            yield clients.Hold(draw.randrange(SLOTS), on.configuration(draw))
            yield service.Kill()
            for _ in range(draw.randint(1, 2)):
                yield service.Ambush(draw.choice(("write", "write", "access")), draw.randrange(12), draw.random() < 0.5, True)
            yield clients.Ask(0, "Status")
            continue
        left = draw.randrange(10) if kind == "write" else draw.randrange(120)
        yield service.Ambush(kind, left, draw.random() < 0.5, False)
        what = pick(draw, [(3, "hold"), (2, "release"), (1, "stop"), (1, "restore")])
        if what == "hold":
            yield clients.Hold(draw.randrange(SLOTS), on.configuration(draw))
        elif what == "release":
            slot = draw.randrange(SLOTS)
            yield clients.Leave(slot, False)
        elif what == "stop":
            yield service.Stop(signal.SIGTERM)
        else:
            yield service.Restore()


def _sysfs(draw: random.Random, on: World) -> Iterator[Event]:
    for _ in range(draw.randint(1, 4)):
        kind = pick(draw, [(5, "refuse"), (5, "pretend"), (1, "hang"), (1, "slow"), (2, "vanish"), (1, "stick"), (1, "silent")])
        if kind == "refuse":
            access = draw.choice(("write", "write", "read"))
            path = draw.choice(on.writable) if access == "write" else on.some_file(draw)
            yield board.Refuse(path, draw.choice(_ERRORS), access, draw.choice((None, None, 1, 3)))
        elif kind == "pretend":
            yield board.Pretend(on.some_file(draw, clocks=0.5), draw.choice(sorted(board.CONTENTS)))
        elif kind == "hang":
            yield board.Hang(on.some_file(draw, clocks=0.5))
        elif kind == "slow":
            yield board.Fault(
                (("kind", "slow"), ("path", on.some_file(draw, clocks=0.3)), ("seconds", draw.choice((0.05, 0.3, 0.7))))
            )
        elif kind == "vanish":
            path = on.some_file(draw)
            yield board.Fault((("kind", "vanish"), ("path", path if draw.random() < 0.6 else path.rpartition("/")[0])))
        elif kind == "stick":
            yield board.Fault((("kind", "stuck"), ("clock", draw.choice(("cpu", "gpu", "emc"))), ("rate", None)))
        else:
            yield board.Fault((("kind", "silent"), ("rail", "GPU")))
        if draw.random() < 0.3:
            yield service.Kill()
        yield clients.Hold(draw.randrange(SLOTS), on.configuration(draw))
    if draw.random() < 0.5:
        yield board.Mend()


def _disks(draw: random.Random, on: World) -> Iterator[Event]:
    folders = draw.choice((("state",), ("run",), ("state", "run")))
    if draw.random() < 0.5:
        yield clients.Hold(draw.randrange(SLOTS), on.configuration(draw))
    yield disk.Disk(draw.choice(("full", "read-only")), folders)
    yield clients.Hold(draw.randrange(SLOTS), on.configuration(draw))
    if draw.random() < 0.4:
        yield draw.choice((service.Kill(), service.Stop(signal.SIGTERM)))
    yield from _traffic(draw, on, 2)
    if draw.random() < 0.6:
        yield disk.Disk("well", folders)


def _states(draw: random.Random, on: World) -> Iterator[Event]:
    for _ in range(draw.randint(1, 2)):
        yield clients.Hold(draw.randrange(SLOTS), on.configuration(draw))
        if draw.random() < 0.85:
            yield disk.Spoil(draw.choice(sorted(disk.SPOIL)), draw.random() < 0.6)
        else:
            yield disk.Remove(draw.choice(("state", "run")), draw.random() < 0.5)


def _reloads(draw: random.Random, on: World) -> Iterator[Event]:
    for _ in range(draw.randint(1, 3)):
        what = draw.choice(sorted(service.GOOD)) if draw.random() < 0.6 else draw.choice(sorted(service.BAD))
        if draw.random() < 0.2:
            yield service.Kill()
        yield service.Reload(what, draw.random() < 0.5)
    yield service.Reload("plain", False)


def _service(draw: random.Random, on: World) -> Iterator[Event]:
    for _ in range(draw.randint(1, 3)):
        kind = pick(draw, [(3, "stop"), (2, "odd"), (3, "pause"), (1, "restore")])
        if kind == "stop":
            yield service.Stop(draw.choice((signal.SIGTERM, signal.SIGINT)))
        elif kind == "odd":
            yield service.Odd(draw.choice((signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE)))
        elif kind == "pause":
            yield service.Pause(draw.choice((0.05, 0.3, 1.0)))
        else:
            yield service.Restore()


def _hostile(draw: random.Random, on: World) -> Iterator[Event]:
    for _ in range(draw.randint(2, 6)):
        if draw.random() < 0.65:
            yield hostile.Message(draw.choice(sorted(hostile.MESSAGES)), draw.choice((1, 1, 2, 7)))
        else:
            what = draw.choice(sorted(hostile.DESCRIPTORS))
            yield hostile.Descriptors(what, draw.choice((1, 1, 2, 4, 5, 253, 2000)), draw.random() < 0.6)


def _floods(draw: random.Random, on: World) -> Iterator[Event]:
    for _ in range(draw.randint(1, 2)):
        yield clients.Flood(draw.choice((1, 8, 40, 80)), draw.choice((1, 16, 200)), draw.random() < 0.5)


def _strangers(draw: random.Random, on: World) -> Iterator[Event]:
    cpu, gpu, _ = on.levels
    for _ in range(draw.randint(1, 3)):
        if draw.random() < 0.25:
            yield board.Mode(draw.randrange(8))
            continue
        path = draw.choice(on.writable)
        if path.endswith("governor"):
            value = draw.choice(("performance", "powersave", "userspace", "ondemand"))
        elif "freq" in path:
            value = str(draw.choice(cpu if "cpufreq" in path else gpu))
        else:
            value = draw.choice(("0", "1"))
        yield board.Stranger(path, value)
        if draw.random() < 0.3:
            yield draw.choice((service.Kill(), board.Wait(0.7)))


def _heat(draw: random.Random, on: World) -> Iterator[Event]:
    if draw.random() < 0.6:
        yield clients.Hold(draw.randrange(SLOTS), on.configuration(draw))
    if draw.random() < 0.7:
        yield board.Fault((("kind", "heat"), ("degrees", draw.choice((30, 48, 50, 52)))))
    else:
        yield board.Fault((("kind", "throttle"), ("share", draw.choice((0.25, 0.5)))))
    yield board.Wait(draw.choice((0.1, 0.6, 1.5)))
    yield clients.Hold(draw.randrange(SLOTS), FrequencyConfiguration(*(axis[0] for axis in on.levels)))
    if draw.random() < 0.3:
        yield service.Kill()
    yield from _traffic(draw, on, 2)
    if draw.random() < 0.5:
        yield from (clients.Leave(slot, False) for slot in range(SLOTS))
        yield board.Wait(0.3)
    yield board.Mend()


@dataclass(frozen=True)
class _Theme:
    weight: float
    draw: Callable[[random.Random, World], Iterator[Event]]


THEMES: dict[str, _Theme] = {
    "clients die": _Theme(3, _deaths),
    "the daemon is killed": _Theme(5, _crashes),
    "files misbehave": _Theme(5, _sysfs),
    "disks fail": _Theme(3, _disks),
    "the baseline is spoilt": _Theme(3, _states),
    "the configuration changes": _Theme(2, _reloads),
    "signals come": _Theme(2, _service),
    "messages are hostile": _Theme(3, _hostile),
    "clients flood": _Theme(1, _floods),
    "somebody else sets clocks": _Theme(2, _strangers),
    "heat": _Theme(1, _heat),
}
# What means the same on a plain folder, which can neither refuse nor be the last thing that somebody touches.
_WITHOUT_KERNEL: Sequence[str] = ("clients die", "disks fail", "signals come", "messages are hostile", "clients flood")
