# SPDX-License-Identifier: Apache-2.0
"""A file system with one file that shrinks while it is read: ``python shrinking_file.py MOUNT SOURCE``.

It is as long as SOURCE when it is opened, and holds nothing any more once its end, where an archive's directory lies, was read.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen, run
from time import monotonic, sleep
from typing import Any


def operations(content: bytes) -> Any:
    import mfusepy

    class ShrinkingFile(mfusepy.Operations):
        left = content

        def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
            if path == "/":
                return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
            return {"st_mode": stat.S_IFREG | 0o644, "st_nlink": 1, "st_size": len(self.left)}

        def open(self, path: str, flags: int) -> int:
            self.left = content
            return 0

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            found = self.left[offset : offset + size]
            if offset + size >= len(content):
                self.left = b""
            return found

    return ShrinkingFile()


@contextmanager
def shrinking(source: Path, mount: Path) -> Iterator[Path]:
    """The path of a file like ``source`` that shrinks while it is read, on the directory ``mount``."""
    mount.mkdir()
    with Popen([sys.executable, __file__, str(mount), str(source)], stderr=DEVNULL) as server:
        try:
            deadline = monotonic() + 10
            while not os.path.ismount(mount):
                assert server.poll() is None and monotonic() < deadline, "the file system was not mounted"
                sleep(0.01)
            yield mount / source.name
        finally:
            run(["fusermount3", "-u", "-z", str(mount)], check=False, capture_output=True)
            server.terminate()


if __name__ == "__main__":
    import mfusepy

    mfusepy.FUSE(
        operations(Path(sys.argv[2]).read_bytes()),
        sys.argv[1],
        foreground=True,
        direct_io=True,
        attr_timeout=0,
        allow_other=os.geteuid() == 0,
    )
