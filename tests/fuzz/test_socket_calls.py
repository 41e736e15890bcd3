# SPDX-License-Identifier: Apache-2.0
"""Conversations that once broke the daemon, and the fuzzer that finds such."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jetdvfs.tests.fuzz.socket_calls import kept, replay
from jetdvfs.tests.fuzz.socket_inputs import conversation
from jetdvfs.tests.soak import boards
from jetdvfs.tests.support.paths import ROOT

KEPT = sorted((ROOT / "tests" / "fuzz" / "sockets").glob("*.json"))
SOME = 120
FEW = 12


@pytest.mark.tool
def test_a_seed_is_one_conversation_and_is_kept_as_it_is(tmp_path: Path) -> None:
    drawn = [conversation(seed) for seed in range(200)]
    assert drawn == [conversation(seed) for seed in range(200)]
    (tmp_path / "kept.json").write_text(json.dumps([one.to_json() for one in drawn]))
    assert kept(tmp_path / "kept.json") == drawn
    assert {piece.kind for one in drawn for piece in one.pieces if piece.count} >= {"a model", "a pipe", "a folder"}
    assert any(one.half_closes for one in drawn) and any(one.admin for one in drawn)


@pytest.mark.parametrize("seeds", [range(FEW), pytest.param(range(FEW, SOME), marks=pytest.mark.slow)], ids=["few", "more"])
def test_no_conversation_breaks_the_daemon(seeds: range) -> None:
    if missing := boards.obstacle():
        pytest.skip(missing)
    assert replay([conversation(seed) for seed in seeds]) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_once_broke_it_does_so_no_more(path: Path) -> None:
    if missing := boards.obstacle():
        pytest.skip(missing)
    assert replay(kept(path)) == []
