# SPDX-License-Identifier: Apache-2.0
"""plan as a person or a script runs it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jetdvfs.daemon.cli.hold import headline
from jetdvfs.profiles.reference import reference_model
from jetdvfs.tests.support.verbs import run, run_json


def test_a_plan_is_compared_with_every_power_mode_and_the_top_clocks(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "plan",
        model,
        "--profile",
        "small-sim",
        "--target",
        "min-energy",
        "--fps",
        "20",
        "--compare",
        "--battery-wh",
        "50",
    ]
    code, out, _ = run(capsys, *words)
    assert code == 0 and "simulated" in out
    assert "battery h" in out and "nvpmodel MODE_15W" in out and "MAXN + jetson_clocks" in out
    told = run_json(capsys, *words)
    rows = {row["name"]: row for row in told["compare"]}
    top, chosen = rows["MAXN + jetson_clocks"], rows["jetdvfs"]
    assert chosen["configuration"] == told["choice"]["configuration"]
    assert chosen["energy_mj"] == pytest.approx(told["choice"]["energy_per_frame_mj"])
    assert chosen["energy_mj"] <= min(row["energy_mj"] for row in rows.values() if not row["late"]) * 1.001
    assert top["battery_h"] == pytest.approx(50e3 / top["power_mw"])
    code, out, _ = run(capsys, *words[:-2])
    assert code == 0 and "battery h" not in out
    code, _, err = run(capsys, *words[:-3], "--battery-wh", "50")
    assert code == 2 and "hours" in err


def test_a_mode_whose_bound_misses_the_limit_is_late_though_its_median_does_not(
    model: str, simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", model, "--profile", "small-sim", "--compare", "--target"]
    rows = run_json(capsys, *words, "min-energy")["compare"]
    slowest = max((row for row in rows if row["name"].startswith("nvpmodel")), key=lambda row: row["latency_ms"])
    asked = f"latency_ms={1.001 * slowest['latency_ms']}"

    def late(*confidence: str) -> bool:
        compared = run_json(capsys, *words, asked, *confidence)["compare"]
        return any(row["late"] for row in compared if row["name"] == slowest["name"])

    assert not late() and late("--confidence", "0.95")


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


def test_a_plan_names_weights_that_no_launch_reads(simulated: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    googlenet = str(reference_model("googlenet"))  # its auxiliary heads are for training
    for verb, more in (("plan", ("--target", "min-energy")), ("predict", ())):
        code, out, _ = run(capsys, verb, googlenet, "--input", "1x3x64x64", "--profile", "small-sim", *more)
        assert code == 0 and "weights (49% of their elements) are read by no launch: aux1.fc1.weight" in out


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("latency_ms=20", "EMC 1000 MHz: 10 ms (asked: 20), 50 mJ,"),
        ("power_mw=9000", "EMC 1000 MHz: 10 ms, 50 mJ, 5 W (asked: 9),"),
        ("min-energy", "EMC 1000 MHz: 10 ms, 50 mJ (asked: min-energy),"),
        ("min-edp", "EMC 1000 MHz (asked: min-edp): 10 ms, 50 mJ,"),
        ("hours=3", "EMC 1000 MHz (asked: to last 3 h): 10 ms, 50 mJ,"),
        ("a-target-of-tomorrow", "EMC 1000 MHz (asked: a-target-of-tomorrow): 10 ms, 50 mJ,"),
    ],
)
def test_the_figure_that_was_asked_for_is_marked(target: str, said: str) -> None:
    clocks = {"cpu_khz": 10**6, "gpu_hz": 5 * 10**8, "emc_hz": 10**9}
    choice = {"latency_ms": 10.0, "energy_mj": 50.0, "power_mw": 5000.0, "guessed_share": 0.0, "configuration": clocks}
    plan = {"choice": choice, "top": {**choice, "energy_mj": 100.0, "configuration": {}}, "target": target}
    assert said in headline(plan, "net") and "50% below top clocks" in headline(plan, "net")
