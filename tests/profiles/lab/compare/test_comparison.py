# SPDX-License-Identifier: Apache-2.0
"""Simulated boards come as close to measured ones as they claim, and the command that says so tells what it cannot compare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from jetdvfs.daemon.errors import InputError
from jetdvfs.profiles.board import list_boards, load_board
from jetdvfs.profiles.errors import ComparisonDataError
from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.cli.silicon_comparison import draw
from jetdvfs.profiles.lab.compare.boards import COMPARISONS, not_compared
from jetdvfs.profiles.lab.compare.fit import FittedQuantity, Report, held_out
from jetdvfs.profiles.twin.silicon.chip import load_chip
from jetdvfs.tests.support.paths import SHARED_DATA

DATA = SHARED_DATA
LONG = {"agx-orin-64gb", "tx2"}
GAPS = {("tx2", "VGG VDD_SYS_DDR, W"): 0.3}
"""Figures that are farther off than their limit, and by how much at most."""
MEASURED = [board for board in COMPARISONS if board != "agx-xavier"]


@pytest.mark.shared_data
@pytest.mark.parametrize(
    "board", [pytest.param(board, marks=pytest.mark.slow) if board in LONG else board for board in MEASURED]
)
def test_a_simulated_board_is_as_close_to_the_measured_one_as_it_claims(board: str) -> None:
    if not DATA.is_dir():
        pytest.skip(f"measured data not found at {DATA}")
    try:
        report = COMPARISONS[board](DATA.parent)  # some of it stands beside that folder
    except ComparisonDataError as error:
        pytest.skip(str(error))
    for fit in report.fits:
        assert np.all(np.isfinite(fit.errors)), fit.quantity
        median, gap = fit.quantile(0.5, held_out=False), GAPS.get((board, fit.quantity))
        assert fit.passed == (gap is None), f"{fit.quantity}: median {median:.3f}, limit {fit.limit}"
        assert gap is None or median < gap
    assert any(fit.limit is not None for fit in report.fits)


def test_a_fit_is_judged_on_held_out_points_too() -> None:
    measured = np.ones(8)
    simulated = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.5, 1.5])
    kept = simulated > 1.2
    assert FittedQuantity("time", measured, simulated, None, 0.1).passed
    assert not FittedQuantity("time", measured, simulated, kept, 0.1).passed
    assert not FittedQuantity("time", measured, simulated, None, 0.1, every=True).passed
    assert FittedQuantity("time", measured, simulated, kept).passed


def test_everything_at_a_configuration_is_held_out_together() -> None:
    gpu = np.repeat([100.0, 200.0, 300.0, 400.0], 6)
    emc = np.tile(np.repeat([1.0, 2.0, 3.0], 2), 4)
    kept = held_out(gpu, emc)
    assert 0 < kept.sum() < len(kept) / 2
    for first, second in zip(kept[::2], kept[1::2], strict=True):
        assert first == second


def test_every_board_file_says_what_its_twin_was_calibrated_on() -> None:
    for board in list_boards():
        said = str(load_board(board).section("twin")["calibrated_on"])
        assert said.startswith("nothing; derived from ") == (board not in COMPARISONS), board
    assert set(not_compared()) | set(COMPARISONS) == set(list_boards())


@pytest.fixture(scope="module")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder without measurements."""
    return tmp_path_factory.mktemp("nothing")


@pytest.fixture(scope="module")
def compared_once() -> Iterator[None]:
    """Each report is computed once and printed by every test that asks for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(COMPARISONS, "agx-xavier", cache(COMPARISONS["agx-xavier"]))
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("compared_once")
def test_without_measurements_the_published_table_is_still_compared(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["silicon", "comparison", "--data", str(nothing), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    (board,) = said["boards"]
    assert board["board"] == "agx-xavier" and board["simulated"] and board["passed"]
    assert board["parameters"]["version"] == load_chip("agx-xavier").version
    time = board["fits"][0]["all"]
    assert time["median"] < 0.05 and time["largest"] < board["fits"][0]["limit"]
    assert set(said["not_compared"]) == set(MEASURED)


def test_a_board_that_cannot_be_compared_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["silicon", "comparison", "--data", str(tmp_path), "--board", "tx2"]) == 3
    assert "no measurements" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["silicon", "comparison", "--data", str(tmp_path / "nowhere"), "--board", "tx2"])
    assert "--data: expected a folder" in capsys.readouterr().err
    assert main(["silicon", "comparison", "--data", str(tmp_path), "--board", "nano"]) == 2
    assert "derived from tx2" in capsys.readouterr().err
    (tmp_path / "mixbench_tx2_roofline_long.csv.gz").write_bytes(b"not a gzip file")
    assert main(["silicon", "comparison", "--data", str(tmp_path), "--board", "tx2"]) == 3
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.usefixtures("compared_once")
def test_one_board_s_report_shows_the_fit_and_what_was_set(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["silicon", "comparison", "--data", str(nothing), "--board", "agx-xavier"]) == 0
    said = capsys.readouterr().out
    assert f"simulated board (silicon {load_chip('agx-xavier').version}) against measurements of a real one" in said
    assert "within 17%" in said and "library.conv2d 1.06" in said


def test_measured_against_simulated_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    measured = np.array([1.0, 2.0, 4.0])
    report = Report("tx2", load_chip("tx2"), "nobody", (FittedQuantity("time, ms", measured, 1.1 * measured),) * 2)
    draw([report], tmp_path / "fit.png")
    assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="cannot write the picture"):
        draw([report], tmp_path / "nowhere" / "fit.png")
