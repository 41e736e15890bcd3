# SPDX-License-Identifier: Apache-2.0
"""plan as a person or a script runs it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jetdvfs.tests.support.verbs import run, run_json


def test_plan_prints_the_choice_the_reasons_and_the_trade_off(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(
        capsys, "plan", model, "--profile", "small-sim", "--target", "latency_ms=3", "--fps", "20", "--confidence", "0.9"
    )
    assert code == 0 and "simulated" in out
    chosen = run_json(
        capsys, "plan", model, "--profile", "small-sim", "--target", "latency_ms=3", "--fps", "20", "--confidence", "0.9"
    )
    assert chosen["choice"]["latency_high_ms"] <= 3 and chosen["simulated"] is True
    assert f"set CPU {chosen['choice']['configuration']['cpu_khz'] / 1e3:.1f} MHz" in out
    assert chosen["why"].split(". ")[0] in out and "down on" in out and "per frame mJ" in out
