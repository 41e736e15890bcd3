# SPDX-License-Identifier: Apache-2.0
"""Strides of views and of pointwise outputs, held against PyTorch's: they decide where a network copies."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetdvfs.kernels.operators.layout import elementwise_strides, view_strides
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
@given(st.lists(viewed(), min_size=1, max_size=3))
def test_pointwise_outputs_are_laid_out_as_pytorch_lays_them_out(cases: list[Viewed]) -> None:
    shape = cases[0][0]
    operands = [(shape, cases[0][1]), *((case[0], case[1]) for case in cases[1:] if case[0] == shape)]
    theirs = torch.empty_strided(*operands[0], device="meta")
    for other in operands[1:]:
        theirs = theirs + torch.empty_strided(*other, device="meta")
    tensors = [Tensor(size, "float32", steps) for size, steps in operands]
    made = tensors[0]
    for tensor in tensors[1:]:
        made = Tensor(shape, "float32", elementwise_strides(shape, [made, tensor]))
    assert all(one == two for one, two, size in zip(made.strides, theirs.stride(), shape, strict=True) if size > 1)
