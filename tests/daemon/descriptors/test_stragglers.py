# SPDX-License-Identifier: Apache-2.0
"""Ending children that cannot be ended."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jetdvfs.daemon.descriptors.children import ChildReaper
from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.tests.support.daemons.silent_files import silent_files

needs_fuse = pytest.mark.skipif(bool(fuse.missing()), reason="a file system that does not answer needs FUSE")
USER = 1000


def child(descriptor: int | None = None) -> subprocess.Popen[bytes]:
    """A process with a descriptor, once it has it."""
    keep = [] if descriptor is None else [descriptor]
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", "print(flush=True); import time; time.sleep(60)"], stdout=subprocess.PIPE, pass_fds=keep
    )
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
    return process


def test_a_child_that_ends_is_gone_and_counts_for_nobody() -> None:
    async def job() -> None:
        stragglers, process = ChildReaper(), child()
        await stragglers.end(process, USER)
        assert process.returncode is not None
        await stragglers.end(process, USER)  # nothing happens to who has its number by now
        assert stragglers.of(USER) == 0

    asyncio.run(job())


@pytest.mark.alone
@needs_fuse
def test_a_child_that_hangs_as_it_ends_counts_for_its_user_until_it_is_gone(tmp_path: Path) -> None:
    async def job() -> None:
        stragglers = ChildReaper(patience_s=0.2)
        with silent_files(tmp_path / "silent") as descriptors:
            processes = [child(descriptors["flush"]) for _ in range(2)]
            for number, process in enumerate(processes):
                assert not stragglers.too_many(USER)
                started = time.monotonic()
                await stragglers.end(process, USER)
                assert time.monotonic() - started < 1
                assert stragglers.of(USER) == number + 1
            assert stragglers.too_many(USER) and not stragglers.too_many(USER + 1)
        deadline = time.monotonic() + 10
        while stragglers.of(USER) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        assert stragglers.of(USER) == 0
        assert all(process.returncode is not None for process in processes)

    asyncio.run(job())
