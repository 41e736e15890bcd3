# SPDX-License-Identifier: Apache-2.0
"""What single calls of PyTorch's dispatcher do with the numbers in a tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

#: The number with which a call returns what it was given.
NEUTRAL = {"aten::mul": 1, "aten::div": 1, "aten::add": 0, "aten::sub": 0}


def is_neutral(number: Any, neutral: int) -> bool:
    """Whether a number counts as another one where the newer exporter simplifies a graph: by the bounds of its rules."""
    return isinstance(number, (int, float)) and math.isclose(number, neutral, rel_tol=1e-5, abs_tol=1e-8)


def moved(func: Any, args: Any, kwargs: Any) -> str:
    """Whether a call gives back the numbers it is given, laid out in another way or as wider integers."""
    if func._schema.name == "aten::clone" and 0 not in _strides(args[0]):
        return "layout"
    if func._schema.name == "aten::_to_copy":
        made = kwargs.get("dtype") or args[0].dtype
        if made == args[0].dtype:
            return "layout"
        if not (made.is_floating_point or made.is_complex or args[0].is_floating_point() or args[0].is_complex()):
            return "widened" if made.itemsize >= args[0].dtype.itemsize and made != torch.bool else ""
    return ""


def _strides(tensor: torch.Tensor) -> list[int]:
    """Of the dimensions along which there is more than one number."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def all_tensors(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in what a model returns."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from all_tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from all_tensors(item)
    elif hasattr(value, "__dict__"):
        yield from all_tensors(vars(value))


def looks_at_data(func: Any, args: Any) -> bool:
    """Whether the numbers in a tensor decide what a call returns, or the shape of it, by PyTorch's own account.

    It has no tag for packing sequences, though how long they are decides how many rows come out (``PackedSequence.cpp``).
    """
    if func._schema.name == "aten::_pack_padded_sequence":
        return True
    if func._schema.name == "aten::index":
        return any(tensor is not None and tensor.dtype in (torch.bool, torch.uint8) for tensor in args[1])
    return torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags
