# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several folders of tests share."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

import jetdvfs
from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.tests.support.daemons.board_daemon import Board, served_board
from jetdvfs.tests.support.profiles.small_bundle import make_bundle


def pytest_configure() -> None:
    """End at once if these tests would try the code of another tree."""
    found, here = Path(jetdvfs.__path__[0]), Path(__file__).parent
    if not (found / "tests").samefile(here):
        raise pytest.UsageError(f"tests of {here.parent} would run the code of {found}: install this tree, or set PYTHONPATH")


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of stumps: enough to predict with, no more."""
    folder = tmp_path_factory.mktemp("bundles") / "stumps"
    make_bundle(folder, compact=True)
    return folder


@pytest.fixture(scope="module")
def board() -> Iterator[Board]:
    """A simulated board that this process serves through FUSE; skipped where there is no FUSE."""
    if fuse.missing():
        pytest.skip(f"the simulated board needs FUSE: {fuse.missing()}")
    # Pytest's own folders may be on a path that is too long for a socket's name.
    folder = Path(tempfile.mkdtemp(prefix="board-"))
    with served_board(folder / "root", "fuse") as served:
        yield served
    shutil.rmtree(folder)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Where several processes run tests (pytest-xdist), one marked ``alone`` runs while none of the others does."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    folder = Path(item.config.getoption("basetemp")).parent
    with (folder / "door").open("w") as door, (folder / "room").open("w") as room:
        # Who waits to be alone keeps the door shut, so that the room becomes empty.
        fcntl.flock(door, fcntl.LOCK_EX)
        alone = item.get_closest_marker("alone") is not None
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        if not alone:
            fcntl.flock(door, fcntl.LOCK_UN)
        try:
            return (yield)
        finally:
            # Not by closing them: a child that a test forked may have them open for longer.
            for file in (room, door):
                fcntl.flock(file, fcntl.LOCK_UN)
