# SPDX-License-Identifier: Apache-2.0
"""The product on a simulated board that is the whole machine: no root is named, files are where a board has them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from jetdvfs.tests.support.boards.whole_board import obstacle, run_on
from jetdvfs.tests.support.paths import ROOT

SESSION = ROOT / "tests" / "support" / "boards" / "whole_board_session.py"


def test_on_a_whole_board_clocks_are_held_and_given_back_and_modes_changed(tmp_path: Path) -> None:
    if reason := obstacle():
        pytest.skip(reason)
    (tmp_path / "stage").mkdir()
    told = json.loads(run_on("agx-xavier", tmp_path / "stage", sys.executable, str(SESSION), str(tmp_path / "state")))
    assert told["held"] == ["1190400", "675750000", "1331200000"]
    assert told["given_back"] == told["found"]
    assert told["mode"].startswith("power mode MODE_15W is in force\nbefore: MAXN; to go back: ")
    assert "MODE_10W needs a reboot, which is yours to do; MODE_15W stays in force" in told["reboot"]
    board = told["board"]
    assert (board["board"], board["jetpack"], board["kernel"]) == ("agx-xavier", "5.1.1", "5.10.104-tegra")
    assert board["mode"]["name"] == "MODE_15W"
    assert board["clocks"]["gpu_hz"]["levels"][-1] == 624750000
    assert told["status"]["board"] == "agx-xavier"
    assert told["ended"] == 0
