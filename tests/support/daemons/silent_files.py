# SPDX-License-Identifier: Apache-2.0
"""Descriptors that nobody should close or read: any user can make such.

The files are on a file system that does not answer, served through FUSE by a process of its own.

Reading ``read`` never ends, nor does closing a descriptor of ``flush``.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jetdvfs.tests.support.daemons.board_daemon import eventually

NAMES = ("read", "flush")


@contextmanager
def silent_files(mount: Path) -> Iterator[Mapping[str, int]]:
    """A descriptor of each file, by its name. When this ends, whoever waits for the file system gets an error instead."""
    mount.mkdir()
    server = subprocess.Popen([sys.executable, "-m", "jetdvfs.tests.support.daemons.silent_files", str(mount)])
    descriptors = {}
    try:
        assert eventually((mount / "read").exists, 10)
        descriptors = {name: os.open(mount / name, os.O_RDONLY) for name in NAMES}
        yield descriptors
    finally:
        server.kill()
        server.wait()
        # Without an /etc/mtab an ordinary user's fusermount refuses; what stays mounted then answers with errors alone.
        subprocess.run(["fusermount3", "-u", "-z", str(mount)], check=os.geteuid() == 0)
        for descriptor in descriptors.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)


@contextmanager
def lingering_socket() -> Iterator[socket.socket]:
    """A TCP socket whose last holder waits for an hour, should it close it, for data to arrive that its peer never takes."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as sock:
        peer, _ = listener.accept()
        with peer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    sock.send(bytes(1 << 16))
            yield sock


def _operations() -> Any:
    import mfusepy

    class Operations(mfusepy.Operations):
        use_ns = True

        def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
            if path == "/":
                return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
            if path.strip("/") not in NAMES:
                raise mfusepy.FuseOSError(2)
            return {"st_mode": stat.S_IFREG | 0o755, "st_nlink": 1, "st_size": 1 << 20}

        def open(self, path: str, flags: int) -> int:
            return 0

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            if path == "/read":
                threading.Event().wait()
            return bytes(size)

        def flush(self, path: str, fh: int) -> int:
            if path == "/flush":
                threading.Event().wait()
            return 0

    return Operations()


def main(mount: str) -> None:
    import mfusepy

    # What reads models is a user of its own only where root starts it; nobody else may let others in without being asked.
    mfusepy.FUSE(_operations(), mount, foreground=True, allow_other=os.geteuid() == 0, max_idle_threads=10)


if __name__ == "__main__":
    main(sys.argv[1])
