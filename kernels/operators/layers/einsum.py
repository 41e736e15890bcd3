# SPDX-License-Identifier: Apache-2.0
"""``einsum``, split into permutations and one batched product per pair as in ATen (``Linear.cpp``)."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from ...errors import ShapeError
from ...network import numel
from ..layout import reshape, show, view_of
from ..memory import views
from ..memory.rearranging import diagonal
from ..pointwise import mul
from ..recorder import Recorder
from ..reduction import reduce
from ..registry import operator
from ..values import Tensor
from .matrix import multiply

_LETTERS = string.ascii_uppercase + string.ascii_lowercase


@operator("einsum")
def einsum(recorder: Recorder, equation: str, tensors: Sequence[Tensor], path: Any = None) -> Tensor:
    """Contract operands from left to right. Raises ShapeError."""
    terms, wanted, sizes = _read(equation, tensors)
    tensors = [_diagonal(recorder, x, term) for x, term in zip(tensors, terms, strict=True)]
    terms = [list(dict.fromkeys(term)) for term in terms]
    inner = sorted((letter for letter in sizes if letter not in wanted), key=_rank)
    order = [*wanted, *inner]
    spread = [_spread(recorder, x, term, order) for x, term in zip(tensors, terms, strict=True)]
    # Dimensions of size 1 need no sum.
    wide = [{letter for letter in inner if x.shape[order.index(letter)] != 1} for x in spread]
    result, seen = spread[0], set(wide[0])
    last = {letter: max((place for place, letters in enumerate(wide) if letter in letters), default=-1) for letter in inner}
    if len(spread) == 1:
        summed = [order.index(letter) for letter in inner]
        return reduce(recorder, "sum", result, summed, False) if summed else result
    alone = [order.index(letter) for letter in inner if last[letter] == 0]
    if alone:
        result = reduce(recorder, "sum", result, alone, True)
    for place in range(1, len(spread)):
        other = spread[place]
        done = [letter for letter in inner if last[letter] == place]
        own = [order.index(letter) for letter in done if letter not in seen]
        if own:
            other = reduce(recorder, "sum", other, own, True)
        shared = [order.index(letter) for letter in done if letter in seen]
        result = _pair(recorder, result, other, shared) if shared else mul(recorder, result, other)
        seen |= wide[place]
    if not inner:
        return result
    return view_of(recorder, result, result.shape[: len(wanted)], result.strides[: len(wanted)], "squeeze")


def _read(equation: str, tensors: Sequence[Tensor]) -> tuple[list[list[str]], list[str], dict[str, int]]:
    """Letters of each operand and of the result, and their sizes.

    Dimensions under an ellipsis are numbered from the right, as they broadcast: ``"...2"``, ``"...1"``, ``"...0"``.
    """
    given, arrow, asked = equation.replace(" ", "").partition("->")
    texts = given.split(",")
    shapes = ", ".join(show(x.shape) for x in tensors)
    if len(texts) != len(tensors):
        raise ShapeError(f"einsum {equation!r:.80} of shapes {shapes}: expected one term for each operand")
    terms, hidden = [], 0
    for text, x in zip(texts, tensors, strict=True):
        covered = x.rank - len(text.replace("...", "", 1))
        term = _letters(text, covered)
        if len(term) != x.rank or not set(text.replace("...", "", 1)) <= set(_LETTERS):
            raise ShapeError(f"einsum {equation!r:.80} of shapes {shapes}: expected one letter for each dimension")
        terms.append(term)
        hidden = max(hidden, covered)
    sizes: dict[str, int] = {}
    for term, x in zip(terms, tensors, strict=True):
        for letter, size in zip(term, x.shape, strict=True):
            if sizes.get(letter, 1) not in (1, size) and size != 1:
                raise ShapeError(f"einsum {equation!r:.80} of shapes {shapes}: sizes of {letter} differ")
            sizes[letter] = max(size, sizes.get(letter, 1))
    spread = _letters("...", hidden)
    wanted = _letters(asked, hidden) if arrow else [*spread, *sorted(c for c in _LETTERS if given.count(c) == 1)]
    if not set(wanted) <= set(sizes) or len(set(wanted)) != len(wanted):
        raise ShapeError(f"einsum {equation!r:.80} asks for dimensions that its operands do not have")
    return terms, wanted, sizes


def _rank(letter: str) -> tuple[int, int]:
    return (1, _LETTERS.index(letter)) if letter in _LETTERS else (0, -int(letter[3:]))


def _letters(text: str, covered: int) -> list[str]:
    before, dots, after = text.partition("...")
    return [*before, *(f"...{place}" for place in reversed(range(covered)) if dots), *after]


def _diagonal(recorder: Recorder, x: Tensor, term: Sequence[str]) -> Tensor:
    left = list(term)
    for letter in dict.fromkeys(term):
        while left.count(letter) > 1:
            first = left.index(letter)
            second = left.index(letter, first + 1)
            x = diagonal(recorder, x, 0, first, second)
            x = views.movedim(recorder, x, -1, first)
            del left[second]
    return x


def _spread(recorder: Recorder, x: Tensor, term: Sequence[str], order: Sequence[str]) -> Tensor:
    for _ in range(len(order) - len(term)):
        x = views.unsqueeze(recorder, x, x.rank)
    spare = iter(range(len(term), len(order)))
    return views.permute(recorder, x, [term.index(letter) if letter in term else next(spare) for letter in order])


def _pair(recorder: Recorder, left: Tensor, right: Tensor, summed: Sequence[int]) -> Tensor:
    """ATen's ``sumproduct_pair``: common dimensions, the left's own, the summed, the right's own; kept as size 1.

    Operands are swapped if all of the right's own precede the left's.
    """
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
    if rows and columns and columns[-1] < rows[0]:
        left, right, rows, columns = right, left, columns, rows

    def count(places: Sequence[int]) -> int:
        return numel([sizes[place] for place in places])

    first = views.permute(recorder, left, [*both, *rows, *inner, *columns])
    flat_left = reshape(recorder, first, (count(both), count(rows), count(inner)))
    second = views.permute(recorder, right, [*both, *inner, *columns, *rows])
    flat_right = reshape(recorder, second, (count(both), count(inner), count(columns)))
    product = multiply(recorder, flat_left, flat_right)
    laid = [*both, *rows, *inner, *columns]
    shape = [1 if place in inner else sizes[place] for place in laid]
    result = view_of(recorder, product, shape, None, "view")
    return views.permute(recorder, result, [laid.index(place) for place in range(len(laid))])
