# SPDX-License-Identifier: Apache-2.0
"""Interfaces of release 1.0 are still there: verbs, exit codes, JSON, the socket, Python, C, the configuration."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.tests.support import stable
from jetdvfs.tests.support.paths import DOCS
from jetdvfs.tests.support.stable import STORED, lost
from jetdvfs.tests.support.stable_board import answers, stable_board


def stored(name: str) -> Any:
    return json.loads((STORED / f"{name}.json").read_text())


@pytest.mark.parametrize(
    ("name", "today"),
    [("verbs", stable.verbs), ("exit-codes", stable.exit_codes), ("python", stable.python_names), ("c", stable.c_declarations)],
)
def test_everything_of_1_0_is_still_there(name: str, today: Callable[[], Any]) -> None:
    assert not lost(stored(name), today())


def test_members_of_the_configuration_are_still_there_with_their_defaults(tmp_path: Path) -> None:
    assert not lost(stored("configuration"), stable.configuration(tmp_path))


@pytest.mark.parametrize("name", ["jetdvfs.varlink", "admin.varlink"])
def test_the_socket_takes_and_answers_what_it_did(name: str) -> None:
    before, now = (stable.varlink((folder / name).read_text()) for folder in (STORED, DOCS))
    assert before["methods"] and not lost(before, now)
    assert not stable.added_requirements(before, now)


@pytest.fixture(scope="module")
def today(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with stable_board(tmp_path_factory.mktemp("board")) as (board, daemon):
        yield {command: stable.keys(answer) for command, answer in answers(board, daemon, STORED / "profile").items()}


@pytest.mark.parametrize("command", stored("json"))
def test_members_of_json_are_still_there(command: str, today: dict[str, Any]) -> None:
    assert not lost(stored("json")[command], today[command])


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, []),
        ({"a": {"b": 1}}, {"a": {}}, [".a.b"]),
        ({"a": ["x"]}, {"a": ["y", "x"]}, []),
        ({"a": ["x"]}, {"a": []}, [".a: x"]),
        ({"a": "number"}, {"a": "text"}, [".a: number, now text"]),
        ({"required": "a b"}, {"required": "a"}, []),
        ({"required": "a"}, {"required": "a b"}, [".required: b, which was not"]),
    ],
)
def test_additions_keep_the_promise_and_removals_and_changes_break_it(before: Any, now: Any, found: list[str]) -> None:
    assert lost(before, now) == found


BEFORE = """
interface x
# Of a.
type A (n: int, way: (up, down))
method M(a: A, b: ?string) -> (c: float)
error E (message: string)
"""


@pytest.mark.parametrize(
    ("old", "new", "gone", "required"),
    [
        ("b: ?string", "b: ?string, d: ?int", [], []),
        ("up, down", "up, down, left", [], []),
        ("c: float", "c: float, e: int", [], []),
        ("b: ?string", "b: ?string, d: int", [], ["M().d: int"]),
        ("n: int", "n: int, m: int", [], ["A.m: int"]),
        ("c: float", "c: int", [".methods.M.reply.c: float, now int"], []),
        ("up, down", "up", [".types.A.way: down"], []),
        ("error E (message: string)", "", [".errors.E"], []),
    ],
)
def test_a_call_may_get_optional_members_and_a_reply_any(old: str, new: str, gone: list[str], required: list[str]) -> None:
    before, now = stable.varlink(BEFORE), stable.varlink(BEFORE.replace(old, new))
    assert (lost(before, now), stable.added_requirements(before, now)) == (gone, required)
