# SPDX-License-Identifier: Apache-2.0
"""What the documents name is there: linked files and headings, paths, commands with their options, tests, and code."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.daemon.cli.verbs import VERBS
from jetdvfs.profiles.lab.cli import main as lab
from jetdvfs.profiles.lab.cli.actions import LAB
from jetdvfs.tests.support.imports import modules
from jetdvfs.tests.support.paths import DOCS, ROOT
from jetdvfs.tests.support.references import followed, references

DOCUMENTS = sorted(
    [*(ROOT / name for name in ("README.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")), *DOCS.rglob("*.md")]
)
#: What has been renamed is named there by its old name, too.
CHANGELOG = ROOT / "CHANGELOG.md"
FENCE = re.compile(r"^```.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)
FOLDERS = ("kernels", "profiles", "daemon", "tests", "systemd", "docs")
PATH = re.compile(rf"^(?:{'|'.join(FOLDERS)})/[\w./*-]*$")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(document: Path) -> str:
    return FENCE.sub("", document.read_text(encoding="utf-8"))


def code(document: Path) -> Iterator[str]:
    """What stands in a document as code: spans, and lines of blocks."""
    text = document.read_text(encoding="utf-8")
    for block in FENCE.findall(text):
        yield from block.replace("\\\n", " ").splitlines()
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(document)))


def anchors(document: Path) -> set[str]:
    """The headings, as they are linked to."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", [*DOCUMENTS, CHANGELOG], ids=named)
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(document)):
        target, _, anchor = link.partition("#")
        if target.startswith(("https:", "http:")):
            continue
        path = document.parent / target if target else document
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_paths_of_the_tree_are_there(document: Path) -> None:
    words = {word.strip(",;:()'\"") for line in code(document) for word in line.split()}
    paths = {word.partition("::")[0] for word in words if PATH.match(word.partition("::")[0])}
    assert not {path for path in paths if "NAME" not in path and not any(ROOT.glob(path.rstrip("/")))}


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_tests_that_are_named_are_there(document: Path) -> None:
    missing = []
    for path, name in re.findall(r"(tests/[\w/]+\.py)::(\w+)", " ".join(code(document))):
        missing += [] if f"def {name}(" in (ROOT / path).read_text(encoding="utf-8") else [f"{path}::{name}"]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_targets_of_make_are_there(document: Path) -> None:
    rules = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    asked = {found for line in code(document) for found in re.findall(r"^(?:\$ |sudo )*make ([a-z][\w-]*)", line)}
    assert asked <= rules


PROGRAMS = {"jetdvfs": (main, VERBS), "jetdvfs-lab": (lab, LAB.verbs)}


@cache
def help_of(program: str, *words: str) -> str:
    """The help of a verb of a program; empty if there is no such verb or part of one."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        PROGRAMS[program][0]([*words, "--help"])
    return out.getvalue()


@pytest.mark.parametrize("document", [*DOCUMENTS, CHANGELOG], ids=named)
def test_commands_and_their_options_are_there(document: Path) -> None:
    wrong = []
    for line in code(document):
        for program, command in re.findall(r"^(?:\$ |sudo )*(jetdvfs|jetdvfs-lab) ((?:(?! -- |#).)*)", line):
            words = command.split()
            if not words or not re.fullmatch("[a-z-]+", words[0]) or words[0].startswith("-"):
                continue
            shown = help_of(program, words[0])
            part = re.escape(words[1]) if len(words) > 1 else ""
            if part and re.search(rf"^ +{part}\b|[{{,]{part}[,}}]", shown, re.MULTILINE):
                shown += help_of(program, words[0], words[1])
            options = {word.partition("=")[0] for word in words if word.startswith("--")} - {"--help"}
            if words[0] not in PROGRAMS[program][1] or not all(re.search(rf"{option}\b", shown) for option in options):
                wrong.append(f"{program} {command}")
    assert not wrong


def test_what_docstrings_refer_to_is_there() -> None:
    lost = []
    for name, path in modules().items():
        for reference in references(path.read_text(encoding="utf-8")):
            if followed(reference, name) is None:
                lost.append(f"{name}: {reference}")
    assert not lost
