# SPDX-License-Identifier: Apache-2.0
"""Strides of views and of pointwise outputs, held against PyTorch's: they decide where a network copies."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetdvfs.kernels.operators.layout import elementwise_strides, preserved, view_strides
from jetdvfs.kernels.operators.values import Tensor, contiguous_strides

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of memory layout; it is not installed")

pytestmark = pytest.mark.torch
#: Shape and strides of a tensor, and another shape.
Viewed = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
FEW = settings(max_examples=200, deadline=None, derandomize=True)


@st.composite
def viewed(draw: st.DrawFn) -> Viewed:
    """A permuted tensor's shape and strides, and a shape of as many elements."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    order = draw(st.permutations(range(len(shape))))
    strides = contiguous_strides(shape)
    factors = [factor for size in shape for factor in ([2, 2] if size == 4 else [size])]
    wanted: list[int] = [1]
    for factor in draw(st.permutations(factors)):
        if draw(st.booleans()):
            wanted.append(factor)
        else:
            wanted[-1] *= factor
    return tuple(shape[d] for d in order), tuple(strides[d] for d in order), tuple(wanted)


@FEW
@given(viewed())
def test_views_are_possible_exactly_where_pytorch_makes_them(case: Viewed) -> None:
    shape, strides, wanted = case
    tensor = torch.empty_strided(shape, strides, device="meta")
    ours = view_strides(shape, strides, wanted)
    try:
        theirs = tensor.view(wanted).stride()
    except RuntimeError:
        assert ours is None
    else:
        assert ours is not None
        pairs = zip(ours, theirs, wanted, strict=True)
        assert all(one == two for one, two, size in pairs if size > 1)
    assert Tensor(shape, "float32", strides).is_contiguous() == tensor.is_contiguous()


@FEW
@given(st.lists(viewed(), min_size=1, max_size=3), st.integers(1, 40), st.booleans())
def test_pointwise_outputs_are_laid_out_as_pytorch_lays_them_out(cases: list[Viewed], odd: int, number: bool) -> None:
    """To the last stride: PyTorch tells channels last by those of dimensions of size 1 too, which may be any number."""
    shape = cases[0][0]
    first = tuple(odd if size == 1 else stride for size, stride in zip(shape, cases[0][1], strict=True))
    operands = [
        (shape, first),
        *((case[0], case[1]) for case in cases[1:] if len(case[0]) == len(shape) and fits(case[0], shape)),
    ]
    theirs = torch.empty_strided(*operands[0])
    made = Tensor(shape, "float32", operands[0][1])
    if number:
        theirs = theirs * 2
        made = Tensor(shape, "float32", elementwise_strides(shape, [made], beside_number=True))
    for size, steps in operands[1:]:
        theirs = theirs + torch.empty_strided(size, steps)
        made = Tensor(shape, "float32", elementwise_strides(shape, [made, Tensor(size, "float32", steps)]))
    assert made.strides == theirs.stride()
    assert Tensor(shape, "float32", preserved(made)).strides == theirs.clone().stride()


def fits(size: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether one shape is broadcast to another without making it larger."""
    return all(one in (1, full) for one, full in zip(size, shape, strict=True))
