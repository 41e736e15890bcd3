# SPDX-License-Identifier: Apache-2.0
"""Plays one scenario from its first event to the last check, against the real daemon on a simulated board."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType

from jetdvfs.tests.soak import checks
from jetdvfs.tests.soak.boards import Boards
from jetdvfs.tests.soak.events import disk, service
from jetdvfs.tests.soak.probe import Probe, Sample, blocked
from jetdvfs.tests.soak.scenario import Check, Scenario
from jetdvfs.tests.soak.stage import Patience, Places, Stage
from jetdvfs.tests.soak.world import USUAL_BOARD
from jetdvfs.tests.support.models import handmade
from jetdvfs.tests.support.profiles.small_bundle import make_bundle

#: How long another user's call may take, once the machine's own part in it is taken off.
# More where the machine has other work to do.
OTHERS_MS = float(os.environ.get("JETDVFS_SOAK_OTHERS_MS", "100"))
#: How long one scenario may take.
LONGEST_S = 120.0


@dataclass(frozen=True)
class Outcome:
    """What came of a scenario.

    Attributes:
        troubles: the promises that were broken; none if all went well.
        told: what happened when.
        samples: how others' status was answered meanwhile.
        answered_ms: how soon clients' calls were answered.
    """

    seed: int
    seconds: float
    troubles: tuple[str, ...]
    told: tuple[str, ...]
    log: str
    samples: tuple[Sample, ...]
    answered_ms: tuple[float, ...]


class Theatre:
    """Where scenarios are played one after the other: the process that serves boards, and the one that asks for the status.

    Args:
        small_disks: whether file systems may be mounted, for disks that fail; they must be out of others' sight.
        daemon: a module to be run as the daemon instead of the product's; for tests of this harness.
        patience: how long things may take.
    """

    def __init__(self, *, small_disks: bool, daemon: str = "jetdvfs.daemon.service", patience: Patience | None = None) -> None:
        self._small_disks, self._daemon, self._patience = small_disks, daemon, patience
        self._stack = contextlib.ExitStack()
        self._folder = Path(tempfile.mkdtemp(prefix="soak-"))
        self._folder.chmod(0o755)
        self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        self._bundle = self._folder / "stumps"
        make_bundle(self._bundle)
        self._model = self._folder / "relu.pt"
        self._model.write_bytes(handmade.archive(handmade.forward("return torch.relu(x)")))
        self._model.chmod(0o644)
        self._played = 0

    def __enter__(self) -> Theatre:
        self._boards = self._stack.enter_context(Boards())
        self._probe = self._stack.enter_context(Probe())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def play(self, scenario: Scenario) -> Outcome:
        """Play it; whatever the daemon does, this ends."""
        began = time.monotonic()
        self._played += 1
        places = Places(self._folder / str(self._played))
        places.folder.mkdir()
        places.folder.chmod(0o755)
        disks = self._small_disks and any(isinstance(event, disk.Disk) for event in scenario.events)
        for folder in (places.state, places.run):
            folder.mkdir()
            if disks:
                disk.make_small(folder)
        places.config.write_text(service.BASIS)
        board = self._boards.new(scenario.board, scenario.backend, self._folder / "root")
        places.root = self._folder / "root"
        options = ["--profile", str(self._bundle)] if scenario.board == USUAL_BOARD else []
        stage = Stage(board, places, options, self._model, small_disks=disks, daemon=self._daemon, patience=self._patience)
        samples: list[Sample] = []
        try:
            with _within(LONGEST_S, stage):
                if stage.up():
                    self._probe.watch(places.socket)
                    try:
                        _act(stage, scenario)
                    finally:
                        samples = self._probe.stop()
                    _close(stage, scenario)
            for late in blocked(samples, stage.left_out, OTHERS_MS)[:1]:
                stage.tell(f"another user's status: {late}")
                stage.blame(f"another user's {late.fault(OTHERS_MS)}")
            checks.check_log(stage)
        finally:
            self._clear(stage)
        log = stage.log_text()
        shutil.rmtree(places.folder, ignore_errors=True)
        return Outcome(
            scenario.seed,
            time.monotonic() - began,
            tuple(dict.fromkeys(stage.troubles)),
            tuple(stage.told),
            log,
            tuple(samples),
            tuple(stage.answered_ms),
        )

    def _clear(self, stage: Stage) -> None:
        stage.kill()
        stage.board.mend()
        for folder in (stage.places.state, stage.places.run):
            if stage.small_disks:
                disk.unmount(folder)


@contextlib.contextmanager
def _within(seconds: float, stage: Stage) -> Iterator[None]:
    """End what takes longer."""

    def late(number: int, frame: FrameType | None) -> None:
        where = traceback.format_stack(frame)
        stage.tell("at " + " / ".join(line.strip().splitlines()[0] for line in where[-6:]))
        raise _Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _Late:
        stage.blame(f"not over after {seconds:g} s")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Late(BaseException):
    pass


def _act(stage: Stage, scenario: Scenario) -> None:
    for event in scenario.events:
        stage.tell(event.words())
        if isinstance(event, Check):
            checks.check_held(stage)
        else:
            event.play(stage)
        if stage.refusals:
            checks.check_given_back(stage, "by a daemon that could not start for another reason")
            stage.refusals = 0


def _close(stage: Stage, scenario: Scenario) -> None:
    """Let everything work again, and see what the daemon makes of it."""
    stage.tell("everything works again, and the scenario ends")
    stage.board.mend()
    stage.pending.clear()
    if stage.small_disks:
        for name in ("state", "run"):
            disk.well(stage, stage.places.folder / name)
    stage.places.config.write_text(service.BASIS)
    stage.unusable.clear()
    stage.signal(signal.SIGCONT)
    if not stage.up():
        return
    checks.check_held(stage)
    if not scenario.stops_holding:
        for actor in stage.actors.values():
            actor.wire.close()
        stage.actors.clear()
        checks.check_given_back(stage, "after the clients had gone")
        status = checks.status_of(stage)
        if status is not None and not checks.eventually(lambda: _nothing_held(stage), stage.patience.settles_s):
            stage.blame(f"nobody holds, and the status says baseline {status['baseline']}, {len(status['leases'])} leases")
        checks.check_resources(stage)
    stage.stop()
    checks.check_given_back(stage, "after the daemon was stopped")


def _nothing_held(stage: Stage) -> bool:
    status = checks.status_of(stage)
    return status is not None and not status["leases"] and status["baseline"] == "none"
