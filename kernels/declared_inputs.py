# SPDX-License-Identifier: Apache-2.0
"""Inputs declared by a model's file, used if not given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from .errors import ShapeError
from .network import DTYPE_BYTES, TensorSpec

#: Sizes tried for open dimensions of an example, after 1: of images, tokens, audio.
_TRIED = (224, 128, 640, 32, 512)


class DeclaredInput(Struct, frozen=True):
    """An input tensor that a file declares, and the sizes of the export as an ``example``.

    ``sizes`` has an integer, or for an open dimension a text, which may be empty; it is None for an open rank.
    """

    name: str
    sizes: tuple[int | str, ...] | None
    dtype: str
    example: tuple[int, ...] | None = None

    def __str__(self) -> str:
        sizes = "?" if self.sizes is None else "x".join(str(size or "?") for size in self.sizes) or "scalar"
        return f"{self.name} {sizes}:{self.dtype}"[:120]


class OpenSizes(ShapeError):
    """Sizes of inputs are neither given nor declared: of ``missing``, with known sizes filled in, unlike the ``given`` ones."""

    def __init__(
        self, declared: Sequence[DeclaredInput], missing: Sequence[DeclaredInput], given: Sequence[TensorSpec]
    ) -> None:
        described = ", ".join(map(str, declared))
        super().__init__(f"the network takes the inputs ({described}); say the shape of its inputs whose sizes are open")
        self.missing, self.given = tuple(missing), tuple(given)

    def examples(self) -> Iterator[list[TensorSpec]]:
        shapes: list[list[tuple[int, ...]]] = [[item.example or () for item in self.missing]]
        if not all(item.example for item in self.missing):
            shapes = []
        if all(item.sizes is not None for item in self.missing):
            shapes += [[_filled(item.sizes or (), tried) for item in self.missing] for tried in _TRIED]
        for each in shapes:
            made = (TensorSpec(shape, item.dtype, item.name) for item, shape in zip(self.missing, each, strict=True))
            yield [*self.given, *made]


def _filled(sizes: Sequence[int | str], tried: int) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else 1 if place == 0 else tried for place, size in enumerate(sizes))


def resolved(given: Sequence[TensorSpec], declared: Sequence[DeclaredInput]) -> list[TensorSpec]:
    """The given inputs, with the file's element types as defaults, and the file's other inputs.

    An open size is that of a given input with the same name; else it raises OpenSizes.
    """
    named = {spec.name: spec for spec in given if spec.name}
    rest = iter([spec for spec in given if not spec.name and not spec.is_plain])
    pairs = [(item, named[item.name] if item.name in named else next(rest, None)) for item in declared]
    types = {id(spec): item.dtype for item, spec in pairs if spec is not None and item.dtype in DTYPE_BYTES}
    made = [spec if spec.typed else replace(spec, dtype=types.get(id(spec), spec.dtype), typed=True) for spec in given]
    sizes = {
        size: own
        for item, spec in pairs
        if spec is not None and item.sizes is not None and len(item.sizes) == len(spec.shape)
        for size, own in zip(item.sizes, spec.shape, strict=True)
        if isinstance(size, str) and size
    }
    left = [_bound(item, sizes) for item, spec in pairs if spec is None and item.dtype in DTYPE_BYTES]
    fixed = [item for item in left if item.sizes is not None and all(isinstance(size, int) for size in item.sizes)]
    if not given and len(declared) == 1:
        fixed = [replace(item, name="") for item in fixed]
    made += [TensorSpec(tuple(map(int, item.sizes or ())), item.dtype, item.name) for item in fixed]
    if len(fixed) < len(left):
        raise OpenSizes(declared, [item for item in left if item not in fixed], made)
    return made


def _bound(item: DeclaredInput, sizes: dict[str, int]) -> DeclaredInput:
    if item.sizes is None:
        return item
    return replace(item, sizes=tuple(sizes.get(size, size) if isinstance(size, str) else size for size in item.sizes))
