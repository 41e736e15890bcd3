# SPDX-License-Identifier: Apache-2.0
"""Boundary of an incomplete list of launches."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import asdict

_Label: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1024)]


class Boundary(Struct, frozen=True):
    """The operator at which a list of launches ends, and its place.

    A caller accepts it by its name with namespace (``torchvision::nms``, ``onnx::NonZero``, ``prim::If``).
    """

    operator: _Label
    place: _Label
    reason: _Label

    def __str__(self) -> str:
        return f"decomposed up to {self.operator} at {self.place}: {self.reason}"

    @property
    def note(self) -> str:
        return f"{self}; the rest is not counted"

    def to_json(self) -> dict[str, str]:
        return asdict(self)
