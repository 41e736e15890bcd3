# SPDX-License-Identifier: Apache-2.0
"""Parts of the pages that come from the code, and code of the pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jetdvfs.docs import diagrams
from jetdvfs.tests.support.paths import DOCS, REFERENCE
from jetdvfs.tests.support.verbs import run


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_configuration_page_lists_every_member(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "config", "init", "--dry-run")[1] in blocks("configuration.md", "yaml")


@pytest.mark.parametrize("name", ["data", "layers", "lease"])
def test_a_diagram_is_drawn_by_its_program(name: str) -> None:
    assert (DOCS / f"{name}.svg").read_text(encoding="utf-8") == getattr(diagrams, name)(), "run docs/diagrams.py"


def test_the_notebook_of_the_python_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib").use("agg")
    (tmp_path / "model.pt").symlink_to(REFERENCE / "squeezenet1_0.pt")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks("python.md", "python")[1:]:
        exec(block, names)
    assert names["corrected"] is not names["surface"]
