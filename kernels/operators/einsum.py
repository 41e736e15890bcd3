# SPDX-License-Identifier: Apache-2.0
"""``einsum``, taken apart into permutations and one batched product per pair as ATen does it (``Linear.cpp``)."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from ..errors import ShapeError
from ..network import numel
from ..recorder import Recorder
from ..values import Tensor
from . import views
from .layout import reshape, show, view_of
from .matrix import multiply
from .pointwise import mul
from .reduction import reduce
from .registry import operator

_LETTERS = string.ascii_uppercase + string.ascii_lowercase


@operator("einsum")
def einsum(run: Recorder, equation: str, tensors: Sequence[Tensor], path: Any = None) -> Tensor:
    """Any number of operands, contracted from left to right.

    Raises:
        ShapeError: the equation does not describe these operands, repeats a letter within one, or has an ellipsis.
    """
    terms, wanted, sizes = _read(equation, tensors)
    inner = [letter for letter in _LETTERS if letter in sizes and letter not in wanted]
    order = [*wanted, *inner]
    spread = [_spread(run, x, term, order) for x, term in zip(tensors, terms, strict=True)]
    result, seen = spread[0], set(terms[0])
    last = {letter: max(place for place, term in enumerate(terms) if letter in term) for letter in inner}
    if len(spread) == 1:
        summed = [order.index(letter) for letter in inner]
        return reduce(run, "sum", result, summed, False) if summed else result
    alone = [order.index(letter) for letter in inner if last[letter] == 0]
    if alone:
        result = reduce(run, "sum", result, alone, True)
    for place in range(1, len(spread)):
        other = spread[place]
        done = [letter for letter in inner if last[letter] == place]
        own = [order.index(letter) for letter in done if letter not in seen]
        if own:
            other = reduce(run, "sum", other, own, True)
        shared = [order.index(letter) for letter in done if letter in seen]
        result = _pair(run, result, other, shared) if shared else mul(run, result, other)
        seen |= set(terms[place])
    if not inner:
        return result
    return view_of(run, result, result.shape[: len(wanted)], result.strides[: len(wanted)], "squeeze")


def _read(equation: str, tensors: Sequence[Tensor]) -> tuple[list[str], str, dict[str, int]]:
    given, arrow, wanted = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    shapes = ", ".join(show(x.shape) for x in tensors)
    sizes: dict[str, int] = {}
    fits = len(terms) == len(tensors) and all(
        len(term) == x.rank and len(set(term)) == len(term) and set(term) <= set(_LETTERS)
        for term, x in zip(terms, tensors, strict=False)
    )
    if not fits:
        raise ShapeError(f"einsum {equation!r:.80} of shapes {shapes}: expected one distinct letter for each dimension")
    for term, x in zip(terms, tensors, strict=True):
        for letter, size in zip(term, x.shape, strict=True):
            if sizes.get(letter, 1) not in (1, size) and size != 1:
                raise ShapeError(f"einsum {equation!r:.80} of shapes {shapes}: sizes of {letter} differ")
            sizes[letter] = max(size, sizes.get(letter, 1))
    if not arrow:
        wanted = "".join(sorted(letter for letter in sizes if given.count(letter) == 1))
    if not set(wanted) <= set(sizes) or len(set(wanted)) != len(wanted):
        raise ShapeError(f"einsum {equation!r:.80} asks for dimensions that its operands do not have")
    return terms, wanted, sizes


def _spread(run: Recorder, x: Tensor, term: str, order: Sequence[str]) -> Tensor:
    """A view with one dimension for each letter, of size 1 where the operand lacks it."""
    for _ in range(len(order) - len(term)):
        x = views.unsqueeze(run, x, x.rank)
    spare = iter(range(len(term), len(order)))
    return views.permute(run, x, [term.index(letter) if letter in term else next(spare) for letter in order])


def _pair(run: Recorder, left: Tensor, right: Tensor, summed: Sequence[int]) -> Tensor:
    """ATen's ``sumproduct_pair``: dimensions both have, the left alone, those to sum, the right alone; kept as size 1."""
    both: list[int] = []
    rows: list[int] = []
    columns: list[int] = []
    inner = list(summed)
    for place in range(left.rank):
        if place in summed:
            continue
        in_left, in_right = left.shape[place] != 1, right.shape[place] != 1
        (both if in_left and in_right else rows if in_left else columns).append(place)
    sizes = [max(one, two) for one, two in zip(left.shape, right.shape, strict=True)]

    def count(places: Sequence[int]) -> int:
        return numel([sizes[place] for place in places])

    first = views.permute(run, left, [*both, *rows, *inner, *columns])
    flat_left = reshape(run, first, (count(both), count(rows), count(inner)))
    second = views.permute(run, right, [*both, *inner, *columns, *rows])
    flat_right = reshape(run, second, (count(both), count(inner), count(columns)))
    product = multiply(run, flat_left, flat_right)
    laid = [*both, *rows, *inner, *columns]
    shape = [1 if place in inner else sizes[place] for place in laid]
    result = view_of(run, product, shape, None, "view")
    return views.permute(run, result, [laid.index(place) for place in range(len(laid))])
