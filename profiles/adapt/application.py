# SPDX-License-Identifier: Apache-2.0
"""Application on a simulated board: loads networks and runs frames through the board's application port.

A Unix stream socket with NUL-terminated JSON objects. A failed request is answered by ``{"error": "..."}``. Times are seconds
of the host's monotonic clock, which is the board's own.

=================================================  ===============================================================
request                                            answer
=================================================  ===============================================================
``{"op": "load", "network": {...}}``               ``{"network": ID, "name": ...}``; Network JSON with ``host_calls``
``{"op": "frame", "network": ID}``                 ``{"latency_ms", "waited_ms", "started_s", "rails_mj"}``, at its end
``{"op": "run", "network": ID, "fps": 15,          ``{"latencies_ms", "waited_ms", "started_s", "opened_s", "elapsed_s",
"seconds": 2}`` (or ``"frames": 30``; without       "rails_mw", "rails_mj"}``: paced inside the board; power is the mean over
``fps``: back to back)                              the whole interval, idle time included
``{"op": "busy", "network": ID}``                  ``{"gpu_ms", "host_ms"}``: busy time of each per frame, at the
                                                    present clocks
``{"op": "energy"}``                               ``{"time_s", "rails_mj"}`` since the board was started
``{"op": "state"}``                                clocks (requested, effective), governors, temperatures, mean power,
                                                    number of allowed reboots
``{"op": "fault", "kind": ..., ...}``              ``{}``; see :meth:`~jetdvfs.profiles.twin.faults.Faults.script`
=================================================  ===============================================================

Frames of one process run one at a time, and frames of several share the GPU by time slices; latency includes the wait for
other processes, ``waited_ms``.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...kernels.network import Network
from ..errors import TwinError

_MESSAGE_BYTES = 64 << 20
_CHUNK = 1 << 16


def application_port(mount: Path) -> Path:
    """Default socket: next to the mount point."""
    return mount.with_name(f"{mount.name}.bench")


class MessageStream:
    """NUL-terminated JSON over a connected socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()

    def closed(self) -> bool:
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def send(self, message: Mapping[str, Any]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\0")

    def receive(self) -> Any:
        """Next message; None if the peer has gone, or sent invalid JSON or too much."""
        searched = 0
        while (end := self._buffer.find(b"\0", searched)) < 0:
            searched = len(self._buffer)
            chunk = self._socket.recv(_CHUNK)
            if not chunk or searched > _MESSAGE_BYTES:
                return None
            self._buffer += chunk
        data = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            return json.loads(data)
        except ValueError:
            return None


class Application:
    """Client of an application port. Raises TwinError for no answer, or a refusal."""

    def __init__(self, port: str | os.PathLike[str]) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.connect(os.fspath(port))
        except OSError as error:
            self._socket.close()
            raise TwinError(f"application port {os.fspath(port)}: {error.strerror}") from error
        self._messages = MessageStream(self._socket)

    def request(self, op: str, **members: Any) -> dict[str, Any]:
        self._messages.send({"op": op, **members})
        answer = self._messages.receive()
        if not isinstance(answer, dict):
            raise TwinError(f"{op}: the simulated board has gone")
        if "error" in answer:
            raise TwinError(f"{op}: {answer['error']}")
        return answer

    def load(self, network: Network) -> str:
        return str(self.request("load", network=network.to_json(host_calls=True))["network"])

    def frame(self, network: str) -> dict[str, Any]:
        return self.request("frame", network=network)

    def stream(
        self, network: str, *, fps: float | None = None, seconds: float | None = None, frames: int | None = None
    ) -> dict[str, Any]:
        members = {"fps": fps, "seconds": seconds, "frames": frames}
        return self.request("run", network=network, **{name: value for name, value in members.items() if value is not None})

    def busy(self, network: str) -> dict[str, float]:
        """Busy time of the GPU (``gpu_ms``) and the host (``host_ms``) per frame."""
        return self.request("busy", network=network)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
