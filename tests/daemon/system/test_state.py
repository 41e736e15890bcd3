# SPDX-License-Identifier: Apache-2.0
"""Where the daemon keeps how it found a board."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetdvfs.daemon.system.state import default_state_dir


def test_every_root_has_a_baseline_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    one, other = tmp_path / "a" / "b", tmp_path / "a-b"
    folders = {default_state_dir(root) for root in (Path("/"), one, other)}
    assert len(folders) == 3
    assert default_state_dir(Path("/")) == tmp_path / "state"
    assert default_state_dir(tmp_path / "a" / "." / "b") == default_state_dir(one)
