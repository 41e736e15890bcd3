# SPDX-License-Identifier: Apache-2.0
"""What version 2 of the simulated chips was fitted to, and how."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from jetdvfs.profiles.board import load_board
from jetdvfs.profiles.errors import ComparisonDataError
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.compare.calibration import PARAMETERS, changed, fitted, value
from jetdvfs.profiles.lab.compare.networks import inception_v3, resnet50
from jetdvfs.profiles.lab.compare.tables import TABLES, Table, tables
from jetdvfs.profiles.lab.measure.drawing.sampling import random_configurations
from jetdvfs.profiles.twin.silicon.chip import Array, Chip, Clocks, load_chip
from jetdvfs.profiles.twin.silicon.execution import execute
from jetdvfs.profiles.twin.silicon.silicon import Silicon
from jetdvfs.tests.support.paths import SHARED_DATA

#: The largest acceptable median of relative errors, and of a table's bias.
LIMIT, BIAS = 0.20, 0.20
#: A decoder's power follows from what it does with each byte, which nobody wrote down for this board; nothing is fitted to it.
FREE = "Qwen2.5-7B decoding in eight bits: W"


@pytest.mark.shared_data
@pytest.mark.parametrize("board", TABLES)
def test_version_2_is_as_close_to_what_it_was_fitted_to_as_it_claims(board: str) -> None:
    try:
        found = tables(board, SHARED_DATA.parent)
    except ComparisonDataError as error:
        pytest.skip(str(error))
    chip = load_chip(board, version=2)
    for table in found:
        errors = table.errors(chip)
        assert np.isfinite(errors).all(), table.name
        if board != "agx-orin-64gb" or table.name != FREE:
            assert np.median(np.abs(errors)) < LIMIT and abs(np.median(errors)) < BIAS, table.name


def test_parameters_that_are_fitted_are_numbers_of_the_chips() -> None:
    for board, names in PARAMETERS.items():
        chip = load_chip(board, version=2)
        doubled = changed(chip, {name: 2 * value(chip, name) for name in names})
        for name in names:
            assert value(chip, name) > 0
            assert value(doubled, name) == pytest.approx(2 * value(chip, name)), name
        assert load_chip(board, version=2) == chip


def test_a_fit_finds_the_parameters_that_a_board_was_made_with() -> None:
    pytest.importorskip("scipy", reason="fits use SciPy")
    board, chip = load_board("tx2"), load_chip("tx2", version=2)
    clocks = Clocks.of(random_configurations(board.grid, 12, np.random.default_rng(2)))

    def run(one: Chip) -> Array:
        return execute(resnet50(), Silicon(None, "tx2", chip=one), clocks).latency_s

    names = ("library.conv2d", "memory.fabric_bytes_per_cycle")
    truth = changed(chip, {"library.conv2d": 0.9, "memory.fabric_bytes_per_cycle": 50.0})
    found = fitted(chip, names, [Table("made up", run(truth), run)])
    assert found.values["library.conv2d"] == pytest.approx(0.9, rel=0.05)
    assert np.abs(Table("made up", run(truth), run).errors(found.chip)).max() < 0.02


def test_networks_that_others_measured_have_the_work_that_is_known_of_them() -> None:
    macs = {"resnet50": 4.09e9, "inception_v3": 5.7e9}
    for network in (resnet50(), inception_v3(1)):
        found = 0.0
        for call in network.launches:
            if call.kind == "conv2d":
                weight = call.params["weight"]
                assert isinstance(weight, tuple)
                found += float(np.prod(weight[1:])) * float(np.prod(call.output))
        assert found == pytest.approx(macs[network.name], rel=0.02)
    assert resnet50(4).launches[0].inputs[0][0] == 4


def test_the_command_says_before_and_after_and_what_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["mode,gpu_cap_mhz,case,dtype,vdd_gpu_w,median_us", "MAXN,1575,warm 4096^3,int8,94.7,472.0"]
    (tmp_path / "thor_gemm.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    asked = ["silicon", "calibrate", "--data", str(tmp_path), "--board", "agx-thor"]
    assert main([*asked, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["simulated"] and [row["points"] for row in said["tables"]] == [1, 1]
    before, after = (said["tables"][0][name]["median"] for name in ("version 1", "version 2"))
    assert after < before
    assert main(asked) == 0
    assert "simulated chips beside a real board" in capsys.readouterr().out
    assert main(["silicon", "calibrate", "--data", str(tmp_path), "--board", "nano"]) == 3
    assert "no measurements profiling.csv" in capsys.readouterr().err
    assert main(["silicon", "calibrate", "--data", str(tmp_path), "--board", "tx2"]) == 2
    assert "no measurements to fit tx2 to; valid: agx-xavier" in capsys.readouterr().err
