# SPDX-License-Identifier: Apache-2.0
"""Texts of others, as they are shown."""

from __future__ import annotations

import importlib
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetdvfs.kernels.text import counted, needing, printable


@pytest.mark.parametrize("text", ["resnet18", "caméra 1", "カメラ", "a b", ""])
def test_what_is_made_of_letters_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    "letter", ["\x1b", "\x07", "\n", "\r", "\t", "\x7f", "\x9b", "\u202e", "\u2066", "\u200b", "\ufeff", "\ud800"]
)
def test_what_is_no_letter_becomes_a_question_mark(letter: str) -> None:
    assert printable(f"a{letter}b") == "a?b"


def test_a_count_takes_the_plural_and_groups_digits() -> None:
    assert [counted(1, "launch"), counted(1204, "launch"), counted(0, "frame")] == ["1 launch", "1,204 launches", "0 frames"]


@given(st.text())
def test_nothing_is_left_that_steers_a_terminal_or_hides(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text) and len(shown.splitlines()) <= 1
    assert not [letter for letter in shown if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def test_a_missing_package_is_named_with_how_to_install_it() -> None:
    line = r"pictures: needs the Python package no_such_one \(sudo apt-get install python3-matplotlib, or from a clone: .*plot"
    with pytest.raises(LookupError, match=line), needing("pictures", "plot", LookupError):
        importlib.import_module("no_such_one")
    with pytest.raises(LookupError, match=r"trees: needs a package \(broken\)"), needing("trees", "train", LookupError):
        raise ImportError("broken")
