# SPDX-License-Identifier: Apache-2.0
"""Which view of a network each verb takes, and that every answer says which one it is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import jetdvfs
from jetdvfs.daemon.cli import main
from jetdvfs.daemon.worker.workers import Workers
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.profiles.lab.cli import main as lab
from jetdvfs.tests.support.daemons.attached import attached
from jetdvfs.tests.support.models.handmade import archive, forward

INPUT = ("--input", "1x64")
PROFILE = ("--profile", "agx-xavier-sim")


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Two launches that nobody needs, and two that count."""
    path = tmp_path / "twice.pt"
    body = "a = torch.sigmoid(x)", "b = torch.tanh(x)", "c = torch.sigmoid(x)", "return torch.mul(a, c)"
    path.write_bytes(archive(forward(*body)))
    return str(path)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = (lab if arguments[0] == "paper" else main)(arguments)
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, text = said(capsys, *arguments, "--json")
    assert code == 0, text
    return json.loads(text)


def test_decompose_lists_what_is_written_and_what_runs_when_asked(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    written, left = (answered(capsys, "decompose", model, *INPUT, *more) for more in ((), ("--optimized",)))
    assert (written["kinds"], written["optimized"]) == ({"sigmoid": 2, "tanh": 1, "mul": 1}, False)
    assert (left["kinds"], left["optimized"]) == ({"sigmoid": 1, "mul": 1}, True)
    assert "(1x64:float32): 4 launches" in said(capsys, "decompose", model, *INPUT)[1]
    assert "(1x64:float32), optimized: 2 launches" in said(capsys, "decompose", model, *INPUT, "--optimized")[1]
    assert not answered(capsys, "decompose", model, *INPUT, "--no-optimized")["optimized"]


def test_predictions_take_what_runs_unless_told_otherwise(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    target = ("--target", "min-energy")
    for verb, more in (("predict", ()), ("plan", target), ("predict", ("--explain",))):
        left, written = (answered(capsys, verb, model, *INPUT, *PROFILE, *more, *view) for view in ((), ("--no-optimized",)))
        assert (left["optimized"], written["optimized"]) == (True, False), verb
        assert "twice (optimized)" in said(capsys, verb, model, *INPUT, *PROFILE, *more)[1], verb
        assert "(optimized)" not in said(capsys, verb, model, *INPUT, *PROFILE, *more, "--no-optimized")[1], verb
    both = said(capsys, "predict", model, *INPUT, *PROFILE, "--fused")[1]
    assert "twice (optimized, fused)" in both


def test_characterize_takes_what_runs(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    left, written = (
        answered(capsys, "paper", "characterize", model, *INPUT, *PROFILE, *view)["networks"][0]
        for view in ((), ("--no-optimized",))
    )
    assert (left["launches"], written["launches"]) == (2, 4)


def test_a_list_that_was_saved_keeps_its_view(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for view, optimized in (("--optimized", True), ("--no-optimized", False)):
        path = tmp_path / f"saved{optimized}.json"
        path.write_text(json.dumps(answered(capsys, "decompose", model, *INPUT, view)))
        assert answered(capsys, "predict", str(path), *PROFILE)["optimized"] is optimized
        assert answered(capsys, "decompose", str(path), view)["optimized"] is optimized
        code, text = said(capsys, "decompose", str(path), "--no-optimized" if optimized else "--optimized")
        assert code == 2 and "the other view is taken of the model's file alone" in text and text.count("\n") == 1


def test_the_daemon_takes_what_runs(model: str) -> None:
    async def load() -> dict[str, int]:
        with Path(model).open("rb") as file, attached(file.fileno()) as sent:
            info, _ = await Workers().decompose(sent, [TensorSpec((1, 64))], "twice")
            return dict(info.kinds)

    assert asyncio.run(load()) == {"sigmoid": 1, "mul": 1}


def test_in_python_both_views_are_there_and_say_which_one_they_are(model: str) -> None:
    assert "optimized" not in repr(jetdvfs.decompose(model, "1x64"))
    left = jetdvfs.decompose(model, "1x64", optimized=True)
    assert left.kinds == {"sigmoid": 1, "mul": 1} and ", optimized): 2 launches" in repr(left)
