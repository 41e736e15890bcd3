# SPDX-License-Identifier: Apache-2.0
"""Observations outlast a lease and the daemon, within bounds and by user, and a damaged file harms nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jetdvfs.daemon.leases.learning.observation_store import (
    CONFIGURATIONS_KEPT,
    PROGRAMS_KEPT,
    PROGRAMS_PER_USER,
    ObservationStore,
    ProgramKey,
)
from jetdvfs.kernels.correction.observation import Observation
from jetdvfs.kernels.grid import FrequencyConfiguration

LOW, HIGH = FrequencyConfiguration(1, 1, 1), FrequencyConfiguration(2, 2, 2)
A = ProgramKey(1000, "a")
YEAR_S = 365 * 24 * 3600.0


def observed(latency_ms: float = 10.0, at: FrequencyConfiguration = LOW, frames: int = 9) -> Observation:
    return Observation(at, latency_ms, frames=frames)


def test_the_newest_observation_of_a_configuration_is_there_in_the_next_daemon(tmp_path: Path) -> None:
    path, now_s = tmp_path / "learned.json", [1e9]
    memory = ObservationStore(path, lambda: now_s[0])
    memory.remember(A, [Observation(LOW, 10.0, 4000.0, frames=9, period_ms=50.0), observed(5.0, HIGH)])
    memory.remember(A, [observed(12.0)])
    memory.save()
    now_s[0] += 2.5 * 3600
    found = {seen.configuration: seen for seen in ObservationStore(path, lambda: now_s[0]).observations(A)}
    assert {where: seen.latency_ms for where, seen in found.items()} == {LOW: 12.0, HIGH: 5.0}
    assert found[LOW].age_s == 2 * 3600
    assert ObservationStore(path).observations(ProgramKey(1000, "b")) == ()


def test_saved_observations_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "learned.json", []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    memory = ObservationStore(path)
    memory.remember(A, [observed()])
    memory.save()
    assert synced == [path.stat().st_ino, tmp_path.stat().st_ino]


def test_one_users_observations_are_not_another_users(tmp_path: Path) -> None:
    memory = ObservationStore(tmp_path / "learned.json")
    memory.remember(A, [observed()], name="net", app="camera")
    assert memory.observations(ProgramKey(1001, "a")) == () == memory.observations(ProgramKey(0, "a"))
    assert memory.learned(1001) == [] and memory.drop(1001, None) == 0
    (mine,) = memory.learned(1000, "net")
    assert memory.learned(None) == [mine] and (mine.name, mine.app, mine.frames) == ("net", "camera", 9)


def test_a_user_with_many_programs_displaces_only_its_own(tmp_path: Path) -> None:
    memory = ObservationStore(tmp_path / "learned.json")
    memory.remember(A, [observed()])
    for number in range(2 * PROGRAMS_KEPT):
        memory.remember(ProgramKey(1001, str(number)), [observed()])
    assert memory.observations(A)
    assert len(memory.learned(1001)) == PROGRAMS_PER_USER
    assert memory.observations(ProgramKey(1001, str(2 * PROGRAMS_KEPT - 1)))
    for number in range(PROGRAMS_KEPT):
        memory.remember(ProgramKey(2000 + number // 4, str(number)), [observed()])
    assert memory.observations(A) and len(memory.learned(None)) == PROGRAMS_KEPT
    assert len(memory.learned(1001)) < PROGRAMS_PER_USER  # of the user who has most, the oldest go first


def test_a_frame_or_two_are_not_kept_and_configurations_are_bounded(tmp_path: Path) -> None:
    memory = ObservationStore(tmp_path / "learned.json")
    memory.remember(A, [observed(frames=2)])
    assert memory.observations(A) == ()
    many = [observed(at=FrequencyConfiguration(n, n, n)) for n in range(1, CONFIGURATIONS_KEPT + 9)]
    memory.remember(A, many)
    assert len(memory.observations(A)) == CONFIGURATIONS_KEPT


def test_a_clock_that_was_set_back_neither_freezes_nor_favours_old_observations(tmp_path: Path) -> None:
    now_s = [2e9]
    memory = ObservationStore(tmp_path / "learned.json", lambda: now_s[0])
    memory.remember(A, [observed(at=FrequencyConfiguration(n, n, n)) for n in range(1, CONFIGURATIONS_KEPT + 1)])
    now_s[0] -= 10 * YEAR_S
    memory.remember(A, [observed(20.0, FrequencyConfiguration(99, 99, 99))])
    found = {seen.configuration.cpu_khz: seen for seen in memory.observations(A)}
    assert found[99].age_s == 0 and found[2].age_s >= 3600
    assert 1 not in found and len(found) == CONFIGURATIONS_KEPT


def test_how_far_frames_were_from_the_prediction_is_told(tmp_path: Path) -> None:
    memory = ObservationStore(tmp_path / "learned.json")
    memory.remember(A, [observed(13.0), observed(6.5, HIGH)], name="net", predicted_ms={LOW: 10.0, HIGH: 5.0}.get)
    memory.save()
    (told,) = ObservationStore(tmp_path / "learned.json").learned(1000)
    assert told.factor == pytest.approx(1.3) and told.configurations == 2


def test_a_dropped_program_is_not_there_in_the_next_daemon(tmp_path: Path) -> None:
    memory = ObservationStore(tmp_path / "learned.json")
    memory.remember(A, [observed()], name="net")
    memory.remember(ProgramKey(1000, "b"), [observed()], app="camera")
    memory.save()
    assert memory.drop(None, "net") == 1 and memory.drop(1000, "net") == 0
    memory.save()
    assert [one.app for one in ObservationStore(tmp_path / "learned.json").learned(None)] == ["camera"]


def entry(**members: object) -> str:
    one = {"configuration": [1, 1, 1], "seen_s": 0, "latency_ms": 3, "predicted_ms": None, **members}
    program = {"uid": 1000, "program": "a", "name": "", "app": "", "observed": [one]}
    return json.dumps({"version": 2, "programs": [program]})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"version": 1, "networks": {"a": [{"configuration": [1, 1, 1], "seen_s": 0, "latency_ms": 3}]}}',
        '{"version": 2, "programs": {}}',
        '{"version": 2, "programs": [{"uid": 1000}]}',
        entry(configuration=[1, 1]),
        entry(latency_ms=-3),
        entry(evil=1),
        entry(predicted_ms=0),
        entry(predicted_ms="x"),
    ],
)
def test_a_file_that_makes_no_sense_counts_as_empty_and_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "learned.json"
    path.write_text(text)
    memory = ObservationStore(path, lambda: 1000.0)
    assert memory.observations(A) == ()
    memory.remember(A, [observed()])
    memory.save()
    assert [item["program"] for item in json.loads(path.read_text())["programs"]] == ["a"]
