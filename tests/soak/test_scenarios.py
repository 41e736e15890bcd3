# SPDX-License-Identifier: Apache-2.0
"""A few of the scenarios that ``make soak`` plays by the thousand."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from jetdvfs.tests.soak import boards

_LONGEST_S = 900


@pytest.mark.slow
@pytest.mark.parametrize(("first", "number"), [(0, 2), (2, 10)])
def test_whatever_happens_the_board_goes_back_and_everybody_is_answered(first: int, number: int) -> None:
    if missing := boards.obstacle():
        pytest.skip(missing)
    command = [sys.executable, "-m", "jetdvfs.tests.soak.run", "--seed", str(first), "--seeds", str(number)]
    command += ["--jobs", str(os.cpu_count() or 1)]
    # Tests share their machine; how soon others are answered on one that has nothing else to do, `make soak` tells.
    env = {**os.environ, "JETDVFS_SOAK_OTHERS_MS": "1000"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LONGEST_S, env=env)
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-4000:]
    assert f"{number} scenarios in" in done.stdout and "0 scenarios failed" in done.stdout
