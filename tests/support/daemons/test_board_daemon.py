# SPDX-License-Identifier: Apache-2.0
"""The daemon that tests start is that of their own tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetdvfs.tests.support.daemons.board_daemon import BoardFiles, Daemon, require_own_code
from jetdvfs.tests.support.paths import ROOT


def test_the_daemon_of_another_tree_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other" / "jetdvfs"
    (other / "tests").mkdir(parents=True)
    (other / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(other.parent))
    with pytest.raises(AssertionError, match="runs the code of") as raised:
        Daemon(BoardFiles(tmp_path), tmp_path)
    assert str(other) in str(raised.value) and str(ROOT) in str(raised.value)


def test_a_link_to_the_own_tree_is_the_own_tree(tmp_path: Path) -> None:
    (tmp_path / "jetdvfs").symlink_to(ROOT)
    require_own_code(str(tmp_path))
