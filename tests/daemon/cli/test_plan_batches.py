# SPDX-License-Identifier: Apache-2.0
"""A batch size and clocks chosen together."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from jetdvfs.tests.support.paths import REFERENCE
from jetdvfs.tests.support.verbs import run

SQUEEZENET = str(REFERENCE / "squeezenet1_0.pt")


def test_batch_and_clocks_are_chosen_together(simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["plan", SQUEEZENET, "--input", "x=1x3x64x64", "--profile", "small-sim", "--batches", "1,4,64"]
    found = json.loads(run(capsys, *asked, "--deadline", "1000", "--json")[1])
    items = {one["batch"]: one["item_mj"] for one in found["batches"]}
    assert list(items) == [1, 4, 64] and found["batch"] == min(items, key=lambda size: items[size])
    assert items[64] < items[1]  # the host's share of an item falls
    one, four, _ = found["batches"]
    assert four["items_per_s"] == pytest.approx(4e3 / four["choice"]["latency_ms"])
    tight = json.loads(run(capsys, *asked, "--deadline", str(four["top"]["latency_ms"] * 1.05), "--json")[1])
    assert "refusal" in tight["batches"][2] and tight["batch"] in (1, 4)
    code, out, _ = run(capsys, *asked, "--deadline", str(four["top"]["latency_ms"] * 1.05))
    assert code == 0 and "not within the deadline" in out and out.count("chosen") == 1
    assert run(capsys, *asked, "--deadline", str(one["top"]["latency_ms"] / 50))[0] == 4
    paced = json.loads(run(capsys, *asked, "--deadline", "1000", "--fps", "2", "--json")[1])
    assert [batch["fps"] for batch in paced["batches"]] == [2, 0.5, 2 / 64]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--batches", "1,2"], "expected --deadline MS"),
        (["--batches", "1,2", "--deadline", "5", "--target", "min-energy"], "no --target"),
        (["--batches", "1,0", "--deadline", "5"], "expected up to 16 batch sizes"),
        (["--deadline", "5"], "expected a --target, or --batches"),
        ([], "expected a --target, or --batches"),
    ],
)
def test_batches_without_a_deadline_are_refused(
    arguments: list[str], told: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = run(capsys, "plan", SQUEEZENET, "--input", "1x3x64x64", "--profile", "small-sim", *arguments)
    assert code == 2 and told in error and error.count("\n") == 1


def test_an_input_without_a_batch_has_none_to_be_changed(
    simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["plan", SQUEEZENET, "--input", "2x3x64x64", "--profile", "small-sim", "--batches", "1,2", "--deadline", "50"]
    code, _, error = run(capsys, *asked)
    assert code == 2 and "has no batch of 1 to be changed" in error
