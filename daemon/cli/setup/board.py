# SPDX-License-Identifier: Apache-2.0
"""The board in setup: its daemon sets the clocks, this process reads the sensors."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from .... import __version__
from ....kernels.grid import FrequencyConfiguration, FrequencyGrid
from ....profiles.board import BoardDescription, load_board
from ....profiles.bundle.bundle import read_manifest
from ....profiles.bundle.finding import find_bundles, resolve_bundle
from ....profiles.bundle.manifest import Manifest
from ....profiles.errors import ProfilesError
from ....profiles.timing import SystemClock
from ... import arguments
from ...errors import DaemonError, InputError, NoDaemon
from ...hardware.files import LONGEST_S, Files
from ...hardware.hardware import Hardware
from ...hardware.sensors.energy import total_mw
from ...hardware.sensors.sensors import Sensors
from ...hardware.sensors.thermal import hottest_mc
from ...system.state import socket_of
from ...wire.client import Client
from ..children import spawn, when_it_answers
from ..measure import repeated
from .runners import Candidate, Runner


class BoardFacts(Struct, frozen=True):
    """Known facts of the board.

    Attributes:
        prior: profile to adapt, with its ``manifest``.
        missing: energy rails without a sensor.
        notes: obstacles to setting clocks.
    """

    title: str
    board: str
    profiles: tuple[str, ...]
    prior: Path
    manifest: Manifest
    levels: dict[str, tuple[int, int]]
    missing: tuple[str, ...]
    rails: tuple[str, ...]
    notes: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        yield f"board          {self.title} ({self.board})"
        own = ", ".join(self.profiles) or "none"
        yield f"its profiles   {own}"
        origin = f"board {self.manifest.board}{', simulated' if self.manifest.simulated else ''}"
        yield f"to be adapted  {self.manifest.name} ({origin})"
        shown = (
            f"{axis.partition('_')[0]} {f'{now} of {of}' if now <= of else f'{now}, more than the described {of},'} levels"
            for axis, (now, of) in self.levels.items()
        )
        yield f"clocks         {', '.join(shown)}"
        without = f"; not to be read: {', '.join(self.missing)}" if self.missing else ""
        yield f"power rails    {', '.join(self.rails) or 'none'}{without}"
        for note in self.notes:
            yield f"note           {note}"

    def to_json(self) -> dict[str, Any]:
        return {
            "board": self.board, "profiles": list(self.profiles), "prior": self.manifest.name,
            "prior_board": self.manifest.board,
            "clocks": {axis: {"offered": now, "described": of} for axis, (now, of) in self.levels.items()},
            "rails": list(self.rails), "missing_rails": list(self.missing), "notes": list(self.notes),
        }  # fmt: skip


def known_facts(board: SetUpBoard, prior_name: str | None) -> BoardFacts:
    description, (offered, unknown) = board.description, board.hardware.seen()
    manifests = {}
    for name, path in find_bundles().items():
        try:
            manifests[name] = (path, read_manifest(path))
        except ProfilesError:
            continue
    own = tuple(name for name, (_, manifest) in manifests.items() if manifest.board == description.name)
    if prior_name is not None:
        prior = resolve_bundle(prior_name)
        manifest = read_manifest(prior)
    else:
        usable = [one for one in manifests.values() if one[1].rails and one[1].carried is None and one[1].device is None]
        if not usable:
            raise InputError("no profile that could be adapted is there; make one: jetdvfs-lab train --simulated --board NAME")
        prior, manifest = min(usable, key=lambda one: _distance(one[1], description))
    missing = board.missing_rails()
    return BoardFacts(
        title=description.title,
        board=description.name,
        profiles=own,
        prior=prior,
        manifest=manifest,
        levels={
            axis: (len(offered.levels(axis)), len(description.grid.levels(axis))) for axis in ("cpu_khz", "gpu_hz", "emc_hz")
        },
        missing=tuple(missing),
        rails=tuple(rail for rail in board.sensors.energy_rails if rail not in missing),
        notes=(*board.hardware.notes, *unknown),
    )


def _distance(manifest: Manifest, description: BoardDescription) -> tuple[bool, bool, bool, float]:
    theirs = load_board(manifest.board)
    speeds = [one.chip.flops_per_gpu_cycle["float32"] * one.grid.gpu_hz[-1] for one in (theirs, description)]
    return (
        manifest.board != description.name,
        theirs.soc != description.soc,
        manifest.simulated,
        abs(math.log(speeds[0] / speeds[1])),
    )


_READ_EVERY_S = 0.05
_AGAIN_S = 1.0
SETTLING_S = 0.2
_IDLE_S = 0.4
_LONG_MEAN_S = 0.5  # a monitor with a longer average shows earlier power
_UPDATE = "update_interval"
_OVER_CURRENT_PER_S = 50.0  # each slows the clocks for about a millisecond; some boards always have 30 at their top clocks


class ObservedRun(Struct, frozen=True):
    """One network at one configuration; powers are means of the energy rails, ``launches_ms`` measured times of launches."""

    configuration: FrequencyConfiguration
    latency_ms: float
    power_mw: float | None
    idle_mw: float | None
    rejected: str = ""
    launches_ms: tuple[float, ...] = ()
    die_c: float | None = None
    idle_die_c: float | None = None


class SetUpBoard:
    """A board under the running daemon, or one of its own; raises DaemonError."""

    def __init__(self, root: Path, board: str | None, socket: Path | None = None) -> None:
        self._clock = SystemClock()
        self._files = Files(root, longest_s=LONGEST_S)
        self.hardware = Hardware.probe(self._files, self._clock, board=board)
        if like := self.hardware.description.like:
            name = self.hardware.description.name
            raise InputError(f"{name} is not described; --board NAME takes it for a described board, such as {like}")
        self.sensors = Sensors(self._files, self.hardware.description)
        self._root = root
        self._socket = socket

    @property
    def description(self) -> BoardDescription:
        return self.hardware.description

    @property
    def grid(self) -> FrequencyGrid:
        return self.hardware.grid()

    def at_first(self) -> dict[str, Any]:
        hardware, identity = self.hardware, self.hardware.identity
        mode, fan = hardware.mode(), hardware.fan()
        governors = {axis: sorted({reading.mode for reading in each}) for axis, each in hardware.read().items()}
        found = {
            "jetdvfs": __version__, "jetpack": identity.jetpack, "l4t": identity.l4t, "kernel": identity.kernel,
            "power_mode": mode and f"{mode.id} {mode.name}", "fan_drive": fan and round(fan.drive, 3), "governors": governors,
        }  # fmt: skip
        return {name: value for name, value in found.items() if value not in (None, "")}

    def averaging_s(self) -> float:
        """Longest averaging time of a power monitor by its driver; 0 if none."""
        nodes = {path.rpartition("/")[0] for channel in self.sensors.channels() for path in channel.paths}
        return max((self._files.find_int(f"{node}/{_UPDATE}") or 0 for node in nodes), default=0) / 1e3

    def missing_rails(self) -> list[str]:
        """Energy rails without a sensor; read twice, as a monitor may be busy."""
        found = self.sensors.rails_mw()
        if any(rail not in found for rail in self.sensors.energy_rails):
            self._clock.sleep(_AGAIN_S)
            found = self.sensors.rails_mw()
        return [rail for rail in self.sensors.energy_rails if rail not in found]

    def die_c(self) -> float | None:
        read_mc = hottest_mc(self.sensors.trips, self.sensors.temperatures_mc())
        return None if read_mc is None else read_mc / 1e3

    def why_rejected(
        self, accepted: FrequencyConfiguration, notes: Sequence[str], over_before: Mapping[str, int], seconds: float
    ) -> str:
        hot = tuple(f"it throttles: {trip}" for trip in self.sensors.throttled())
        if amiss := (*hot, *notes):
            return amiss[0]
        over_per_s = {name: (count - over_before.get(name, 0)) / seconds for name, count in self.sensors.over_current().items()}
        often = [name for name, rate in over_per_s.items() if rate > _OVER_CURRENT_PER_S]
        if often:
            return f"over-current throttling ({often[0]}) takes more than a twentieth of the time"
        grid = self.description.grid
        astray = [axis for axis, value in accepted._asdict().items() if value not in grid.levels(axis)]
        return f"clocks are no levels: {astray[0]} is at {getattr(accepted, astray[0])}" if astray else ""

    @contextlib.contextmanager
    def daemon(self, own: bool) -> Iterator[Client]:
        here = self._root.resolve() == Path("/")
        running = self._socket or (arguments.board_socket if here else socket_of)(self._root)
        if running is not None and not own:
            try:
                client = Client(running)
            except NoDaemon:
                if self._socket is not None or (here and os.geteuid() != 0):
                    raise
            else:
                with client:
                    yield client
                return
        with tempfile.TemporaryDirectory(prefix="jetdvfs-setup-") as name, contextlib.ExitStack() as stack:
            folder = Path(name)
            socket = folder / "jetdvfs.sock"
            command = ["jetdvfs.daemon.service", "--root", str(self._root.resolve()), "--socket", str(socket)]
            (folder / "setup.yaml").write_text("floors: off\n")  # no other work is measured meanwhile
            command += ["--config", str(folder / "setup.yaml")]
            if not here:
                command += ["--state-dir", str(folder / "state"), "--runtime-dir", str(folder / "run")]
            child = spawn("jetdvfsd", [*command, "--board", self.description.name], folder)
            stack.callback(child.stop)
            yield stack.enter_context(when_it_answers(child, socket))

    def observe(
        self, client: Client, runner: Runner, candidate: Candidate, configuration: FrequencyConfiguration, seconds: float
    ) -> ObservedRun:
        try:
            return self._observed(client, runner, candidate, configuration, seconds)
        except NoDaemon:
            raise
        except DaemonError as error:  # heat takes levels away, and limits of other programs do
            return ObservedRun(configuration, 0.0, None, None, self.why_rejected(configuration, (str(error),), {}, math.inf))

    def _observed(
        self, client: Client, runner: Runner, candidate: Candidate, configuration: FrequencyConfiguration, seconds: float
    ) -> ObservedRun:
        with client.hold(configuration=configuration, reason="being set up", app="jetdvfs setup") as lease:
            assert lease.applied is not None
            accepted = FrequencyConfiguration(**lease.applied["accepted"])
            notes = () if lease.applied["verified"] else tuple(lease.applied["notes"]) or ("not as requested",)
            self._clock.sleep(SETTLING_S)
            before = self.sensors.over_current()
            mean_s = self.averaging_s()
            idle_mw = self._mean_mw(_IDLE_S) if mean_s <= _LONG_MEAN_S else None
            idle_die_c = self.die_c()
            with self._sampling() as samples:
                ran = runner.run(candidate, seconds + mean_s)
            ended, die_c = self._clock.monotonic() - ran.over_s, self.die_c()
            began = ended - seconds
            after = client.status()["applied"]
            if after is not None and after["accepted"] != lease.applied["accepted"]:
                notes += ("clocks were kept up for other work meanwhile",)
            rejected = self.why_rejected(accepted, notes, before, seconds + mean_s)
        return ObservedRun(
            accepted, ran.latency_ms, _mean([mw for at, mw in samples if began < at <= ended]), idle_mw,
            rejected, ran.launches_ms, die_c, idle_die_c,
        )  # fmt: skip

    def _mean_mw(self, seconds: float) -> float | None:
        with self._sampling() as samples:
            self._clock.sleep(seconds)
        return _mean([mw for _, mw in samples])

    @contextlib.contextmanager
    def _sampling(self) -> Iterator[list[tuple[float, float | None]]]:
        samples: list[tuple[float, float | None]] = []

        def read() -> None:
            samples.append((self._clock.monotonic(), total_mw(self.sensors.rails_mw(), self.sensors.energy_rails)))

        read()
        with repeated(read, _READ_EVERY_S):
            yield samples


def _mean(found: list[float | None]) -> float | None:
    known = [one for one in found if one is not None]
    return sum(known) / len(known) if known else None


def spread_out(grid: FrequencyGrid, count: int, seed: int) -> list[FrequencyConfiguration]:
    """Configurations spread over the grid, the top first.

    Each axis takes multiples of an irrational number, modulo one (Roberts's R3 sequence, 2018).
    """
    phi = 1.2207440846057596  # the real root of x^4 = x + 1
    steps = np.array([1 / phi, 1 / phi**2, 1 / phi**3])
    start: NDArray[np.float64] = np.random.default_rng(seed).random(3)
    found = [grid.top]
    for number in range(1, count):
        place = (start + number * steps) % 1.0
        found.append(grid.configuration([int(at * size) for at, size in zip(place, grid.shape, strict=True)]))
    return found
