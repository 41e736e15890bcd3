# SPDX-License-Identifier: Apache-2.0
"""Calls are read into what the interface declares, or refused in one line, whatever their text is."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from jetdvfs.daemon.errors import UsageError
from jetdvfs.daemon.wire import protocol
from jetdvfs.daemon.wire.calls import PUBLIC
from jetdvfs.daemon.wire.interface import (
    PARAMETER_BYTES,
    Int,
    Interface,
    Mismatch,
    array,
    method,
    read_call,
    structure,
    table,
)
from jetdvfs.tests.support.speed import multiples_of_unpickling

Pair = structure("Pair", left=Int, right=float | None)
READING = Interface("test.reading", "", (
    method("Some", "", {"pairs": array(Pair), "names": table(bool) | None, "sort": Literal["up", "down"] | None}, {}),
    method("Long", "", {"thing": Raw, "words": array(str) | None}, {}),
    method("None", "", {}, {}),
), {})  # fmt: skip


@pytest.mark.parametrize(
    ("method", "text", "values"),
    [
        ("None", "{}", {}),
        ("Some", '{"pairs": [{"left": 1}, {"left": -2, "right": 3}]}', {"pairs": [{"left": 1}, {"left": -2, "right": 3.0}]}),
        ("Some", '{"pairs": [], "names": {"a": true}, "sort": null}', {"pairs": [], "names": {"a": True}}),
        ("Some", '{"pairs": [{"left": 1}], "pairs": []}', {"pairs": []}),
        ("Long", '{"thing": {"a": [1e999, {}]}}', {"thing": b'{"a": [1e999, {}]}'}),
        ("Long", '{"words": ["x"], "thing": {}}', {"words": ["x"], "thing": b"{}"}),
    ],
)
def test_parameters_are_read_and_objects_left_as_they_are(method: str, text: str, values: dict[str, Any]) -> None:
    assert READING.decoders[method].decode(text.encode()) == values


@pytest.mark.parametrize(
    ("method", "text", "told"),
    [
        ("None", '{"a": 1}', "a: expected one of no members"),
        ("Some", "[]", "parameters: expected an object"),
        ("Some", "{}", "pairs: expected array, but it is missing"),
        ("Some", '{"pairs": {}}', "pairs: expected a list"),
        ("Some", '{"pairs": [{"left": 1}, {"left": true}]}', "pairs[1].left: expected int"),
        ("Some", '{"pairs": [{"left": 1.5}]}', "pairs[0].left: expected int"),
        ("Some", '{"pairs": [{"left": 9223372036854775808}]}', "pairs[0].left: expected int"),
        ("Some", '{"pairs": [{"left": 1, "right": 1e999}]}', "pairs[0].right: expected float"),
        ("Some", '{"pairs": [{"left": 1, "middle": 2}]}', "pairs[0].middle: expected one of left, right"),
        ("Some", '{"pairs": [], "names": {"a": 1}}', "names[...]: expected bool"),
        ("Some", '{"pairs": [], "sort": "sideways"}', "sort: expected up or down"),
        ("Long", '{"words": []}', "thing: expected object, but it is missing"),
        ("Long", '{"thing": [1]}', "thing: expected object"),
        ("Long", '{"thing": null}', "thing: expected object"),
        ("Long", '{"thing": {}, "words": [1]}', "words[0]: expected string"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place_and_what_would(method: str, text: str, told: str) -> None:
    with pytest.raises(Mismatch) as caught:
        READING.decoders[method].decode(text.encode())
    assert str(caught.value) == told


@pytest.mark.parametrize(
    "text", ["", "{", '{"thing": ' + "[" * 100_000, '{"thing": NaN}', '{"thing": 01}', '{"words": ["\\ud800"]}']
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="are not JSON"):
        READING.decoders["Long"].decode(text.encode())


def test_only_objects_may_be_long() -> None:
    long = '"' + "x" * PARAMETER_BYTES + '"'
    assert READING.decoders["Long"].decode(f'{{"thing": {{"a": {long}}}}}'.encode())
    for name, text in (("Long", f'{{"thing": {{}}, "words": [{long}]}}'), ("Some", f'{{"pairs": [{long}]}}')):
        with pytest.raises(UsageError, match=f"{name}: its parameters have .* at most {PARAMETER_BYTES}"):
            READING.decoders[name].decode(text.encode())


json_like = st.recursive(
    st.sampled_from(["1", "-0.5e3", "true", "null", '""', '"up"', "NaN", "1e999", "01", '"\\ud800"', "\x00", "é", "{", "]"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: f"[{','.join(items)}]"),
        st.lists(st.tuples(st.sampled_from(["pairs", "left", "thing", "words", "sort", "x"]), inner), max_size=4).map(
            lambda items: "{" + ",".join(f'"{name}":{value}' for name, value in items) + "}"
        ),
    ),
    max_leaves=12,
)


@given(st.sampled_from(["Some", "Long", "None"]), st.one_of(json_like.map(str.encode), st.binary(max_size=60)))
def test_whatever_the_text_is_it_is_read_or_refused(method: str, text: bytes) -> None:
    try:
        read = READING.decoders[method].decode(read_call(b'{"method": "x", "parameters": ' + text + b"}").parameters)
    except (Mismatch, UsageError) as error:
        assert "\n" not in protocol.one_line(error)
    else:
        assert all(isinstance(value, bytes) == (name == "thing") for name, value in read.items())


@pytest.mark.parametrize(
    "text",
    [
        '{"network": {"launches": [' + "0," * 500_000 + "0]}}",
        '{"network": {"a": ' + "[" * 1_000_000 + "}}",
        '{"network": {' + '"a": {"b": 1},' * 70_000 + '"c": 1}}',
        '{"network": {}, "accept_boundary": [' + '"",' * 300_000 + '""]}',
        "{" + '"network": {},' * 70_000 + '"network": {}}',
    ],
    ids=["numbers", "deep", "members", "words", "again"],
)
@pytest.mark.alone
def test_the_longest_messages_take_the_reader_a_few_milliseconds(text: str) -> None:
    decoder = PUBLIC.decoders["LoadNetwork"]
    message = b'{"method": "io.jetdvfs.LoadNetwork", "parameters": ' + text.encode() + b"}"
    assert len(message) < protocol.MESSAGE_BYTES

    def reading() -> None:
        with suppress(Mismatch, UsageError):
            decoder.decode(read_call(message).parameters)

    assert multiples_of_unpickling(reading, tries=5) < [0.4]
