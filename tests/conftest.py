# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several folders of tests share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetdvfs.profiles.twin.tree import fuse
from jetdvfs.tests.support.daemons.board_daemon import Board, served_board
from jetdvfs.tests.support.profiles.small_bundle import make_bundle


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of stumps: enough to predict with, no more."""
    folder = tmp_path_factory.mktemp("bundles") / "stumps"
    make_bundle(folder)
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
