# SPDX-License-Identifier: Apache-2.0
"""The client of an application: one connection to the daemon. Loads the standard library only.

::

    with Client() as client:
        network = client.load("resnet18.pt", ["1x3x224x224"])
        with client.hold(network, "latency_ms=20", reason="camera") as lease:
            ...                                     # the clocks are set, and go back afterwards
"""

from __future__ import annotations

import contextlib
import grp
import os
import socket
import stat
import sys
import threading
from collections.abc import Mapping, Sequence
from operator import index
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ...kernels.errors import GridError, ShapeError
from ...kernels.units import AXES
from ..errors import DaemonError, InputError, NoDaemon, NotPermitted, UsageError
from . import protocol

if TYPE_CHECKING:
    from ...kernels.network import TensorSpec

Configuration: TypeAlias = "str | Mapping[str, int] | Sequence[int]"
"""Text (``"1190.4,905.25,1600"``), or the three clocks by name or in order, in kHz, Hz and Hz."""
_Self = TypeVar("_Self", bound="Client")

_REPORT_EVERY = 32


class Client:
    """A connection to the daemon. Everything it holds (networks, leases) ends with it. May be shared between threads.

    Args:
        socket_path: the daemon's socket; by default ``$JETDVFS_SOCKET`` or ``/run/jetdvfs/jetdvfs.sock``.
        timeout_s: how long an answer may take.
        interface: the interface the socket serves.

    Raises:
        NoDaemon: nobody answers there.
        NotPermitted: whoever asks may not use the socket; the text says who may.
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
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.settimeout(timeout_s)
        try:
            self._sock.connect(os.fspath(self._path))
        except PermissionError as error:
            self._sock.close()
            raise NotPermitted(f"permission denied on {self._path}: {_who_may(self._path)}") from error
        except OSError as error:
            self._sock.close()
            raise NoDaemon(f"no daemon answers on {self._path} ({error.strerror or error})") from error

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; the daemon releases what it held."""
        self._sock.close()

    def status(self) -> dict[str, Any]:
        """What the daemon does and why: the ``Status`` of the interface."""
        return self._object("Status", "status", {})

    def load(
        self,
        model: str | os.PathLike[str],
        inputs: Sequence[Any],
        *,
        name: str | None = None,
        accept_boundary: Sequence[str] = (),
    ) -> LoadedModel:
        """Have a TorchScript file decomposed for inputs like ``"1x3x224x224"``, ``"1x128:int64"`` or ``(1, 3, 224, 224)``.

        A list of launches that ends before its network does is refused, unless it ends at an operator that
        ``accept_boundary`` names, such as ``"aten::index"``; every answer about it then carries the ``boundary``.

        Raises:
            InputError: the file cannot be opened or was refused.
        """
        tensors = [_tensor(item) for item in inputs]
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
        """The same from a descriptor open for reading."""
        tensors = [_tensor(item) for item in inputs]
        parameters = {"inputs": tensors, "name": _short(name), "accept_boundary": _names(accept_boundary)}
        return LoadedModel(self, self.call("LoadModel", parameters, descriptor=descriptor)["network"])

    def load_network(self, network: Mapping[str, Any], *, accept_boundary: Sequence[str] = ()) -> LoadedModel:
        """Register a network from the JSON of ``jetdvfs decompose --json``; ``accept_boundary`` as in :meth:`load`."""
        parameters = {"network": network, "accept_boundary": _names(accept_boundary)}
        return LoadedModel(self, self._object("LoadNetwork", "network", parameters))

    def predict(
        self,
        network: LoadedModel | str,
        configuration: Configuration | None = None,
        *,
        fps: float | None = None,
        method: str | None = None,
    ) -> dict[str, Any]:
        """Predictions by name: ``at`` the configuration given, or ``top``, ``fastest`` and ``frugal``."""
        parameters = {
            "network": _handle(network),
            "configuration": _configuration(configuration),
            "fps": fps,
            "method": method,
        }
        return self._object("Predict", "predictions", parameters)

    def plan(
        self,
        network: LoadedModel | str,
        target: str,
        *,
        fps: float | None = None,
        confidence: float | None = None,
        method: str | None = None,
    ) -> dict[str, Any]:
        """The plan for a target such as ``latency_ms=20``; nothing is set.

        Raises:
            TargetNotAttainable: no permitted configuration meets it.
        """
        parameters = {"network": _handle(network), "target": target, "fps": fps, "confidence": confidence, "method": method}
        return self._object("Plan", "plan", parameters)

    def hold(
        self,
        network: LoadedModel | str | None = None,
        target: str | None = None,
        *,
        configuration: Configuration | None = None,
        fps: float | None = None,
        confidence: float | None = None,
        method: str | None = None,
        reason: str = "",
        app: str | None = None,
    ) -> HeldLease:
        """Have the clocks set for a network and target, or to a configuration, until the lease is released.

        Raises:
            TargetNotAttainable: no permitted configuration meets the target.
            HardwareRefused: the board did not take the setting; it is as it was before.
        """
        parameters = {
            "network": None if network is None else _handle(network),
            "target": target,
            "configuration": _configuration(configuration),
            "fps": fps,
            "confidence": confidence,
            "method": method,
            "reason": reason[: protocol.TEXT_CHARACTERS],
            "app": _short(app or Path(sys.argv[0] or "python").name),
        }
        return HeldLease(self, self.call("Hold", parameters))

    def release(self, lease: HeldLease | str) -> None:
        """End a lease, one's own or another of the same user."""
        self.call("Release", {"lease": lease if isinstance(lease, str) else lease.id})

    def call(self, method: str, parameters: Mapping[str, Any], *, descriptor: int | None = None) -> dict[str, Any]:
        """Any method of the interface.

        Raises:
            NoDaemon: the connection ended, or no answer came in time.
            DaemonError: the error the daemon answered with.
        """
        message = protocol.encode({"method": f"{self._interface}.{method}", "parameters": _present(parameters)})
        if len(message) > protocol.MESSAGE_BYTES:
            raise UsageError(f"{method}: the call has {len(message)} bytes; at most {protocol.MESSAGE_BYTES} are taken")
        with self._lock:
            try:
                # A daemon that refuses the connection says so and hangs up, maybe before it was asked anything.
                with contextlib.suppress(BrokenPipeError):
                    self._send(message, descriptor)
                reply = protocol.decode(self._receive())
            except (OSError, UsageError) as error:
                # After half an exchange nobody knows which answer comes next.
                self._sock.close()
                raise NoDaemon(f"the daemon on {self._path} went away during {method} ({protocol.one_line(error)})") from error
        protocol.raise_error(reply)
        found = reply.get("parameters")
        return found if isinstance(found, dict) else {}

    def post(self, method: str, parameters: Mapping[str, Any]) -> bool:
        """A call without an answer that never waits and never raises; False when it could not be sent whole."""
        message = protocol.encode({"method": f"{self._interface}.{method}", "parameters": parameters, "oneway": True})
        if not self._lock.acquire(blocking=False):
            return False
        try:
            sent = self._sock.send(message, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            if sent != len(message):
                self._sock.close()
            return sent == len(message)
        except OSError:
            return False
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

    def _receive(self) -> bytes:
        while (end := self._buffer.find(0)) < 0:
            chunk = self._sock.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError("it closed the connection")
            self._buffer += chunk
        message = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return message


class LoadedModel:
    """A network the daemon knows on this connection; ``info`` is the ``Network`` of the interface."""

    def __init__(self, client: Client, info: Mapping[str, Any]) -> None:
        self.info = info
        self.handle: str = info["network"]
        self._client = client

    def __repr__(self) -> str:
        return f"<LoadedModel {self.info['name']}: {self.info['launches']} launches>"

    def unload(self) -> None:
        """Forget it; leases planned for it stay."""
        self._client.call("Unload", {"network": self.handle})


class HeldLease:
    """Clocks held. As a context manager it is released at the end, however that comes.

    Attributes:
        id: its name in ``status`` and for ``release``; empty for a lease that stands for none.
        plan: the plan it follows, or None for a configuration asked for by itself.
        applied: what was requested of the board, accepted by it, and seen in effect.
    """

    def __init__(self, client: Client | None, answer: Mapping[str, Any]) -> None:
        self.id: str = answer.get("lease", "")
        self.plan: Mapping[str, Any] | None = answer.get("plan")
        self.applied: Mapping[str, Any] | None = answer.get("applied")
        self._client = client
        self._frames: list[float] = []

    def __enter__(self) -> HeldLease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # With the daemon gone, or the lease ended by somebody else, there is nothing left to release.
        with contextlib.suppress(DaemonError):
            self.release()

    def release(self) -> None:
        """Give the clocks back."""
        self.flush()
        if self._client is not None:
            self._client.release(self)

    def report(self, latency_ms: float) -> None:
        """Note a frame's latency; sent to the daemon a few dozen at a time, without waiting and without ever raising."""
        self._frames.append(latency_ms)
        if len(self._frames) >= _REPORT_EVERY:
            self.flush()

    def flush(self) -> None:
        """Send what was noted and not sent yet; dropped where nobody takes it."""
        frames, self._frames = self._frames, []
        if frames and self._client is not None:
            self._client.post("Report", {"lease": self.id, "latency_ms": frames})


def _who_may(path: Path) -> str:
    """Who may use a socket that we may not, and how to become one of them."""
    try:
        status = path.stat()
    except OSError:
        return "its folder is closed to you"
    if status.st_gid == 0 or not status.st_mode & stat.S_IWGRP:
        return "only root may use it"
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:  # in a container that has no name for it
        return f"only root and the group with the number {status.st_gid} may use it"
    return f"join the group {group} with 'sudo usermod -aG {group} $USER', then log in again"


def _tensor(item: Any) -> dict[str, Any]:
    """An input in any of its forms, as the interface has it."""
    try:
        spec = _spec(item)
    except ShapeError as error:
        raise InputError(str(error)) from error
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"input {item!r:.80}: expected a shape such as 1x3x224x224, with :int64 or so for another type"
        ) from error
    return spec.to_json()


def _spec(item: Any) -> TensorSpec:
    from ...kernels.inputs import input_spec, parse_input, read_input  # an application that loads no model need not wait for it

    if isinstance(item, str):
        return parse_input(item)
    if isinstance(item, Mapping):
        return read_input({**item, "shape": [index(size) for size in item["shape"]]})
    if hasattr(item, "shape"):
        return input_spec([index(size) for size in item.shape], str(item.dtype).rpartition(".")[2])
    return input_spec([index(size) for size in item])


def _configuration(value: Configuration | None) -> dict[str, int] | None:
    if value is None or isinstance(value, Mapping):
        return None if value is None else dict(value)
    from ...kernels.grid import FrequencyConfiguration, parse_configuration

    try:
        clocks = parse_configuration(value) if isinstance(value, str) else FrequencyConfiguration(*map(int, value))
    except GridError as error:
        raise UsageError(str(error)) from error
    except (TypeError, ValueError) as error:
        raise UsageError(f"configuration {value!r:.80}: expected {', '.join(AXES)}") from error
    return clocks._asdict()


def _names(accepted: Sequence[str]) -> list[str] | None:
    """Operators' names; one alone may come without a list around it."""
    return ([accepted] if isinstance(accepted, str) else list(accepted)) or None


def _handle(network: LoadedModel | str) -> str:
    return network if isinstance(network, str) else network.handle


def _short(text: str | None) -> str | None:
    return None if text is None else text[: protocol.TEXT_CHARACTERS]


def _present(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}
