# SPDX-License-Identifier: Apache-2.0
"""Board's side of the application port (messages: :mod:`jetdvfs.profiles.adapt.application`)."""

from __future__ import annotations

import contextlib
import socket
import stat
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...kernels.errors import ModelError
from ...kernels.network import Network
from ..adapt.application import MessageStream
from ..errors import TwinError
from .frames import FrameStream
from .simulated_board import SimulatedBoard

_LONGEST_RUN_S = 3600.0
_MOST_FRAMES = 1_000_000


class Caller(NamedTuple):
    """Client process; ``gone`` is True once it has left."""

    pid: int
    gone: Callable[[], bool]


class ApplicationPort:
    """Serves applications, with a thread per connection, until :meth:`close`. Raises TwinError."""

    def __init__(self, board: SimulatedBoard, path: Path) -> None:
        self.path = path
        self._board = board
        self._networks: dict[str, Network] = {}
        self._operations: Mapping[str, Callable[[Mapping[str, Any], Caller], dict[str, Any]]] = {
            "load": lambda request, caller: self._load(request),
            "frame": self._frame,
            "run": self._stream,
            "busy": lambda request, caller: self._busy(request),
            "energy": lambda request, caller: self._energy(),
            "state": lambda request, caller: self._state(),
            "fault": lambda request, caller: self._fault(request),
        }
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
                path.unlink()
            self._socket.bind(str(path))
            self._socket.listen()
        except OSError as error:
            self._socket.close()
            raise TwinError(f"application port {path}: {error.strerror}") from error
        threading.Thread(target=self._accept, name="twin-port", daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="twin-application", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            messages = MessageStream(connection)
            pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            with self._board.processes.alive(pid, self._board.tree):
                while (request := messages.receive()) is not None:
                    messages.send(self._answer(request, Caller(pid, messages.closed)))

    def _answer(self, request: Any, caller: Caller) -> dict[str, Any]:
        try:
            if not isinstance(request, dict) or request.get("op") not in self._operations:
                raise TwinError(f"expected an object with op one of {', '.join(self._operations)}")
            return self._operations[request["op"]](request, caller)
        except (TwinError, ModelError) as error:
            return {"error": str(error)}
        except KeyError as error:
            return {"error": f"{request['op']}: {error} is missing"}
        except (TypeError, ValueError, AttributeError) as error:
            return {"error": f"{request['op']}: {error}"}

    def _load(self, request: Mapping[str, Any]) -> dict[str, Any]:
        network = Network.from_json(request["network"])
        if not network.launches:
            raise TwinError(f"network {network.name!r} launches nothing")
        self._networks[network.digest] = network
        return {"network": network.digest, "name": network.name}

    def _network(self, request: Mapping[str, Any]) -> Network:
        try:
            return self._networks[request["network"]]
        except KeyError:
            raise TwinError(f"network {request.get('network')!r} is not loaded; loaded: {', '.join(self._networks)}") from None

    def _frame(self, request: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        stream = self._finished(self._board.infer(self._network(request), abandoned=caller.gone, pid=caller.pid))
        return {
            "latency_ms": 1e3 * stream.latencies_s[0],
            "waited_ms": 1e3 * stream.waited_s[0],
            "started_s": stream.started_s[0],
            "rails_mj": self._drawn_mj(stream),
        }

    def _stream(self, request: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        fps, frames = request.get("fps"), request.get("frames")
        seconds = float(request.get("seconds", 0.0))
        if (frames is None) == (seconds <= 0.0):
            raise TwinError("run: expected either a number of frames or a number of seconds")
        if seconds > _LONGEST_RUN_S or (frames is not None and not 0 < int(frames) <= _MOST_FRAMES):
            raise TwinError(f"run: expected at most {_LONGEST_RUN_S:.0f} seconds or 1 to {_MOST_FRAMES} frames")
        if fps is not None and not 0.0 < float(fps) <= 1e4:
            raise TwinError(f"run: fps {fps}; expected more than 0 and at most 10000")
        stream = self._finished(
            self._board.infer(
                self._network(request),
                fps=None if fps is None else float(fps),
                frames=None if frames is None else int(frames),
                seconds=seconds,
                abandoned=caller.gone,
                pid=caller.pid,
            )
        )
        elapsed = stream.closed_at - stream.opened_at
        drawn = self._drawn_mj(stream)
        return {
            "latencies_ms": [1e3 * latency for latency in stream.latencies_s],
            "waited_ms": [1e3 * waited for waited in stream.waited_s],
            "started_s": stream.started_s,
            "opened_s": stream.opened_at,
            "elapsed_s": elapsed,
            "rails_mj": drawn,
            "rails_mw": {rail: energy / elapsed for rail, energy in drawn.items()},
        }

    @staticmethod
    def _finished(stream: FrameStream) -> FrameStream:
        if not stream.done:
            raise TwinError("given up: the application has gone")
        return stream

    def _drawn_mj(self, stream: FrameStream) -> dict[str, float]:
        pairs = zip(self._board.rails.rails, stream.opening_j, stream.closing_j, strict=True)
        return {rail: 1e3 * (after - before) for rail, before, after in pairs}

    def _busy(self, request: Mapping[str, Any]) -> dict[str, Any]:
        gpu_ms, host_ms = self._board.busy_ms(self._network(request))
        return {"gpu_ms": gpu_ms, "host_ms": host_ms}

    def _energy(self) -> dict[str, Any]:
        board = self._board
        with board.present():
            joules = dict(zip(board.rails.rails, board.rails.joules, strict=True))
            return {"time_s": board.now, "rails_mj": {rail: 1e3 * energy for rail, energy in joules.items()}}

    def _state(self) -> dict[str, Any]:
        board = self._board
        with board.present():
            return {
                "time_s": board.now,
                "requested": board.requested._asdict(),
                "effective": board.configuration._asdict(),
                "governors": {
                    **{policy.name: policy.governor for policy in board.policies},
                    "gpu": board.gpu.governor,
                    "emc": "locked" if board.emc.locked else "unlocked",
                },
                "temperatures_c": board.thermal.temperatures_c(),
                "rails_mw": {rail: 1e3 * watts for rail, watts in zip(board.rails.rails, board.watts, strict=True)},
                "reboots": board.tools.reboots,
            }

    def _fault(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._board.present():
            path = request.get("path")
            resolved = {"path": self._board.tree.resolve(str(path))} if path is not None else {}
            self._board.faults.script({**request, **resolved})
        return {}
