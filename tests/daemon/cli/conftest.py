# SPDX-License-Identifier: Apache-2.0
"""A small network in a file, and the one profile there is."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from jetdvfs.tests.support.profiles.only import COST, NETWORK, only_profile


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "handmade.json"
    path.write_text(json.dumps(NETWORK.to_json(host_calls=True)))
    return str(path)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The manifest, which can be changed, of the only profile there is."""
    return only_profile(monkeypatch, COST)
