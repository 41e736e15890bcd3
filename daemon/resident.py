# SPDX-License-Identifier: Apache-2.0
"""The resident daemon: sets up its parts, opens the sockets, serves until stopped, restores the board."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import grp
import logging
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..kernels.errors import KernelsError
from ..kernels.text import counted
from ..profiles.board import BoardDescription
from ..profiles.bundle.surface_cache import SurfaceCache
from ..profiles.errors import ProfilesError
from ..profiles.timing import SystemClock
from .api import AdminApi, Api, Context
from .config import AXES, INSTALLED_GROUP, ConfigFile, DefaultTarget
from .descriptors.children import ChildReaper
from .errors import DaemonError, HardwareBusy, UsageError
from .hardware.files import LONGEST_S, Files
from .hardware.hardware import Hardware
from .hardware.sensors.sampled import SampledSensors
from .leases.board.service import BoardService
from .leases.board.slowdown import EventCounters
from .leases.board.thread import STUCK_S
from .leases.budgets.budgets import PowerBudgets
from .leases.budgets.temperature_ceiling import FILE_NAME as DRAWN_FILE
from .leases.budgets.temperature_ceiling import MeanPowerFile
from .leases.controller import Controller
from .leases.default import DEFAULT_APP
from .leases.demand import DemandMonitor
from .leases.demand_floors import FloorRules
from .leases.learning.observation_store import ObservationStore
from .profile import choose_profile
from .surfaces import Surfaces, table_folder
from .system import notify
from .system.decision_log import DecisionLog
from .system.folders import make_trusted, runtime_base
from .system.journal import LogQuota, RepeatedLog, task_failures
from .system.rivals import find_rivals, who_sets
from .system.signals import RELOADING, Signals
from .system.sleep import SleepDetector, since_boot
from .system.state import (
    BASELINE_FOLDER,
    board_held,
    default_runtime_dir,
    default_state_dir,
    locked,
    locked_in_passing,
)
from .wire.hold_request import HoldRequest
from .wire.protocol import admin_socket, daemon_socket
from .wire.serving.server import UNCHANGED, Server, ServerLimits, listening

if TYPE_CHECKING:
    from .wire.persistent_lease import PersistentLease
    from .worker.workers import Workers

log = logging.getLogger(__name__)

_WRITES_KEPT = 64
_CHANGES_S = 1.0
_PREPARED_AFTER_S = 1.0  # requests are answered first, and those that predict prepare at once
_SUM_UP_S = 15.0
_DEFAULT_S = 2.0
_LAST_WORD_S = 8.0
"""Longest restore at the service's end; the unit's TimeoutStopSec= is a little longer."""
_ADMIN_LIMITS = ServerLimits(connections=16, connections_per_user=16)


class Resident:
    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Resident:
        try:
            with contextlib.ExitStack() as stack:
                self._set_up(stack)
                self._exit = stack.pop_all()
        except (DaemonError, KernelsError, ProfilesError):
            _restore_leftovers(self._args)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def _set_up(self, stack: contextlib.ExitStack) -> None:
        args = self._args
        started_s = time.monotonic()
        config_file = ConfigFile(args.config)
        config = config_file.started
        for warning in config.warnings:
            log.warning("%s", warning)
        state_dir = args.state_dir or default_state_dir(args.root)
        runtime_dir = args.runtime_dir or default_runtime_dir(args.root)
        path = args.socket or daemon_socket()
        if os.geteuid() != 0 and not (args.socket and args.runtime_dir):
            try:
                make_trusted(runtime_base())
            except OSError as error:
                raise UsageError(f"directory {runtime_base()}: {error.strerror}") from error
        stack.enter_context(board_held(args.root, path))
        for folder in dict.fromkeys((runtime_dir.resolve(), state_dir.resolve())):
            stack.enter_context(locked(folder))
        writes: deque[tuple[str, str]] = deque(maxlen=_WRITES_KEPT)
        files = Files(args.root, lambda path, value: writes.append((path, value)), LONGEST_S)
        sensors: list[SampledSensors] = []

        def sensing(description: BoardDescription) -> SampledSensors:
            sensors.append(SampledSensors(Files(args.root, longest_s=LONGEST_S), description))
            sensors[0].start()
            return sensors[0]

        hardware = Hardware.probe(
            files,
            SystemClock(),
            board=args.board or config.board,
            baseline=runtime_dir.resolve() / BASELINE_FOLDER,
            state_dir=state_dir.resolve(),
            leave=[AXES[axis] for axis in AXES if axis not in config.axes],
            clusters=config.clusters,
            sensing=sensing,
        )
        stack.callback(sensors[0].stop)
        rivals = (f"{unit} sets clocks, too: it is enabled and runs {does}" for unit, does in find_rivals(args.root).items())
        for note in (*hardware.notes, *rivals):
            log.warning("%s", note)
        demands = DemandMonitor(files, hardware.description, time.monotonic, hardware, config.floors or FloorRules())
        drawn = MeanPowerFile(runtime_dir.resolve() / DRAWN_FILE, files)
        budgets = PowerBudgets(sensors[0], hardware.description, files, time.monotonic, _operators(), drawn)
        slept = SleepDetector(time.monotonic, since_boot).over
        controller = Controller(
            hardware, config, time.monotonic, demands, slept, budgets, lambda axis: who_sets(hardware.paths(axis), args.root)
        )
        controller.recover()
        controller.check_limits()
        events = EventCounters(hardware.sensors.over_current, time.monotonic)
        self._board = BoardService(hardware, controller, events, writes, lambda: files.ended)
        profile, notes = choose_profile(
            args.profile or config.profile, hardware.description.name, running_system=args.root.resolve() == Path("/")
        )
        record, self._quota = stack.enter_context(_recording())
        self._stragglers = ChildReaper()
        self._context = Context(
            version=__version__,
            description=hardware.description,
            board=self._board,
            sensors=sensors[0],
            surfaces=Surfaces(
                self._make_workers,
                profile,
                table_folder(state_dir.resolve() / "cache"),
                SurfaceCache(state_dir.resolve() / "surfaces"),
                notes,
            ),
            config=config,
            config_file=config_file,
            started_s=started_s,
            record=record,
            memory=ObservationStore(state_dir.resolve() / "learned.json", board=hardware.description.name),
        )
        self._given = given = notify.listen_sockets()
        # The public socket is last: once it answers, so does the other one.
        self._admin = given.get("jetdvfs-admin") or stack.enter_context(listening(admin_socket(path), 0o600, UNCHANGED))
        self._public = given.get("jetdvfs") or stack.enter_context(listening(path, 0o660, _group_id(config.socket_group)))
        for note in notes:
            log.warning("%s", note)
        log.info(
            "%s, %s; listening on %s",
            hardware.description.title,
            f"profile {profile.identity.name}{' (simulated)' if profile.identity.simulated else ''}"
            if profile
            else "no profile",
            path,
        )

    async def serve(self, signals: Signals) -> None:
        loop = asyncio.get_running_loop()
        said = RepeatedLog(log, time.monotonic)
        loop.set_exception_handler(task_failures(lambda text, kind: said.say(logging.ERROR, text, kind=kind)))
        stop = asyncio.Event()
        config = self._context.config
        server = Server(__version__, self._stragglers)
        limits = ServerLimits(connections=config.clients.connections)
        server.listen(self._public, Api(self._context), limits, inherited="jetdvfs" in self._given)
        admin = AdminApi(self._context)
        server.listen(self._admin, admin, _ADMIN_LIMITS, only_uids=_operators(), inherited="jetdvfs-admin" in self._given)
        self._board.thread.start()
        work = (self._prepare(), self._report_state(), self._sum_up_log(), self._keep_default())
        background = {loop.create_task(each) for each in work}

        def on_signal(number: int) -> None:
            if number == RELOADING:
                background.add(loop.create_task(self._reload(admin)))
            elif not stop.is_set():
                log.info("ending, by %s", signal.Signals(number).name)
                stop.set()

        with _woken_by_signals(loop):
            signals.forward(lambda number: loop.call_soon_threadsafe(on_signal, number))
            try:
                notify.notify("READY=1", "STATUS=Serving")
                await stop.wait()
            finally:
                signals.ignore()
        notify.notify("STOPPING=1", "STATUS=Giving the board back")
        try:
            await self._board.restore(_LAST_WORD_S)
        except HardwareBusy as error:
            log.critical("the board is not given back: %s", error)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        await server.close()
        await self._context.surfaces.close()
        self._context.memory.save()
        self._board.thread.stop()

    def _make_workers(self) -> Workers:
        from .worker.workers import Workers, WorkerSettings  # not needed before models are converted or read

        config = self._context.config.worker
        return Workers(WorkerSettings(config.parallel, config.timeout_s, config.threads), self._stragglers)

    async def _prepare(self) -> None:
        await asyncio.sleep(_PREPARED_AFTER_S)
        await self._context.surfaces.prepare()

    async def _sum_up_log(self) -> None:
        while True:
            await asyncio.sleep(_SUM_UP_S)
            self._quota.sum_up()

    async def _reload(self, admin: AdminApi) -> None:
        notify.notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        with contextlib.suppress(DaemonError):  # logged, and in the status
            await admin.reload()
        notify.notify("READY=1")

    async def _keep_default(self) -> None:
        file, said = self._context.config_file, RepeatedLog(log, time.monotonic)
        known: object = None
        lease: PersistentLease | None = None
        while True:
            wanted = file.current.default
            if wanted != known and lease is not None:
                await asyncio.to_thread(lease.__exit__, None, None, None)
            if wanted != known:
                known, lease, file.default_note = wanted, None, ""
            if isinstance(wanted, DefaultTarget) and lease is None:
                request = HoldRequest(target=wanted.target, fps=wanted.fps, confidence=wanted.confidence, app=DEFAULT_APP)
                request = request._replace(reason=f"default: {wanted}, while no other lease is held")
                path = self._public.getsockname()
                from .wire.persistent_lease import PersistentLease  # seldom needed

                try:
                    kept = PersistentLease(
                        wanted.model, wanted.input, request, required=False, socket_path=path, on_change=log.info
                    )
                    lease = await asyncio.to_thread(kept.__enter__)
                    file.default_note = ""
                except DaemonError as error:
                    file.default_note = f"default: {error}"
                    said.say(logging.ERROR, file.default_note)
            await asyncio.sleep(_DEFAULT_S)

    async def _report_state(self) -> None:
        """Send changes, and watchdog pings while the board's thread makes progress, to the service manager."""
        if not notify.has_manager():
            return
        watchdog_s = notify.watchdog_s()
        beat_s = watchdog_s / 3 if watchdog_s else _CHANGES_S
        due_s = time.monotonic()
        reported = ""
        while True:
            now_s = time.monotonic()
            leases = len(self._board.snapshot.leases)
            status = f"STATUS={counted(leases, 'lease')}"
            messages = [status] if status != reported else []
            if watchdog_s and now_s >= due_s:
                due_s = now_s + beat_s
                if self._board.thread.moves():
                    messages.insert(0, "WATCHDOG=1")
                else:
                    log.critical("board thread stuck for %g s; withholding the watchdog ping", STUCK_S)
            if messages:
                notify.notify(*messages)
                reported = status
            await asyncio.sleep(min(_CHANGES_S, max(due_s - now_s, 0.01)) if watchdog_s else _CHANGES_S)


def _operators() -> frozenset[int]:
    return frozenset({0, os.geteuid()})


def _restore_leftovers(args: argparse.Namespace) -> None:
    """Restore the board after a dead daemon, if this one cannot start; never a running daemon's."""
    from .hardware.baseline import LAST_TRY_S
    from .recovery import keeper_of

    runtime_dir = args.runtime_dir or default_runtime_dir(args.root)
    state_dir = args.state_dir or default_state_dir(args.root)
    try:
        with locked_in_passing(args.root, runtime_dir, state_dir):
            report = keeper_of(Files(args.root, longest_s=LONGEST_S), runtime_dir, state_dir).restore(longest_s=LAST_TRY_S)
    except HardwareBusy:  # a daemon runs
        return
    except DaemonError as error:
        log.error("clocks of an earlier daemon are not restored: %s", error)
        return
    if report.restored:
        log.warning("an earlier daemon ended without restoring the board: %d values restored", len(report.restored))
    for text in report.failed:
        log.error("not given back: %s", text)


@contextlib.contextmanager
def _recording() -> Iterator[tuple[DecisionLog, LogQuota]]:
    record, quota, root = DecisionLog(), LogQuota(time.monotonic, _operators()), logging.getLogger()
    root.addHandler(record)
    handlers = tuple(root.handlers)
    for handler in handlers:
        handler.addFilter(quota)
    try:
        yield record, quota
    finally:
        for handler in handlers:
            handler.removeFilter(quota)
        root.removeHandler(record)


@contextlib.contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Let every signal wake the loop.

    Otherwise a signal in another thread, or just before the wait, would not.
    """
    ours, pythons = socket.socketpair()
    with ours, pythons:
        ours.setblocking(False)
        pythons.setblocking(False)
        before = signal.set_wakeup_fd(pythons.fileno(), warn_on_full_buffer=False)
        loop.add_reader(ours, ours.recv, 4096)
        try:
            yield
        finally:
            loop.remove_reader(ours)
            signal.set_wakeup_fd(before)


def _group_id(name: str | None) -> int:
    try:
        return grp.getgrnam(name or INSTALLED_GROUP).gr_gid if name or os.geteuid() == 0 else UNCHANGED
    except KeyError:
        if name is None:
            return UNCHANGED
        raise UsageError(f"socket_group: there is no group {name!r}") from None
