# SPDX-License-Identifier: Apache-2.0
"""Grammar of the inputs that a network is decomposed for.

| | |
|---|---|
| ``1x3x224x224``, ``1x128:int64``, ``scalar:bool`` | a tensor; by default of the file's element type, or float32 |
| ``1x3x224x224:fp16`` | the same by a short name: fp16, bf16, fp32, fp64 |
| ``2:int64=7,5`` | a tensor whose numbers steer the network, such as sequence lengths |
| ``16000:int``, ``0.5:float``, ``nearest:str``, ``true``, ``false``, ``none`` | plain values |
| ``mask=1x128:bool``, ``sr=16000:int`` | any of these by name instead of order |

Applications import this module too: it loads the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from .errors import ModelError, ShapeError
from .execution import PHASES, Phase
from .network import DTYPE_BYTES, PLAIN_TYPES, TensorSpec, numel
from .text import valid_instead

__all__ = ["parse_input", "read_input"]

_NAME = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_.]{0,200})=(?P<rest>.*)", re.DOTALL)
_FORM = re.compile(r"(?P<shape>[0-9]+(?:x[0-9]+)*|scalar)(?::(?P<dtype>[^=]*)(?:=(?P<numbers>.*))?)?")
_WORDS: dict[str, tuple[str, bool | None]] = {"true": ("flag", True), "false": ("flag", False), "none": ("none", None)}
_PLAIN: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str}
_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "flag": (bool,), "str": (str,)}
SHORT_TYPES: Mapping[str, str] = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
_MOST_DIMENSIONS = 16
_LARGEST_SIZE = (1 << 31) - 1
_DIGITS = 20  # of a size; no size has more
_MOST_NUMBERS = 64
_LONGEST_TEXT = 200


def were_given(inputs: Sequence[tuple[str, Any]]) -> str:
    phases = f"; {' and '.join(PHASES)} are asked of language models (GGUF, safetensors)"
    return f"{len(inputs)} were given{phases if any(name in PHASES for name, _ in inputs) else ''}"


def parse_input(text: str) -> TensorSpec:
    """Read one input in any of the forms above, or raise ShapeError.

    Examples:
        >>> print(parse_input("ids=1x16:int64"))
        ids=1x16:int64
    """
    text = text.strip()
    named = _NAME.fullmatch(text)
    name, rest = (named["name"], named["rest"]) if named else ("", text)
    if rest in _WORDS:
        kind, word = _WORDS[rest]
        return TensorSpec((), kind, name, None if word is None else (word,))
    value, colon, kind = rest.rpartition(":")
    if colon and kind in _PLAIN:
        return TensorSpec((), kind, name, (_converted(kind, value, text),))
    match = _FORM.fullmatch(rest)
    if match is None:
        raise ShapeError(
            f"input {text!r:.60}: expected sizes joined by x, or scalar, and an element type, like 1x3x224x224:float32; or "
            "a value that is no tensor, like 16000:int, 0.5:float, true, none; either may have a name, like sr=16000:int"
        )
    shape = () if match["shape"] == "scalar" else tuple(int(size[:_DIGITS]) for size in match["shape"].split("x"))
    spec = input_spec(shape, match["dtype"])
    if match["numbers"] is None:
        return replace(spec, name=name)
    numbers = match["numbers"].split(",")
    if numel(shape) != len(numbers) or len(numbers) > _MOST_NUMBERS:
        raise ShapeError(
            f"input {text!r:.60}: {len(numbers)} numbers for {numel(shape)} elements; expected one for each, at most "
            f"{_MOST_NUMBERS}"
        )
    return TensorSpec(spec.shape, spec.dtype, name, tuple(_converted(spec.dtype, item, text) for item in numbers))


def _converted(kind: str, value: str, text: str) -> Any:
    try:
        if kind == "str":
            return value[:_LONGEST_TEXT]
        if kind == "bool":
            return {"true": True, "false": False, "1": True, "0": False}[value]
        number = float(value[:_DIGITS]) if "float" in kind else int(value[:_DIGITS])
    except (KeyError, ValueError):
        raise ShapeError(f"input {text!r:.60}: {value!r:.30} is no value of type {kind:.20}, like 16000:int") from None
    if not abs(number) < 1 << 63:
        raise ShapeError(f"input {text!r:.60}: {value!r:.30} leaves the range of 64-bit numbers")
    return number


def read_input(data: Mapping[str, Any]) -> TensorSpec:
    """Read the JSON form of an input: ``shape``, ``dtype``, and optional ``name`` and ``value``; raises ShapeError.

    Examples:
        >>> print(read_input({"shape": [1, 3, 224, 224], "dtype": "float16"}))
        1x3x224x224:float16
    """
    try:
        spec = TensorSpec.from_json(data)
    except (KeyError, TypeError, ValueError, ModelError) as error:
        if "shape" in data and data.get("dtype") not in (None, *DTYPE_BYTES, *PLAIN_TYPES):
            return input_spec(data["shape"], data["dtype"])
        raise ShapeError(
            f"input {dict(data)!r:.80}: expected shape, dtype, and name and value where it has them ({error})"
        ) from error
    count = 0 if spec.value is None else len(spec.value)
    if spec.is_plain:
        fits = (
            not spec.shape
            and count == (spec.dtype != "none")
            and all(isinstance(x, _TYPES[spec.dtype]) for x in spec.value or ())
        )
    else:
        input_spec(spec.shape, spec.dtype)
        fits = spec.value is None or (count == numel(spec.shape) and not any(isinstance(x, str) for x in spec.value))
    if not fits or count > _MOST_NUMBERS:
        raise ShapeError(
            f"input {spec!s:.80}: its value does not fit its type and shape; at most {_MOST_NUMBERS} numbers are taken"
        )
    return spec


def input_spec(shape: Sequence[int], dtype: str | None = None) -> TensorSpec:
    """The input of this shape and element type, by default the file's or float32; raises ShapeError."""
    if 0 in shape and (len(shape) < 3 or not shape[0]):  # a cache of 3 or 4 dimensions may be empty
        raise ShapeError(f"input of shape {_joined(shape)}: a size of 0 leaves nothing to run")
    if len(shape) > _MOST_DIMENSIONS or not all(0 <= size <= _LARGEST_SIZE for size in shape):
        raise ShapeError(
            f"input of shape {_joined(shape)}: expected at most {_MOST_DIMENSIONS} sizes of 1 to {_LARGEST_SIZE}, "
            "as in 1x3x224x224"
        )
    own = "float32" if dtype is None else SHORT_TYPES.get(dtype, dtype)
    if own not in DTYPE_BYTES:
        valid = valid_instead(own, [*DTYPE_BYTES, *SHORT_TYPES])
        raise ShapeError(f"input of element type {dtype!r:.40}{valid}, as in 1x3x224x224:float32")
    return TensorSpec(tuple(shape), own, typed=dtype is not None)


def phase_of(inputs: Sequence[TensorSpec]) -> Phase | None:
    """Phase of a language model that the inputs request; None for any other network."""
    if len(inputs) == 1 and inputs[0].dtype == "int":
        return next((phase for phase in PHASES if inputs[0].name == phase), None)
    return None


def _joined(shape: Sequence[int]) -> str:
    return f"{'x'.join(map(str, shape)):.60}"
