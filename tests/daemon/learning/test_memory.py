# SPDX-License-Identifier: Apache-2.0
"""What was observed outlasts a lease and the daemon, within bounds, and a damaged file harms nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jetdvfs.daemon.learning.memory import CONFIGURATIONS_KEPT, NETWORKS_KEPT, Memory
from jetdvfs.kernels.correction.observation import Observation
from jetdvfs.kernels.grid import FrequencyConfiguration

LOW, HIGH = FrequencyConfiguration(1, 1, 1), FrequencyConfiguration(2, 2, 2)


def test_the_newest_observation_of_a_configuration_is_there_in_the_next_daemon(tmp_path: Path) -> None:
    path, now_s = tmp_path / "learned.json", [1e9]
    memory = Memory(path, lambda: now_s[0])
    memory.remember("a", [Observation(LOW, 10.0, 4000.0, frames=9, period_ms=50.0), Observation(HIGH, 5.0, frames=9)])
    memory.remember("a", [Observation(LOW, 12.0, frames=9)])
    memory.save()
    now_s[0] += 2.5 * 3600
    found = {seen.configuration: seen for seen in Memory(path, lambda: now_s[0]).observations("a")}
    assert {where: seen.latency_ms for where, seen in found.items()} == {LOW: 12.0, HIGH: 5.0}
    assert found[LOW].age_s == 2 * 3600
    assert Memory(path).observations("b") == ()


def test_a_frame_or_two_are_not_kept_and_what_is_kept_is_bounded(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "learned.json")
    memory.remember("few", [Observation(LOW, 10.0, frames=2)])
    assert memory.observations("few") == ()
    for number in range(NETWORKS_KEPT + 3):
        memory.remember(str(number), [Observation(LOW, 10.0, frames=9)])
    assert memory.observations("2") == () and memory.observations("3")
    many = [Observation(FrequencyConfiguration(n, n, n), 10.0, frames=9) for n in range(1, CONFIGURATIONS_KEPT + 9)]
    memory.remember("many", many)
    assert len(memory.observations("many")) == CONFIGURATIONS_KEPT


def test_what_is_forgotten_is_not_there_in_the_next_daemon(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "learned.json")
    memory.remember("a", [Observation(LOW, 10.0, frames=9)])
    memory.save()
    memory.forget("a")
    memory.save()
    assert Memory(tmp_path / "learned.json").observations("a") == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"version": 2, "networks": {}}',
        '{"version": 1, "networks": {"a": [{"configuration": [1, 1], "seen_s": 0, "latency_ms": 3}]}}',
        '{"version": 1, "networks": {"a": [{"configuration": [1, 1, 1], "seen_s": 0, "latency_ms": -3}]}}',
        '{"version": 1, "networks": {"a": [{"configuration": [1, 1, 1], "seen_s": 0, "latency_ms": 3, "evil": 1}]}}',
    ],
)
def test_a_file_that_makes_no_sense_counts_as_none_and_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "learned.json"
    path.write_text(text)
    memory = Memory(path)
    assert memory.observations("a") == ()
    memory.remember("a", [Observation(LOW, 10.0, frames=9)])
    memory.save()
    assert list(json.loads(path.read_text())["networks"]) == ["a"]
