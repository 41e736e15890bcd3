# SPDX-License-Identifier: Apache-2.0
"""Lists of launches that end before their network does, and what every verb says of them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jetdvfs.tests.support.profiles.only import NETWORK
from jetdvfs.tests.support.verbs import run, run_json

PART = {"operator": "torchvision::nms", "place": "line 7", "reason": "boxes decide"}
SENTENCE = "decomposed up to torchvision::nms at line 7: boxes decide; the rest is not counted"
FOR_WHOLE_NETWORKS = pytest.mark.parametrize(
    "verb",
    [["predict"], ["plan", "--target", "min-energy"], ["predict", "--explain"], ["paper", "characterize"]],
    ids=lambda verb: verb[-1],
)


@pytest.fixture
def part(tmp_path: Path, simulated: SimpleNamespace) -> str:
    """A list of launches that ends before its network does."""
    path = tmp_path / "detector.json"
    path.write_text(json.dumps({**NETWORK.to_json(), "boundary": PART}))
    return str(path)


def test_decompose_lists_a_part_of_a_network_and_says_where_it_ends(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "decompose", part)
    assert (code, err) == (0, f"note: handmade: {SENTENCE}\n")
    assert out.startswith("handmade (up to torchvision::nms) (1x3x224x224:float32): 4 launches")
    assert json.loads(run(capsys, "decompose", part, "--json")[1])["boundary"] == PART


@FOR_WHOLE_NETWORKS
def test_a_part_of_a_network_is_not_taken_for_it(verb: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    for accepted in ((), ("--accept-boundary", "aten::nms")):
        code, out, err = run(capsys, *verb, part, "--profile", "small-sim", *accepted)
        assert (code, out, err.count("\n")) == (3, "", 1)
        assert f" {verb[0]}: handmade: the list of launches ends at torchvision::nms" in err
        assert "boxes decide (line 7)" in err and "4 launches of 2" in err and "--accept-boundary torchvision::nms" in err
        assert ("not at aten::nms" in err) == bool(accepted)


@FOR_WHOLE_NETWORKS
def test_a_part_that_is_accepted_by_name_says_in_every_answer_what_it_is(
    verb: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted = (*verb, part, "--profile", "small-sim", "--accept-boundary", "aten::item", "--accept-boundary", PART["operator"])
    code, out, err = run(capsys, *accepted)
    assert (code, err) == (0, "")
    assert "handmade (up to torchvision::nms)" in out and SENTENCE in out
    data = run_json(capsys, *accepted)
    assert (data["networks"][0] if verb[0] == "paper" else data)["boundary"] == PART
    if verb[0] == "plan":
        assert data["why"].endswith(f"All of this is of a part of the network: {SENTENCE}.")


def test_a_saved_surface_says_that_it_is_of_a_part(part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--profile", "small-sim", "--accept-boundary", "torchvision::nms", "--save", str(tmp_path / "part.npz"))
    assert run(capsys, "predict", part, *asked)[0] == 0
    with np.load(tmp_path / "part.npz") as data:
        assert json.loads(str(data["about"]))["boundary"] == PART


def test_a_picture_of_a_part_says_so_in_its_title(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = pytest.importorskip("matplotlib.figure", reason="pictures are matplotlib's; it is not installed")
    said: list[str] = []
    save = figures.Figure.savefig

    def keep(figure: Any, *arguments: Any, **options: Any) -> None:
        said.append(" ".join(text.get_text() for text in figure.findobj(figures.Text)))
        save(figure, *arguments, **options)

    monkeypatch.setattr(figures.Figure, "savefig", keep)
    asked = ("--profile", "small-sim", "--accept-boundary", "torchvision::nms", "--plot", str(tmp_path / "part.png"))
    for verb in (["predict"], ["plan", "--target", "min-energy"], ["paper", "characterize"]):
        assert run(capsys, *verb, part, *asked)[0] == 0
    assert run(capsys, "decompose", part, "--plot", str(tmp_path / "part.png"))[0] == 0
    assert len(said) == 4 and all("handmade (up to torchvision::nms)" in words for words in said)


@pytest.mark.parametrize(
    "boundary", [5, [], {"operator": "aten::nms"}, {**PART, "operator": ""}, {**PART, "place": "x" * 1025}]
)
def test_a_boundary_of_another_form_is_refused(boundary: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd.json").write_text(json.dumps({**NETWORK.to_json(), "boundary": boundary}))
    code, _, err = run(capsys, "decompose", str(tmp_path / "odd.json"))
    assert (code, err.count("\n")) == (3, 1)
