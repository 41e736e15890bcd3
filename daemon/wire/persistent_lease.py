# SPDX-License-Identifier: Apache-2.0
"""A lease that outlasts the daemon: held again by the next one. Loads the standard library only."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..errors import DaemonError, InputError, LeaseEnded, NoDaemon, NotPermitted, UsageError
from . import input_values
from .client import RELEASE_S, Client, HeldLease, LoadedModel
from .hold_request import HoldOptions, HoldRequest
from .loaded_networks import LoadedNetworks, OpenModel
from .reporter import Reporter, counting, stays_behind

if TYPE_CHECKING:
    from typing_extensions import Unpack

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0
START_S = 10.0
_TRIES = 3
_ASK_S = 2.0


class PersistentLease:
    """Clocks held while the block runs, across daemons.

    A thread watches the connection. If the daemon ends, it connects, loads the model and holds again, after 0.1 s at first and
    at most 5 s. Passing causes (no daemon, no room, an unattainable target) are retried; an invalid request is given up. A
    lease released by another process, or ended by a restore, is not held again: ``over`` is True, and ``error`` names the
    cause. The model's file stays open, and is used even if another replaces it.

    Args:
        required: raise if no daemon answers at the start; otherwise run without a lease until one does.
        on_change: called from the thread with one line per change or notice; by default warnings of the logger ``jetdvfs``.

    Attributes:
        interruptions: number of times the lease was lost.
        used: summary at the end of the block, the ``Used`` of the interface.

    Raises:
        InputError, UsageError: an input or the configuration is invalid.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        inputs: Sequence[Any] = (),
        target: str | HoldRequest | None = None,
        *,
        accept_boundary: Sequence[str] = (),
        required: bool = True,
        socket_path: str | os.PathLike[str] | None = None,
        on_change: Callable[[str], object] | None = None,
        **options: Unpack[HoldOptions],
    ) -> None:
        self._model = None if model is None else OpenModel(model, inputs)
        self._accept_boundary = accept_boundary
        self._request = HoldRequest.of(target, options)
        input_values.clocks(self._request.configuration)  # refuses an invalid one here
        self._required = required
        self._socket_path = socket_path
        self._on_change = on_change or _warn
        self._noticed: set[str] = set()
        self.interruptions = 0
        self.error: DaemonError | None = None
        self.over = False
        self.used: Mapping[str, Any] | None = None
        send = counting()
        self._counter = None if send is None else Reporter(send)
        self._lease: HeldLease | None = None
        self._client: Client | None = None
        self._loaded: LoadedNetworks | None = None
        self._last: HeldLease | None = None
        self._dropped = 0
        self._unread = 0
        self._begun = False
        self._tried = threading.Event()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        state = f"held as lease {self.id}" if self.held else f"not held: {self.error or 'no answer yet'}"
        return f"<lease for {self._request.target or 'a configuration'}, {state}>"

    @property
    def held(self) -> bool:
        return self._lease is not None

    @property
    def id(self) -> str:
        """The lease's name in ``status``, new each time it is held; empty before the first."""
        return self._last.id if self._last else ""

    @property
    def plan(self) -> Mapping[str, Any] | None:
        return self._last.plan if self._last else None

    @property
    def applied(self) -> Mapping[str, Any] | None:
        return self._last.applied if self._last else None

    @property
    def unkept(self) -> Mapping[str, Any] | None:
        return self._last.unkept if self._last else None

    @property
    def corrected(self) -> Mapping[str, Any] | None:
        return self._last.corrected if self._last else None

    @property
    def dropped(self) -> int:
        return self._dropped + (self._last.dropped if self._last else 0)

    def change(
        self,
        target: str | None = None,
        *,
        model: str | os.PathLike[str] | None = None,
        inputs: Sequence[Any] = (),
        fps: float | None = None,
        confidence: float | None = None,
    ) -> None:
        """Change the target, the rate, or the model with its inputs, also for a lease held later.

        A model loaded before is not read again. Raises TargetNotAttainable or DaemonError; the lease is then unchanged.
        """
        lease, loaded = self._lease, self._loaded
        other = None if model is None else OpenModel(model, inputs)
        try:
            if other is not None:
                other.descriptor()
            if lease is not None and loaded is not None:
                network = None if other is None else loaded.network(other)
                lease.change(network, target, fps=fps, confidence=confidence)
        except BaseException:
            if other is not None:
                other.close()
            raise
        if other is not None:
            closed, self._model = self._model, other
            if closed is not None:
                closed.close()
        before = self._request
        self._request = before._replace(
            target=target or before.target,
            fps=before.fps if fps is None else fps,
            confidence=before.confidence if confidence is None else confidence,
        )

    def report(self, latency_ms: float) -> None:
        lease = self._lease
        if lease is not None:
            lease.report(latency_ms)
        if self._counter is not None:
            self._counter.note(latency_ms)

    def flush(self) -> None:
        lease = self._lease
        if lease is not None:
            lease.flush()

    def __enter__(self) -> PersistentLease:
        """Hold.

        Raises:
            NoDaemon, NotPermitted: no daemon answers, or not to this user; only if ``required``.
            DaemonError: the model or the target was refused.
        """
        if self._model is not None:
            with contextlib.suppress(InputError):  # reported when a daemon loads it
                self._model.descriptor()
        stays_behind(self)
        self._thread = threading.Thread(target=self._keep, name="jetdvfs-lease", daemon=True)
        try:
            self._thread.start()
            self._tried.wait(None if self._required else START_S)
            if self.error is not None and (self._required or not isinstance(self.error, (NoDaemon, NotPermitted))):
                raise self.error
        except BaseException:
            self._end()
            raise
        self._begun = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def after_fork(self) -> None:
        self._lease = self._client = self._thread = None
        self._ending = threading.Event()
        self.error = NoDaemon("the lease belongs to the process that this one was forked from")

    def _end(self) -> None:
        self._ending.set()
        lease, self._lease = self._lease, None
        if lease is not None:
            with contextlib.suppress(DaemonError):
                self.used = lease.release(within_s=RELEASE_S)
        if self._counter is not None:
            self._counter.end()
        client, thread = self._client, self._thread
        if client is not None:
            client.hang_up()  # ends the lease, too
        if thread is not None:
            thread.join(RELEASE_S)

    def _keep(self) -> None:
        # Signals are the application's.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        waits = _waits()
        while not (self._ending.is_set() or self.over):
            began_s = time.monotonic()
            try:
                with Client(self._socket_path) as client:
                    self._client = client
                    if not self._ending.is_set():
                        self._hold_and_watch(client)
            except DaemonError as error:
                self._refused(error)
            except Exception as error:  # it would go unnoticed otherwise
                self._refused(InputError(f"{type(error).__name__}: {error}"))
            # Waits grow for a daemon that ends at each request.
            if time.monotonic() - began_s > LONGEST_WAIT_S:
                waits = _waits()
            self._ending.wait(0 if self.over else next(waits))
        if self._model is not None:
            self._model.close()

    def _hold_and_watch(self, client: Client) -> None:
        self._loaded = LoadedNetworks(client, self._accept_boundary)
        lease = self._hold(client, None if self._model is None else self._loaded.network(self._model))
        if lease is None:
            return
        self._dropped, self._last = self.dropped, lease
        self._lease, self.error, self._unread = lease, None, 0
        self._say(f"holding {'again ' if self.interruptions else ''}as lease {lease.id}")
        self._tried.set()
        try:
            while not client.wait_until_gone(_ASK_S) and not self._ending.is_set():
                self._listen(lease)
        except LeaseEnded as error:
            self.error, self.over = error, True
        self._lease = None
        lease.abandon()
        if self._ending.is_set():
            return
        if self.over:
            self._say(str(self.error))
        else:
            self.interruptions += 1
            self.error = NoDaemon("the daemon went away")
            self._say("lease lost: the daemon went away; holding again")

    def _listen(self, lease: HeldLease) -> None:
        try:
            for kind, notice in lease.notices(within_s=RELEASE_S).items():
                if kind not in self._noticed:
                    self._noticed.add(kind)
                    self._say(notice)
        except LeaseEnded:
            raise
        except DaemonError:
            pass  # a busy daemon, or an earlier release, is asked again

    def _hold(self, client: Client, network: LoadedModel | None) -> HeldLease | None:
        for wait_s in _waits():
            try:
                return client.hold(network, self._request)
            except (NoDaemon, UsageError, InputError):
                raise
            except DaemonError as error:
                self._refused(error)
            if self._ending.wait(wait_s):
                break
        return None

    def _refused(self, error: DaemonError) -> None:
        before, self.error = self.error, error
        # A lack of time or memory to read a model does not last.
        self._unread = self._unread + 1 if isinstance(error, InputError) else 0
        self.over = isinstance(error, UsageError) or self._unread == _TRIES
        if self.over:
            self._say(f"given up: {error}")
        elif not isinstance(error, NoDaemon) and str(error) != str(before):
            self._say(f"not held for now: {error}")
        self._tried.set()

    def _say(self, text: str) -> None:
        # The waiting call reports the start.
        if self._begun and not self._ending.is_set():
            with contextlib.suppress(Exception):  # the callback must not end the thread
                self._on_change(text)


def _waits() -> Iterator[float]:
    wait_s = FIRST_WAIT_S
    while True:
        yield wait_s
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)


def _warn(text: str) -> None:
    import logging  # seldom needed

    logging.getLogger("jetdvfs").warning("%s", text)
