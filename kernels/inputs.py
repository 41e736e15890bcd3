# SPDX-License-Identifier: Apache-2.0
"""The inputs that a network is decomposed for, as people and programs write them: ``SHAPE[:DTYPE]``.

Applications read their inputs by this module too: it loads the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .errors import ShapeError
from .network import DTYPE_BYTES, TensorSpec

_FORM = re.compile(r"(?P<shape>[0-9]+(?:x[0-9]+)*|scalar)(?::(?P<dtype>.*))?")
_MOST_DIMENSIONS = 16
_LARGEST_SIZE = (1 << 31) - 1
_DIGITS = 20  # of a size; more are not looked at, for no size has so many


def parse_input(text: str) -> TensorSpec:
    """Read ``1x3x224x224``, ``1x3x224x224:float16`` or ``scalar:int64``; the element type is float32 unless given.

    Raises:
        ShapeError: it is not of that form, or no such tensor can be an input.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ShapeError(
            f"input {text!r:.60}: expected sizes joined by x, or scalar, and an element type, like 1x3x224x224:float32"
        )
    shape = () if match["shape"] == "scalar" else tuple(int(size[:_DIGITS]) for size in match["shape"].split("x"))
    return input_spec(shape, "float32" if match["dtype"] is None else match["dtype"])


def input_spec(shape: Sequence[int], dtype: str = "float32") -> TensorSpec:
    """The input of this shape and element type.

    Raises:
        ShapeError: it has too many dimensions, one that is not positive or too large, or an element type that is not known.
    """
    if 0 in shape:
        raise ShapeError(f"input of shape {_joined(shape)}: a size of 0 leaves nothing to run")
    if len(shape) > _MOST_DIMENSIONS or not all(0 < size <= _LARGEST_SIZE for size in shape):
        raise ShapeError(
            f"input of shape {_joined(shape)}: expected at most {_MOST_DIMENSIONS} sizes of 1 to {_LARGEST_SIZE}, "
            "as in 1x3x224x224"
        )
    if dtype not in DTYPE_BYTES:
        raise ShapeError(f"input of element type {dtype!r:.40}; valid: {', '.join(DTYPE_BYTES)}, as in 1x3x224x224:float32")
    return TensorSpec(tuple(shape), dtype)


def _joined(shape: Sequence[int]) -> str:
    return f"{'x'.join(map(str, shape)):.60}"
