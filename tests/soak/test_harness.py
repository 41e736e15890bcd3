# SPDX-License-Identifier: Apache-2.0
"""The harness does not lie: what is broken on purpose is seen, and a seed means the same scenario everywhere."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetdvfs.tests.soak import boards
from jetdvfs.tests.soak.events import clients, service
from jetdvfs.tests.soak.events.board import Pretend, Stranger
from jetdvfs.tests.soak.play import Outcome, Theatre
from jetdvfs.tests.soak.probe import Sample, blocked
from jetdvfs.tests.soak.scenario import THEMES, Check, Scenario, scenario
from jetdvfs.tests.soak.stage import Patience
from jetdvfs.tests.soak.summary import Figures
from jetdvfs.tests.soak.wire import judged
from jetdvfs.tests.soak.world import OTHER_BOARDS, USUAL_BOARD
from jetdvfs.tests.support.daemons.board_daemon import CPU, LOW

pytestmark = pytest.mark.tool

HOLD = clients.Hold(0, LOW)


def holding(*events: object, stops_holding: bool = False) -> Scenario:
    return Scenario(-1, USUAL_BOARD, "fuse", ("a test",), (HOLD, *events), stops_holding)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def broken() -> Iterator[Theatre]:
    if missing := boards.obstacle():
        pytest.skip(missing)
    with Theatre(small_disks=False, daemon="jetdvfs.tests.soak.broken_daemon", patience=Patience(3.0, 3.0)) as theatre:
        yield theatre


def troubles(theatre: Theatre, monkeypatch: pytest.MonkeyPatch, what: str, played: Scenario) -> str:
    monkeypatch.setenv("JETDVFS_SOAK_BREAK", what)
    return "\n".join(theatre.play(played).troubles)


@pytest.mark.parametrize(
    ("what", "events", "seen"),
    [
        ("", (Check(),), ""),
        ("restores nothing", (), "not given back after the clients had gone: scaling_governor of CPU is userspace"),
        ("is slow", (HOLD,), "another user's call was answered later than 100 ms"),
        ("raises", (), "Hold: Internal"),
        ("keeps descriptors", (), "descriptors grew from"),
        ("keeps memory", (HOLD,) * 7, "memory grew from"),
        ("exits", (), "the daemon ended by itself with 7"),
        ("never answers", (), "a call was not answered"),
        ("answers otherwise", (), "Hold: answered against the interface: Object contains unknown field `surprise`"),
    ],
)
def test_a_daemon_that_is_broken_is_found_out(
    broken: Theatre, monkeypatch: pytest.MonkeyPatch, what: str, events: tuple[object, ...], seen: str
) -> None:
    found = troubles(broken, monkeypatch, what, holding(*events))
    assert seen in found if seen else not found


def test_what_somebody_else_set_may_stay_and_nothing_else_may(broken: Theatre, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = Stranger(f"/{CPU}/scaling_governor", "performance")
    assert not troubles(broken, monkeypatch, "", holding(stranger))
    found = troubles(broken, monkeypatch, "restores nothing", holding(stranger))
    assert "of GPU is userspace" in found and "of CPU" not in found


def test_an_ambush_kills_at_the_write_that_was_meant(broken: Theatre, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JETDVFS_SOAK_BREAK", raising=False)
    for after, governor in ((False, "schedutil"), (True, "userspace")):
        first = service.Ambush("write", 0, after, False)
        played = broken.play(Scenario(-1, USUAL_BOARD, "fuse", ("a test",), (clients.Ask(0, "Status"), first, HOLD), False))
        assert not played.troubles
        assert any("-> gone" in line for line in played.told), played.told
        started = [line for line in played.told if "the daemon is started" in line]
        assert len(started) == 2, governor


def test_a_file_that_pretends_is_seen_as_such_by_the_daemon_and_not_by_the_checks(
    broken: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretends = Pretend(f"/{CPU}/scaling_governor", "garbage")
    assert not troubles(broken, monkeypatch, "", holding(pretends))


def test_a_pause_is_not_held_against_the_daemon_and_what_follows_it_is() -> None:
    late = Sample(10.0, 400.0, 400.0, 0.1, 20.0, 20.0, "")
    assert blocked([late], [(9.9, 10.35)], 100.0) == []
    assert blocked([late], [(8.0, 9.0)], 100.0) == [late]
    assert blocked([late._replace(info_waited_ms=350.0)], [], 100.0) == []
    refused = late._replace(status_ms=1.0, said="LimitReached")
    assert blocked([refused], [], 100.0) == [refused]
    # A status waits until clocks that were just set are read, for at most as long as the daemon lets it.
    looks = late._replace(info_ms=0.5)
    assert blocked([looks], [], 100.0) == []
    assert blocked([slow := looks._replace(status_ms=1000.0)], [], 100.0) == [slow]
    assert slow.fault(100.0) == "status was answered later than 900 ms"


def test_a_seed_is_one_scenario_and_all_that_can_happen_does() -> None:
    drawn = [scenario(seed) for seed in range(300)]
    assert drawn[:30] == [scenario(seed) for seed in range(30)]
    assert len({one.words().partition(":")[2] for one in drawn}) > 295
    assert {theme for one in drawn for theme in one.themes} == THEMES.keys()
    assert {one.board for one in drawn} == {USUAL_BOARD, *OTHER_BOARDS}
    kinds = {type(event).__name__ for one in drawn for event in one.events}
    assert {"Hold", "Killed", "Ambush", "KillAtState", "Disk", "Spoil", "Pretend", "Hang", "Mode", "Flood", "Pause"} <= kinds


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b'{"parameters":{"lease":"1","applied":{}}}', "answered against the interface"),
        (b'{"error":"io.jetdvfs.Internal","parameters":{"message":"x","exit_code":3}}', "Internal"),
        (b'{"error":"io.jetdvfs.InvalidRequest","parameters":{"message":"a\\nb","exit_code":2}}', "other than one line"),
        (b'{"error":"io.jetdvfs.InvalidRequest","parameters":{"message":"a","exit_code":1}}', "exit code 1"),
        (b'{"error":"io.jetdvfs.Surprise","parameters":{"message":"a","exit_code":2}}', "not in the interface"),
        (b'{"parameters":{"lease":NaN}}', "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b'{"error":"io.jetdvfs.InvalidRequest","parameters":{"message":"a","exit_code":2}}', ""),
        (b'{"error":"org.varlink.service.MethodNotFound","parameters":{"method":"a"}}', ""),
    ],
)
def test_answers_are_held_against_the_interface(data: bytes, complaint: str) -> None:
    found = "; ".join(judged("Hold", data).complaints)
    assert complaint in found if complaint else not found


def test_the_summary_counts_what_broke_once_for_each_scenario(tmp_path: Path) -> None:
    figures = Figures()
    sample = Sample(0.0, 2.0, 1.0, 0.1, 0.0, 0.0, "")
    for seed, broke in ((0, ("took 3 s", "took 5 s")), (1, ("took 9.5 s",)), (2, ())):
        figures.add(Outcome(seed, 1.0, broke, (), "", (sample,), (4.0,)))
    text = figures.text(3.0)
    assert (figures.played, figures.failed) == (3, 2)
    assert "    2  took # s\n       seeds 0, 1" in text


def test_a_stop_by_either_signal_gives_the_board_back(broken: Theatre, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        assert not troubles(broken, monkeypatch, "", holding(service.Stop(number), stops_holding=True))
