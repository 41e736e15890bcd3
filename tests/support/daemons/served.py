# SPDX-License-Identifier: Apache-2.0
"""The daemon's varlink server in this process, on a thread of its own, around a service made for the test."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path
from typing import Generic, TypeVar

from jetdvfs.daemon.wire.serving.server import Server, ServerLimits
from jetdvfs.daemon.wire.serving.session import Service

S = TypeVar("S", bound=Service)


class Served(Generic[S]):
    """A service that answers on a socket until it is stopped."""

    def __init__(self, path: Path, service: S, limits: ServerLimits | None = None) -> None:
        self.path, self.service = path, service
        self._ready = threading.Event()
        self._limits = limits
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self._thread.start()
        self._ready.wait()

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.path))
            listener.listen()
            server = Server("1.2.3")
            server.listen(listener, self.service, self._limits)
            self._ready.set()
            await self._stop.wait()
            await server.close()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def stand_still(self, seconds: float) -> None:
        """Have the server do nothing for a while; what happens meanwhile it sees at once."""
        begun = threading.Event()

        def sleep() -> None:
            begun.set()
            time.sleep(seconds)

        self._loop.call_soon_threadsafe(sleep)
        begun.wait()

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(5)
        sock.connect(str(self.path))
        return sock
