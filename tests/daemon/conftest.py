# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests with the real daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetdvfs.tests.support.daemons.board_daemon import Board


@pytest.fixture
def found(board: Board) -> dict[str, str]:
    """How the board stands before a test; a test must leave it so."""
    board.twin.faults.clear()
    return board.settings()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration that says nothing yet."""
    path = tmp_path / "jetdvfsd.yaml"
    path.write_text("")
    return path
