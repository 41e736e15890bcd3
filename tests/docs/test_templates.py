# SPDX-License-Identifier: Apache-2.0
"""Forms of the issue tracker: complete, and with commands that exist."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from jetdvfs.tests.support.paths import ROOT
from jetdvfs.tests.support.verbs import run

FOLDER = ROOT / ".github" / "ISSUE_TEMPLATE"
FORMS = ("bug", "board", "model")
if not FOLDER.exists():
    pytest.skip("needs the source tree, not an installation", allow_module_level=True)


def form(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((FOLDER / f"{name}.yml").read_text(encoding="utf-8")))


def test_there_is_a_form_for_each_kind_of_issue() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {*FORMS, "config"}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_has_a_name_and_fields_with_labels_of_which_some_are_required(name: str) -> None:
    read = form(name)
    assert {"name", "description", "title", "labels", "body"} == read.keys()
    fields = [field for field in read["body"] if field["type"] != "markdown"]
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


@pytest.mark.parametrize("name", FORMS)
def test_commands_of_a_form_are_there(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"`(?:sudo )?jetdvfs ([^`]+)`", (FOLDER / f"{name}.yml").read_text(encoding="utf-8"))
    assert commands
    for verb, *words in map(str.split, commands):
        code, shown, _ = run(capsys, verb, "--help")
        assert code == 0 and all(word in shown for word in words if word.startswith("--"))


def test_a_bug_comes_with_a_bug_report() -> None:
    fields = {field["id"]: field for field in form("bug")["body"] if "id" in field}
    assert "jetdvfs doctor --bug-report" in fields["report"]["attributes"]["description"]
    assert fields["report"]["validations"]["required"]
