# SPDX-License-Identifier: Apache-2.0
"""A tree as a plain folder: what is written there reaches the board, what the board says is shown, and neither is lost."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from jetdvfs.profiles.twin.tree.folder import FolderMirror
from jetdvfs.tests.support.daemons.board_daemon import eventually

RATE = "/clk/rate"


class Board:
    """A tree of one file, the rate of a clock, that keeps what was written to it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / RATE.lstrip("/")
        self.rate, self.written = b"204", list[bytes]()
        self.rises = False

    def contents(self, shown: Collection[str]) -> Mapping[str, bytes | None]:
        if self.rises:  # the clock moves, and somebody asks for the rate that is still shown
            self.rises, self.rate = False, b"665"
            self.file.write_text("204\n")
        return {RATE: self.rate + b"\n"}

    def write(self, path: str, value: bytes) -> None:
        self.written.append(value)
        self.rate = value

    def links(self) -> Mapping[str, object]:
        return {}

    def link_text(self, path: str, link: object) -> str:
        raise NotImplementedError

    def permissions(self, path: str) -> int:
        return 0o600

    def directory_mode(self, path: str) -> int:
        return 0o755


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    board = Board(tmp_path / "board")
    mirror = FolderMirror(board, tmp_path / "board")  # type: ignore[arg-type]
    yield board
    mirror.close()


def test_the_value_that_is_shown_is_written_like_any_other(board: Board) -> None:
    for count in (1, 2):
        with board.file.open("r+") as file:
            file.write("204\n")
        assert eventually(lambda count=count: board.written == [b"204"] * count)
        time.sleep(0.02)  # until files are dated anew


def test_what_the_board_says_is_shown_and_counts_as_no_write(board: Board) -> None:
    for rate in (b"665", b"2133", b"204"):
        board.rate = rate
        assert eventually(lambda rate=rate: board.file.read_bytes() == rate + b"\n")
    assert board.written == []


def test_a_write_of_the_value_shown_outlives_the_boards_own_change(board: Board) -> None:
    board.rises = True
    assert eventually(lambda: board.written == [b"204"])
    assert eventually(lambda: board.file.read_bytes() == b"204\n")
