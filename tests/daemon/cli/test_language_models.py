# SPDX-License-Identifier: Apache-2.0
"""Plans of a language model's prompts and tokens."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from jetdvfs.tests.support.models import handmade_gguf
from jetdvfs.tests.support.models.handmade_gguf import gguf
from jetdvfs.tests.support.verbs import run


@pytest.fixture
def language_model(tmp_path: Path) -> str:
    path = tmp_path / "small.gguf"
    path.write_bytes(gguf(*handmade_gguf.model()))
    return str(path)


def test_prompts_and_tokens_of_a_language_model_have_plans_of_their_own(
    language_model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ["plan", language_model, "--prefill", "4096", "--decode", "64", "--profile", "small-sim"]
    targets = ["--target", "ttft_ms=100000", "--target", "min-edp"]
    code, out, _ = run(capsys, *both, *targets)
    assert code == 0 and "(prefill of 4096)" in out and "(decode of 64)" in out
    assert re.search(r"^ttft_ms \S+, mj_per_prompt ", out, re.MULTILINE) and re.search(
        r"^tokens_per_s \S+, mj_per", out, re.MULTILINE
    )
    plans = json.loads(run(capsys, *both, *targets, "--json")[1])
    assert list(plans) == ["prefill", "decode"]
    assert [one["target"] for one in plans.values()] == ["ttft_ms=100000", "min-edp"]
    assert plans["decode"]["tokens_per_s"] == pytest.approx(1e3 / plans["decode"]["choice"]["latency_ms"])
    assert plans["prefill"]["ttft_ms"] == plans["prefill"]["choice"]["latency_ms"]
    shared = json.loads(run(capsys, *both, "--target", "min-energy", "--json")[1])
    assert [one["target"] for one in shared.values()] == ["min-energy"] * 2
    alone = json.loads(
        run(capsys, "plan", language_model, "--decode", "64", *both[-2:], "--target", "tokens_per_s=1", "--json")[1]
    )
    assert alone["phase"] == "decode" and alone["choice"]["latency_ms"] <= 1e3


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--prefill", "8", "--decode", "8", "--target", "ttft_ms=500"], "expected one for --decode, got none"),
        (["--decode", "8", "--target", "ttft_ms=500"], "ttft_ms=500 is for a language model reading a prompt"),
        (["--decode", "8", "--target", "min-edp", "--target", "min-energy"], "--target: one of each network"),
        (
            ["--prefill", "8", "--decode", "8", "--target", "min-edp", "--target", "min-energy"],
            "expected one for --prefill, got min-edp and min-energy",
        ),
        (["--prefill", "8", "--decode", "8", "--target", "min-edp", "--plot", "x.png"], "--plot draws one plan"),
    ],
)
def test_targets_that_no_phase_has_are_refused(
    arguments: list[str], told: str, language_model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = run(capsys, "plan", language_model, "--profile", "small-sim", *arguments)
    assert code == 2 and told in error and error.count("\n") == 1


def test_a_network_without_tokens_has_no_target_in_tokens(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = run(capsys, "plan", model, "--profile", "small-sim", "--target", "tokens_per_s=20")
    assert code == 2 and "tokens_per_s=20 is for a language model making tokens (--decode), and this network is none" in error
