# SPDX-License-Identifier: Apache-2.0
"""Documents as values: a mistake is one line with its place, what was expected there and what stands there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, field

from jetdvfs.profiles.documents import (
    Count,
    DocumentError,
    NotNegative,
    Positive,
    Text,
    convert,
    dotted,
    load_json,
    load_yaml,
    unknown_members,
)


class Range(Struct, frozen=True):
    low: Positive
    high: Positive | None = None

    def __post_init__(self) -> None:
        if self.high is not None and self.high < self.low:
            raise ValueError(f"{self.high} is below {self.low}")


class Part(Struct, frozen=True):
    name: Text
    role: Literal["cpu", "gpu"] = "cpu"
    spans: Mapping[str, Range] = field(default_factory=dict)


class Whole(Struct, frozen=True):
    parts: tuple[Part, ...]
    first: Part | None = None
    corner: tuple[NotNegative, float, float] = (0.0, 0.0, 0.0)
    levels: Mapping[Literal["a", "b"], Count] = field(default_factory=dict)
    open: bool = True


TEXT = """\
parts:
  - name: one
    spans:
      slow: {low: 1}
      fast: {low: 5, high: 9}
  - {name: two, role: gpu}
corner: [1, 2.5, 3]
levels: {a: 0}
"""


def test_a_document_becomes_the_value_that_its_type_describes() -> None:
    one = Part("one", spans={"slow": Range(1), "fast": Range(5, 9)})
    assert convert(load_yaml(TEXT), Whole) == Whole((one, Part("two", "gpu")), None, (1.0, 2.5, 3.0), {"a": 0})


@pytest.mark.parametrize(
    ("instead", "by", "said"),
    [
        ("name: one", "nam: one", "line 2: parts[0].name: missing; expected a text"),
        ("name: one", "name: ''", "line 2: parts[0].name: expected a text, got ''"),
        ("low: 5,", "low: 0,", "line 5: parts[0].spans.fast.low: expected a positive whole number, got 0"),
        ("low: 5,", "low: 5.0,", "line 5: parts[0].spans.fast.low: expected a positive whole number, got 5.0"),
        ("high: 9", "high: 4", "line 5: parts[0].spans.fast: 4 is below 5"),
        ("role: gpu", "role: npu", "line 6: parts[1].role: expected cpu or gpu, got 'npu'"),
        ("role: gpu", "role: [gpu]", "line 6: parts[1].role: expected cpu or gpu, got ['gpu']"),
        ("2.5, 3]", "2.5]", "line 7: corner: expected a list of 3, got [1, 2.5]"),
        ("2.5, 3]", "x, 3]", "line 7: corner[1]: expected a number, got 'x'"),
        ("{a: 0}", "{c: 0}", "line 8: levels.c: expected a or b, got 'c'"),
        ("{a: 0}", "{a: -1}", "line 8: levels.a: expected a whole number that is not negative, got -1"),
        ("levels: {a: 0}", "first: 5", "line 8: first: expected a mapping, got 5"),
        ("levels: {a: 0}", "parts: {a: 0}", "line 8: parts: expected a list, got {'a': 0}"),
        ("levels: {a: 0}", "open: 1", "line 8: open: expected true or false, got 1"),
        ("levels: {a: 0}", "other: 1", "line 8: other: unknown; valid: parts, first, corner, levels, open"),
        ("{a: 0}", "{7: 0}", "line 8: levels.7: expected a or b, got 7"),
        ("name: one", "name: one\n    7: 1", "line 2: parts[0]: 7 is not a member's name; valid: name, role, spans"),
    ],
)
def test_a_mistake_is_told_by_file_line_and_member(instead: str, by: str, said: str) -> None:
    text = TEXT.replace(instead, by)
    with pytest.raises(DocumentError) as caught:
        convert(load_yaml(text), Whole, exact=True)
    assert caught.value.in_file("whole.yaml", text) == f"whole.yaml, {said}"


def test_members_that_the_type_does_not_have_are_passed_over_unless_all_must_be_known() -> None:
    raw = load_yaml(TEXT.replace("name: one", "name: one\n    colour: red"))
    assert convert(raw, Whole) == convert(load_yaml(TEXT), Whole)
    assert [(dotted(at), known) for at, known in unknown_members(raw, Whole)] == [
        ("parts[0].colour", ("name", "role", "spans"))
    ]


@pytest.mark.parametrize("data", [b"", b"[", b"NaN", b'{"a": Infinity}', b"1e999", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(DocumentError, match=r"^not valid JSON: .+$"):
        load_json(data)


@pytest.mark.parametrize(
    "text", ["a: [", "\0", "- a\nb", "&a [*a, *b]", "[" * 20_000, "[" * 90_000 + "]" * 90_000, "- " * 90_000]
)
def test_what_is_not_yaml_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(DocumentError, match=r"^not valid YAML: .+$"):
        load_yaml(text)


names = st.sampled_from(["parts", "first", "corner", "levels", "open", "name", "role", "spans", "low", "high", "a"])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.dates()
documents: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | scalars, inner, max_size=4), max_leaves=12
)


@given(documents)
def test_whatever_a_document_holds_it_is_a_value_or_one_line(raw: object) -> None:
    try:
        assert isinstance(convert(raw, Whole, exact=True), Whole)
    except DocumentError as error:
        assert "\n" not in str(error)
