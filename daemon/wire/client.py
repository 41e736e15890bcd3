# SPDX-License-Identifier: Apache-2.0
"""The client of an application: one connection to the daemon, with networks and leases. Loads the standard library only.

::

    with Client() as client:
        network = client.load("resnet18.pt", ["1x3x224x224"])
        with client.hold(network, "latency_ms=20", reason="camera") as lease:
            ...                                     # the clocks are set, and restored afterwards
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import DaemonError, InputError, NoDaemon, NotPermitted, UsageError
from . import input_values, protocol
from .hold_request import HoldOptions, HoldRequest
from .input_values import Configuration
from .reporter import Reporter, stays_behind

if TYPE_CHECKING:
    from typing_extensions import Unpack

RELEASE_S = 1.0
_Self = TypeVar("_Self", bound="Client")
_OF_PLAN = ("network", "target", "fps", "confidence", "method", "execution", "beside")
_OF_PREVIEW = ("target", "configuration", "configuration_text", "fps", "confidence", "app", "ceiling_c")


class Client:
    """A connection to the daemon, with all its networks and leases. Thread-safe.

    Args:
        socket_path: by default ``$JETDVFS_SOCKET`` or ``/run/jetdvfs/jetdvfs.sock``.

    Raises:
        NoDaemon: no daemon answers there.
        NotPermitted: the user may not use the socket; the text names the users that may.
    """

    def __init__(
        self,
        socket_path: str | os.PathLike[str] | None = None,
        *,
        timeout_s: float = 120.0,
        interface: str = protocol.INTERFACE,
    ) -> None:
        self._path = Path(socket_path) if socket_path is not None else protocol.default_socket()
        self._interface = interface
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._unread = 0
        self._timeout_s = timeout_s
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stays_behind(self)
        try:
            # With many clients at once, the kernel refuses those that do not wait; wait a second, in the kernel.
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", 1, 0))
            self._sock.connect(os.fspath(self._path))
            self._sock.settimeout(timeout_s)
        except PermissionError as error:
            self._sock.close()
            raise NotPermitted(f"permission denied on {self._path}: {protocol.who_may(self._path)}") from error
        except OSError as error:
            self._sock.close()
            raise NoDaemon(f"no daemon answers on {self._path} ({error.strerror or error})") from error

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.hang_up()
        self._sock.close()

    def hang_up(self) -> None:
        """End the connection, also for a waiting thread, whose call fails with :class:`NoDaemon`."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def wait_until_gone(self, within_s: float | None = None) -> bool:
        """True once either end has closed the connection; False on a timeout."""
        try:
            ended = select.poll()
            ended.register(self._sock, select.POLLRDHUP)
            return bool(ended.poll(None if within_s is None else 1e3 * within_s))
        except ValueError:  # already closed
            return True

    def after_fork(self) -> None:
        """In a forked child: leave the connection to the parent; calls raise :class:`NoDaemon`."""
        self._lock = threading.Lock()
        self._sock.close()

    def status(self) -> dict[str, Any]:
        return self._object("Status", "status", {})

    def load(
        self,
        model: str | os.PathLike[str],
        inputs: Sequence[Any] = (),
        *,
        name: str | None = None,
        accept_boundary: Sequence[str] = (),
    ) -> LoadedModel:
        """Decompose a model's file for inputs like ``"1x3x224x224"``, ``"1x128:int64"`` or ``(1, 3, 224, 224)``.

        An engine's layers (``trtexec --exportLayerInfo``) contain their inputs; a GGUF file takes ``"prefill=512:int"`` or
        ``"decode=2048:int"``. A launch list may end early only at the operator ``accept_boundary``.

        Raises:
            InputError: the file cannot be opened or was refused.
        """
        tensors = [input_values.tensor(item) for item in inputs]
        try:
            descriptor = os.open(model, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise InputError(f"model {os.fspath(model)}: {error.strerror}") from error
        try:
            return self.load_descriptor(descriptor, tensors, name=name or Path(model).stem, accept_boundary=accept_boundary)
        finally:
            os.close(descriptor)

    def load_descriptor(
        self, descriptor: int, inputs: Sequence[Any], *, name: str | None = None, accept_boundary: Sequence[str] = ()
    ) -> LoadedModel:
        tensors = [input_values.tensor(item) for item in inputs]
        parameters = {
            "inputs": tensors,
            "name": input_values.short(name),
            "accept_boundary": input_values.names(accept_boundary),
        }
        return LoadedModel(self, self.call("LoadModel", parameters, descriptor=descriptor)["network"])

    def load_network(self, network: Mapping[str, Any], *, accept_boundary: Sequence[str] = ()) -> LoadedModel:
        parameters = {"network": network, "accept_boundary": input_values.names(accept_boundary)}
        return LoadedModel(self, self._object("LoadNetwork", "network", parameters))

    def predict(
        self,
        network: LoadedModel | str,
        configuration: Configuration | None = None,
        *,
        fps: float | None = None,
        method: str | None = None,
        execution: str | None = None,
        beside: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """Predictions by name: ``at`` the configuration, or ``top``, ``fastest`` and ``frugal``.

        Args:
            execution: ``eager``, ``graph`` or ``engine``; by default as listed.
            beside: frame overhead: ``host_ms`` of CPU time at its top clock, ``copied_bytes``.
        """
        parameters = {
            "network": _handle(network),
            "configuration": input_values.configuration(configuration),
            "fps": fps,
            "method": method,
            "execution": execution,
            "beside": beside,
        }
        return self._object("Predict", "predictions", parameters)

    def plan(self, network: LoadedModel | str, target: str | HoldRequest, **options: Unpack[HoldOptions]) -> dict[str, Any]:
        """Plan for a target such as ``latency_ms=20``, or for a request; sets nothing.

        ``fps``, ``confidence``, ``method``, ``execution`` and ``beside`` of :meth:`hold` are options. Raises
        TargetNotAttainable.
        """
        request = HoldRequest.of(target, options)._replace(network=_handle(network))
        return self._object("Plan", "plan", request.members(_OF_PLAN))

    def hold(
        self,
        network: LoadedModel | str | None = None,
        target: str | HoldRequest | None = None,
        **options: Unpack[HoldOptions],
    ) -> HeldLease:
        """Hold clocks for a network and target, or a configuration, until the lease is released.

        Args:
            target: the target, or the whole request.
            options: other members of :class:`jetdvfs.daemon.wire.hold_request.HoldRequest`.

        Raises:
            TargetNotAttainable: no permitted configuration meets the target.
            HardwareRefused: the board refused the setting; it is unchanged.
        """
        request = HoldRequest.of(target, options)
        request = request if network is None else request._replace(network=_handle(network))
        return HeldLease(self, self.call("Hold", request.parameters()))

    def release(self, lease: HeldLease | str, *, within_s: float | None = None) -> None:
        self.call("Release", {"lease": lease if isinstance(lease, str) else lease.id}, within_s=within_s)

    def preview(self, target: str | HoldRequest | None = None, **options: Unpack[HoldOptions]) -> dict[str, Any]:
        """Clocks that :meth:`hold` would set for a configuration, or for a target without a network; sets nothing.

        ``configuration``, ``fps``, ``confidence``, ``app`` and ``ceiling_c`` of :meth:`hold` are options. Raises UsageError.
        """
        return self._object("Preview", "configuration", HoldRequest.of(target, options).members(_OF_PREVIEW))

    def learned(self, name: str | None = None) -> list[dict[str, Any]]:
        programs: list[dict[str, Any]] = self.call("Learned", {"name": name})["programs"]
        return programs

    def forget(self, name: str | None = None) -> int:
        return int(self.call("Forget", {"name": name})["programs"])

    def log(self, lease: str | None = None) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.call("Log", {"lease": lease})["entries"]
        return entries

    def watch(self, lease: str | None = None, *, after: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield every decision after a number, or from now on; the connection then answers nothing else.

        Raises:
            NoDaemon: the connection ended.
        """
        message = input_values.message(self._interface, "Watch", {"lease": lease, "after": after}, more=True)
        try:
            with self._lock:
                self._sock.settimeout(None)
                self._sock.sendall(message)
                while True:
                    reply = protocol.decode(self._next())
                    protocol.raise_error(reply)
                    yield reply["parameters"]["entry"]
        except (OSError, UsageError) as error:
            self.hang_up()
            raise NoDaemon(f"the daemon on {self._path} went away ({protocol.one_line(error)})") from error

    def call(
        self, method: str, parameters: Mapping[str, Any], *, descriptor: int | None = None, within_s: float | None = None
    ) -> dict[str, Any]:
        """Call a method of the interface; after ``within_s`` the daemon still finishes the call.

        Raises:
            NoDaemon: the connection ended, or no answer came in time.
            DaemonError: the daemon's error.
        """
        message = input_values.message(self._interface, method, parameters)
        if not self._lock.acquire(timeout=-1 if within_s is None else within_s):
            raise NoDaemon(f"the daemon on {self._path} has not answered another call yet")
        try:
            self._sock.settimeout(self._timeout_s if within_s is None else within_s)
            # A daemon may refuse the connection and hang up before the call.
            with contextlib.suppress(BrokenPipeError):
                self._send(message, descriptor)
            reply = self._receive(skip_later=within_s is not None)
        except (OSError, UsageError) as error:
            # After half an exchange, the next answer is unknown.
            self.hang_up()
            raise NoDaemon(f"the daemon on {self._path} went away during {method} ({protocol.one_line(error)})") from error
        finally:
            self._lock.release()
        protocol.raise_error(reply)
        found = reply.get("parameters")
        return found if isinstance(found, dict) else {}

    def post(self, method: str, parameters: Mapping[str, Any]) -> bool:
        """Send a call without answer, never waiting or raising; False to try again later."""
        message = protocol.encode({"method": f"{self._interface}.{method}", "parameters": parameters, "oneway": True})
        if not self._lock.acquire(blocking=False):
            return False
        try:
            # Python would wait for room despite the flags. A socket with room takes a message of this size whole: it counts as
            # writable while three quarters of its buffer are free.
            room = select.poll()
            room.register(self._sock, select.POLLOUT)
            if not room.poll(0):
                return False
            if self._sock.send(message, socket.MSG_NOSIGNAL) != len(message):
                self.hang_up()
            return True
        except (OSError, ValueError):
            self.hang_up()
            return True
        finally:
            self._lock.release()

    def _object(self, call: str, member: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.call(call, parameters)[member]
        return found

    def _send(self, message: bytes, descriptor: int | None) -> None:
        if descriptor is None:
            self._sock.sendall(message)
        else:
            sent = socket.send_fds(self._sock, [message], [descriptor])
            self._sock.sendall(message[sent:])

    def _receive(self, *, skip_later: bool) -> dict[str, Any]:
        """The answer to the last call; with ``skip_later``, a late one is dropped when it comes."""
        try:
            while self._unread:
                self._next()
                self._unread -= 1
            return protocol.decode(self._next())
        except TimeoutError as error:
            if not skip_later:
                raise
            self._unread += 1
            raise NoDaemon(f"the daemon on {self._path} does not answer") from error

    def _next(self) -> bytes:
        while (end := self._buffer.find(0)) < 0:
            chunk = self._sock.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError("it closed the connection")
            self._buffer += chunk
        message = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return message


def _handle(network: LoadedModel | str) -> str:
    return network if isinstance(network, str) else network.handle


class LoadedModel:
    """A network loaded on this connection; ``info`` is the ``Network`` of the interface."""

    def __init__(self, client: Client, info: Mapping[str, Any]) -> None:
        self.info = info
        self.handle: str = info["network"]
        self._client = client

    def __repr__(self) -> str:
        return f"<LoadedModel {self.info['name']}: {self.info['launches']} launches>"

    def unload(self) -> None:
        """Forget it; leases planned for it stay."""
        self._client.call("Unload", {"network": self.handle})


class PlanReply(dict[str, Any]):
    def __repr__(self) -> str:
        choice = self["choice"]
        clocks = ", ".join(f"{axis}={level}" for axis, level in choice["configuration"].items())
        return f"<plan for {self['target']}: {clocks}, {choice['latency_ms']:.4g} ms, {choice['energy_mj']:.4g} mJ>"


class HeldLease:
    """Held clocks; as a context manager, released at its end within a second.

    Attributes:
        id: its name in ``status`` and for ``release``.
        applied: clocks requested, accepted, and in effect.
        limit_ms: longest time of a frame by target and frame rate.
        shared, unkept, corrected: the ``Shared``, ``Unkept`` and ``Corrected`` of the interface, if any.
    """

    def __init__(self, client: Client, answer: Mapping[str, Any]) -> None:
        self.id: str = answer["lease"]
        self._client = client
        self._take(answer)
        self._reporter = Reporter(partial(_send_report, client, self.id), self.limit_ms)

    def __repr__(self) -> str:
        clocks = (self.applied or {}).get("requested", {})
        return f"<lease {self.id} at {', '.join(f'{axis}={level}' for axis, level in clocks.items())}>"

    def __enter__(self) -> HeldLease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # With the daemon gone or the lease ended, nothing is left to release.
        with contextlib.suppress(DaemonError):
            self.release(within_s=RELEASE_S)

    def __del__(self) -> None:
        self.abandon()

    @property
    def dropped(self) -> int:
        return self._reporter.dropped

    def release(self, *, within_s: float | None = None) -> dict[str, Any] | None:
        """Release the clocks; return the ``Used`` of the interface, if any."""
        self._reporter.end()
        used: dict[str, Any] | None = self._client.call("Release", {"lease": self.id}, within_s=within_s).get("used")
        return used

    def change(
        self,
        network: LoadedModel | str | None = None,
        target: str | None = None,
        *,
        fps: float | None = None,
        confidence: float | None = None,
    ) -> None:
        """Change the request; members not given stay. Raises TargetNotAttainable; the lease is then unchanged."""
        handle = None if network is None else _handle(network)
        wanted = {"lease": self.id, "network": handle, "target": target, "fps": fps, "confidence": confidence}
        answer = self._client.call("Change", wanted)
        self._take(answer)
        self._reporter.limit(self.limit_ms)

    def _take(self, answer: Mapping[str, Any]) -> None:
        plan = answer.get("plan")
        self.plan: Mapping[str, Any] | None = plan and PlanReply(plan)
        self.applied: Mapping[str, Any] | None = answer.get("applied")
        self.limit_ms: float | None = answer.get("limit_ms")
        self.shared: Mapping[str, Any] | None = answer.get("shared")
        self.unkept: Mapping[str, Any] | None = answer.get("unkept")
        self.corrected: Mapping[str, Any] | None = answer.get("corrected")

    def abandon(self) -> None:
        """End its work in this process silently; the daemon ends it with the connection."""
        self._reporter.abandon()

    def report(self, latency_ms: float) -> None:
        """Note a frame's latency, for a thread to send; never waits or raises."""
        self._reporter.note(latency_ms)

    def missed(self) -> dict[str, Any] | None:
        """Missed target, the ``Missed`` of the interface; None while kept."""
        self._reporter.flush()
        found: dict[str, Any] | None = self._client.call("Report", {"lease": self.id, "latency_ms": []}).get("missed")
        return found

    def notices(self, *, within_s: float) -> dict[str, str]:
        """Notices of the daemon by kind, one line each; raises LeaseEnded or NoDaemon."""
        told = self._client.call("Report", {"lease": self.id, "latency_ms": []}, within_s=within_s)
        found = {}
        if doubted := told.get("doubted"):
            found[f"doubted {doubted.get('side')}"] = doubted["reason"]
        if silent := told.get("silent"):
            found["silent"] = silent
        return found

    def flush(self) -> None:
        self._reporter.flush()


def _send_report(client: Client, lease_id: str, latencies_ms: Sequence[float]) -> bool:
    with contextlib.suppress(TypeError, ValueError):
        taken = [float(one) for one in latencies_ms if 0 <= one <= protocol.LONGEST_FRAME_MS]
        return client.post("Report", {"lease": lease_id, "latency_ms": taken})
    return True
