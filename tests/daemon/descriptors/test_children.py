# SPDX-License-Identifier: Apache-2.0
"""Children are started without standing still until they run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from jetdvfs.daemon.descriptors.children import start_child
from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.tests.support.daemons.silent_files import silent_files


def test_a_child_has_its_descriptors_and_its_environment_and_a_session_of_its_own() -> None:
    async def run() -> bytes:
        ours, theirs = os.pipe()
        program = f"import os; os.write({theirs}, f'{{os.environ[\"WHO\"]}} {{os.getsid(0) == os.getpid()}}'.encode())"
        child = await start_child([sys.executable, "-c", program], [theirs], {"WHO": "child"})
        os.close(theirs)
        child.wait()
        try:
            return os.read(ours, 100)
        finally:
            os.close(ours)

    assert asyncio.run(run()) == b"child True"


def test_what_cannot_be_started_says_so() -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(start_child(["/nothing/there"], [], {}))


def test_a_child_whose_caller_goes_away_meanwhile_is_ended(tmp_path: Path) -> None:
    async def run() -> None:
        caller = asyncio.create_task(start_child([sys.executable, "-c", "import time; time.sleep(60)", str(tmp_path)], [], {}))
        await asyncio.sleep(0)
        caller.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await caller

    asyncio.run(run())
    mine = psutil.Process().children()
    assert not [child for child in mine if str(tmp_path) in child.cmdline()]


@pytest.mark.skipif(bool(fuse.missing()), reason="a file system that does not answer needs FUSE")
def test_nobody_but_its_caller_waits_for_a_child_that_is_slow_to_run(tmp_path: Path) -> None:
    beats: list[float] = []
    over = threading.Event()

    def beat() -> None:
        while not over.wait(0.01):
            beats.append(time.monotonic())

    async def run() -> None:
        with silent_files(tmp_path / "mount"):
            starting = asyncio.create_task(start_child([str(tmp_path / "mount" / "read")], [], {}))
            before = len(beats)
            while len(beats) < before + 20:
                await asyncio.sleep(0.01)
            assert not starting.done()
        with pytest.raises(OSError, match="mount/read"):
            await starting

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        asyncio.run(run())
    finally:
        over.set()
        thread.join()
