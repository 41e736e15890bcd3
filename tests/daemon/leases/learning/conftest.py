# SPDX-License-Identifier: Apache-2.0
"""The daemon with a profile that is shipped; a test must leave the board as it was found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jetdvfs.tests.support.daemons.board_daemon import Board, Daemon


@pytest.fixture
def daemon(board: Board, found: dict[str, str], tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(board, tmp_path, "--profile", "agx-xavier-sim") as daemon:
        yield daemon
    assert board.settings() == found
