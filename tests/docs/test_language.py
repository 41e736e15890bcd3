# SPDX-License-Identifier: Apache-2.0
"""The count of words, tics and sentence lengths, on texts written here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jetdvfs.tests.support.language import Text, counts, measure, of_code, risen
from jetdvfs.tests.support.paths import ROOT

MODULE = '''\
"""What a module has."""
# Nobody reads this.
parser.add_argument("--fps", help=f"so many {unit}")
log.warning("a clock that somebody set")
raise ValueError("model: what is it?")
class Box:
    """A box.

    Attributes:
        size: what it is.
    """
'''


def test_text_of_a_module_is_found_by_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    found = sorted(of_code(path))
    assert [text for text in found if text.kind != "docstrings"] == [
        Text("comments", "Nobody reads this."),
        Text("help", "so many N"),
        Text("messages", "a clock that somebody set"),
        Text("messages", "model: what is it?"),
    ]
    assert [text.text.split("\n")[0] for text in found if text.kind == "docstrings"] == ["A box.", "What a module has."]


def test_tics_and_sentences_are_counted_outside_of_code() -> None:
    figures = measure(["What it does. `nobody` says what is said.", "- One item here\n- Two items there"], openings=True)
    assert (figures.tics["what"], figures.tics["nobody"], figures.tics["said"], figures.tics["openings"]) == (2, 0, 1, 1)
    assert figures.sentences == [3, 5, 3, 3]


def test_a_count_may_only_fall() -> None:
    limits = counts({"docstrings": measure(["What is this?"]), "README": measure(["Short."])})
    assert risen(counts({"docstrings": measure(["A thing."])}), limits) == []
    assert risen(counts({"README": measure(["word " * 700])}), limits) == []
    worse = risen(counts({"docstrings": measure(["What is what?"]), "README": measure(["word " * 701])}), limits)
    assert worse == ["docstrings, what: 2, at most 1", "README, words: 701, at most 700"]


@pytest.mark.parametrize(
    ("subject", "code"),
    [
        ("cost: model host contention per byte", 0),
        ("Merge branch 'main'", 0),
        ("Model host contention", 1),
        ("cost: " + "x" * 80, 1),
        ("cost: model host contention.", 1),
    ],
)
def test_the_commit_hook_accepts_an_area_and_one_short_change(tmp_path: Path, subject: str, code: int) -> None:
    message = tmp_path / "message"
    message.write_text(f"{subject}\n\nBody.\n")
    hook = ROOT / "tests" / "support" / "hooks" / "commit-msg"
    assert subprocess.run([hook, message], capture_output=True).returncode == code
