# SPDX-License-Identifier: Apache-2.0
"""A board's clocks, held by its daemon, and its rails, by power sensors."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping

from ....daemon.cli.setup.board import SETTLING_S, SetUpBoard
from ....daemon.errors import DaemonError, NoDaemon
from ....daemon.wire.client import Client, HeldLease
from ....kernels.grid import FrequencyConfiguration
from ...errors import MeasurementError
from ...timing import SystemClock
from ..measure.meters.cpu import MeasuringWorker
from ..measure.meters.notes import CampaignNotes

_REST_S = 20.0  # without work and at the board's own clocks, after it was too hot
_READ_EVERY_S = 0.05
_SLOWER = 0.05  # allowed slowness of the GPU relative to its held clock
_BLIND_S = 1.0  # longest time without a reading of a rail


class HeldClocks:
    """Clocks for :class:`~jetdvfs.profiles.lab.measure.meters.gpu.GpuMeter`, by successive leases; ``rest_s`` follows a
    rejected sample.
    """

    def __init__(
        self, board: SetUpBoard, client: Client, notebook: CampaignNotes, worker: MeasuringWorker, rest_s: float = _REST_S
    ) -> None:
        self._board, self._client, self._notebook, self._worker, self._rest_s = board, client, notebook, worker, rest_s
        self._clock = SystemClock()
        self._lease: HeldLease | None = None
        self._amiss = ""
        self._accepted: FrequencyConfiguration | None = None
        self._notes: tuple[str, ...] = ()
        self._over: Mapping[str, int] = {}
        self._since_s = 0.0

    def set(self, configuration: FrequencyConfiguration) -> None:
        """Hold a configuration, after a rest if necessary. Raises NoDaemon."""
        if self._lease is not None and not self._amiss and not self._notes and configuration == self._accepted:
            self._over, self._since_s = self._board.sensors.over_current(), self._clock.monotonic()
            return
        self.close()
        if self._amiss:
            self._clock.sleep(self._rest_s)
        self._accepted, self._notes = configuration, ()
        try:
            self._lease = self._client.hold(configuration=configuration, reason="measured", app="jetdvfs-lab collect")
        except NoDaemon:
            raise
        except DaemonError as error:  # heat takes levels away; limits of other programs do
            self._notes = (f"clocks could not be set: {error}",)
        else:
            applied = self._lease.applied
            assert applied is not None
            self._accepted = FrequencyConfiguration(**applied["accepted"])
            if not applied["verified"] or self._accepted != configuration:
                self._notes = (f"clocks were not as asked for: {configuration} was, {self._accepted} is held",)
        self._clock.sleep(SETTLING_S)
        self._over, self._since_s = self._board.sensors.over_current(), self._clock.monotonic()

    def amiss(self) -> str:
        """Heat, over-current, changed clocks, or a GPU slower than its clock."""
        assert self._accepted is not None
        seconds = max(self._clock.monotonic() - self._since_s, 1e-3)
        applied = self._client.status()["applied"]
        if not self._notes and (applied is None or applied["accepted"] != self._accepted._asdict()):
            self._notes = ("clocks were set otherwise for other work meanwhile",)
        if not self._notes:
            self._notes = self._slow(self._accepted.gpu_hz)
        self._amiss = self._board.why_rejected(self._accepted, self._notes, self._over, seconds)
        if not self._amiss and (die_c := self._board.die_c()) is not None:
            self._notebook.open.die_c.append(die_c)
        return self._amiss

    def _slow(self, held_hz: int) -> tuple[str, ...]:
        """Throttling note: firmware slows the GPU down without its driver reporting it."""
        real_hz = self._worker.ask({"do": "gpu_clock"}).get("gpu_hz")
        if real_hz is None:
            return ()
        self._notebook.open.gpu_hz.append((held_hz, float(real_hz)))
        slow = float(real_hz) < (1 - _SLOWER) * held_hz
        return (f"the GPU is slower than its clock: {real_hz / 1e6:.0f} of {held_hz / 1e6:.0f} MHz",) if slow else ()

    def close(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            with contextlib.suppress(DaemonError):
                lease.release()


class SampledRails:
    """Energy of a board's rails: power sampled and summed within the context."""

    def __init__(self, board: SetUpBoard) -> None:
        self._board, self._clock = board, SystemClock()
        self.rails = board.description.energy_rails
        self._lock = threading.Lock()
        self._energy_uj = dict.fromkeys(self.rails, 0.0)
        self._last: dict[str, tuple[float, float]] = {}

    @contextlib.contextmanager
    def sampling(self) -> Iterator[SampledRails]:
        over = threading.Event()

        def read() -> None:
            while not over.wait(_READ_EVERY_S):
                self._sample()

        self._sample()
        thread = threading.Thread(target=read, name="rails", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()

    def read_uj(self) -> dict[str, int]:
        """Energy of each rail since sampling began, in uJ. Raises MeasurementError."""
        self._sample()
        with self._lock:
            now = self._clock.monotonic()
            blind = [rail for rail in self.rails if now - self._last.get(rail, (now - 2 * _BLIND_S, 0.0))[0] > _BLIND_S]
            if blind:
                raise MeasurementError(f"meter: rail {blind[0]} cannot be read")
            return {rail: round(energy_uj) for rail, energy_uj in self._energy_uj.items()}

    def since_mj(self, before: Mapping[str, int]) -> dict[str, float]:
        return {rail: (energy_uj - before[rail]) / 1e3 for rail, energy_uj in self.read_uj().items()}

    def _sample(self) -> None:
        with self._lock:
            found, now = self._board.sensors.rails_mw(), self._clock.monotonic()
            for rail in self.rails:
                if rail not in found:
                    continue
                then, power_mw = self._last.get(rail, (now, found[rail]))
                self._energy_uj[rail] += 1e3 * (now - then) * (power_mw + found[rail]) / 2
                self._last[rail] = now, found[rail]
