# SPDX-License-Identifier: Apache-2.0
"""Boundary of an incomplete list of launches."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

#: Operator of a boundary that was stored as a sentence, without one.
UNNAMED = "unnamed"

_SENTENCE = "decomposed up to "
_CHARACTERS = 1024
_Label: TypeAlias = Annotated[str, Meta(min_length=1, max_length=_CHARACTERS)]


class Boundary(Struct, frozen=True):
    """The operator at which a list of launches ends, and its place.

    A caller accepts it by its name with namespace (``torchvision::nms``, ``onnx::NonZero``, ``prim::If``).
    """

    operator: _Label
    place: _Label
    reason: _Label

    def __str__(self) -> str:
        return f"{_SENTENCE}{self.operator} at {self.place}: {self.reason}"

    @property
    def note(self) -> str:
        return f"{self}; the rest is not counted"

    def to_json(self) -> dict[str, str]:
        return {"operator": self.operator, "place": self.place, "reason": self.reason}

    @classmethod
    def from_json(cls, data: Any) -> Boundary | None:
        """Read the JSON form, or the older sentence; raises KeyError or TypeError."""
        if data is None or data == "":
            return None
        if isinstance(data, str):
            place, colon, reason = _text(data).removeprefix(_SENTENCE).partition(": ")
            return cls(UNNAMED, place if colon else "a place unknown", reason if colon else place)
        return cls(_text(data["operator"]), _text(data["place"]), _text(data["reason"]))


def _text(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _CHARACTERS:
        raise TypeError(f"a boundary's members are strings of 1 to {_CHARACTERS} characters")
    return value
