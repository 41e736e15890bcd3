# SPDX-License-Identifier: Apache-2.0
"""A lease that outlasts the daemon: where that goes away, it is held again by the next one. Loads the standard library only."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..errors import DaemonError, InputError, LeaseEnded, NoDaemon, NotPermitted, UsageError
from . import asked
from .client import Client
from .held import RELEASE_S, HeldLease, LoadedModel
from .hold_request import HoldOptions, HoldRequest
from .opened import Loaded, OpenModel
from .reports import Reporter, counting, stays_behind

if TYPE_CHECKING:
    from typing_extensions import Unpack

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0
START_S = 10.0
"""How long an application that can do without waits for its lease before it goes on."""
_TRIES = 3
_ASK_S = 2.0
"""How often the daemon is asked how the lease stands."""


class KeptLease:
    """Clocks held while the block runs, by whatever daemon there is.

    A thread watches the connection. Where it ends (the daemon crashed, was stopped, upgraded, or ended by its watchdog), it
    connects, loads the model and holds again with the same arguments, after 0.1 s at first and 5 s at most, for as long as the
    block runs. What may change by itself (no daemon, no room, a target out of reach for now) is tried again; a request that the
    daemon would refuse again is given up. A lease that another released, or that ended as the board was restored, is not held
    again: ``held`` is then False, ``over`` True, and ``error`` says who ended it.

    The daemon's notices come the same way, each once: frames that do not count, and frames that do not come.

    The model's file is kept open: the application runs what it loaded, also when the file of that name has been replaced since.

    Args:
        model, inputs, accept_boundary: as for :meth:`Client.load`.
        target: the target, or the whole request.
        options: the other members of :class:`HoldRequest`.
        required: raise where nobody answers at the start; otherwise the block runs without a lease until there is one.
        socket_path: the daemon's socket, by default as for :class:`Client`.
        on_change: called from the thread with one line per change or notice; by default they are warnings of the logger
            ``jetdvfs``.

    Attributes:
        interruptions: how often the lease was lost.
        error: why it is not held now; None while it is.
        over: whether it was given up for good.
        used: what the lease came to when the block ended, the ``Used`` of the interface; None where nobody told.

    Raises:
        InputError, UsageError: an input or the configuration makes no sense.
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
        asked.clocks(self._request.configuration)  # one that is none is refused here
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
        self._loaded: Loaded | None = None
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
        """Whether the clocks are held now."""
        return self._lease is not None

    @property
    def id(self) -> str:
        """The lease's name in ``status``; empty before there was one. A lease that is held again has another one."""
        return self._last.id if self._last else ""

    @property
    def plan(self) -> Mapping[str, Any] | None:
        """The plan it follows, or did last; None for a configuration asked for by itself, and before there was a lease."""
        return self._last.plan if self._last else None

    @property
    def applied(self) -> Mapping[str, Any] | None:
        """What was requested of the board for it, accepted by it, and seen in effect; None before there was a lease."""
        return self._last.applied if self._last else None

    @property
    def unkept(self) -> Mapping[str, Any] | None:
        """What of its target was not kept when it was granted, the ``Unkept`` of the interface; None where all was."""
        return self._last.unkept if self._last else None

    @property
    def corrected(self) -> Mapping[str, Any] | None:
        """Frames that its plan is corrected by, the ``Corrected`` of the interface; None if there are none."""
        return self._last.corrected if self._last else None

    @property
    def dropped(self) -> int:
        """How many frames were reported and never sent, for want of a daemon that takes them."""
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
        """Ask for something else from now on: a target, a rate, another model with its inputs; the rest stays as it was.

        While nothing is held, it is what will be held. A model that was asked for before is not read again: a language model's
        prompts and tokens, each with clocks of their own, are changed between in the time that the clocks take.

        Raises:
            TargetNotAttainable: no permitted configuration meets it; the lease stays as it was.
            DaemonError: it was refused, or there is no answer; likewise.
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
        self._request = replace(
            before,
            target=target or before.target,
            fps=before.fps if fps is None else fps,
            confidence=before.confidence if confidence is None else confidence,
        )

    def report(self, latency_ms: float) -> None:
        """Note a frame's latency. It never waits and never raises; while nothing is held, it does nothing."""
        lease = self._lease
        if lease is not None:
            lease.report(latency_ms)
        if self._counter is not None:
            self._counter.note(latency_ms)

    def flush(self) -> None:
        """Send what was noted and not sent yet, as far as the daemon takes it now."""
        lease = self._lease
        if lease is not None:
            lease.flush()

    def __enter__(self) -> KeptLease:
        """Hold.

        Raises:
            NoDaemon, NotPermitted: nobody answers, or not to this user; unless ``required`` is false.
            DaemonError: the model or the target was refused; whatever ``required`` says.
        """
        if self._model is not None:
            with contextlib.suppress(InputError):  # said where it is loaded, if there is anybody to load it
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
        """In a forked child: the lease is the parent's, and stays so."""
        self._lease = self._client = self._thread = None
        self._ending = threading.Event()
        self.error = NoDaemon("the lease belongs to the process that this one was forked from")

    def _end(self) -> None:
        """End lease and thread, within a second or so whatever the daemon does."""
        self._ending.set()
        lease, self._lease = self._lease, None
        if lease is not None:
            with contextlib.suppress(DaemonError):
                self.used = lease.release(within_s=RELEASE_S)
        if self._counter is not None:
            self._counter.end()
        client, thread = self._client, self._thread
        if client is not None:
            client.hang_up()  # which ends the lease, too
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
            except Exception as error:  # nobody would hear of it otherwise
                self._refused(InputError(f"{type(error).__name__}: {error}"))
            # A daemon that ends whenever it is asked is left alone for longer and longer.
            if time.monotonic() - began_s > LONGEST_WAIT_S:
                waits = _waits()
            self._ending.wait(0 if self.over else next(waits))
        if self._model is not None:
            self._model.close()

    def _hold_and_watch(self, client: Client) -> None:
        """Hold, and return when the connection has ended."""
        self._loaded = Loaded(client, self._accept_boundary)
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
        """Pass on what the daemon has to say of the lease, each notice once, whatever its figures are by now.

        Raises:
            LeaseEnded: another ended the lease.
        """
        try:
            for kind, notice in lease.notices(within_s=RELEASE_S).items():
                if kind not in self._noticed:
                    self._noticed.add(kind)
                    self._say(notice)
        except LeaseEnded:
            raise
        except DaemonError:
            pass  # one that is busy, or of an earlier release, is asked again

    def _hold(self, client: Client, network: LoadedModel | None) -> HeldLease | None:
        """Hold, as soon as the daemon grants it; None where that is not wanted any more. The model is read once only."""
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
        # Reading a model may fail for want of time or memory, but not again and again.
        self._unread = self._unread + 1 if isinstance(error, InputError) else 0
        self.over = isinstance(error, UsageError) or self._unread == _TRIES
        if self.over:
            self._say(f"given up: {error}")
        elif not isinstance(error, NoDaemon) and str(error) != str(before):
            self._say(f"not held for now: {error}")
        self._tried.set()

    def _say(self, text: str) -> None:
        # How it goes at the start is told by the call that waits for it.
        if self._begun and not self._ending.is_set():
            with contextlib.suppress(Exception):  # what hears it must not end the keeping
                self._on_change(text)


def _waits() -> Iterator[float]:
    """For how long to wait before each next try, in seconds."""
    wait_s = FIRST_WAIT_S
    while True:
        yield wait_s
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)


def _warn(text: str) -> None:
    import logging  # few applications ever have something to hear

    logging.getLogger("jetdvfs").warning("%s", text)
