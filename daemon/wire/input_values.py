# SPDX-License-Identifier: Apache-2.0
"""Requests of applications, in any of their forms, as the interface has them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias

from ...kernels.errors import GridError, ShapeError
from ...kernels.units import AXES
from ..errors import InputError, UsageError
from . import protocol

if TYPE_CHECKING:
    from ...kernels.network import TensorSpec

Configuration: TypeAlias = "str | Mapping[str, int] | Sequence[int]"
"""Text (``"1190.4,905.25,1600"``; of a lease also ``"max"``, ``"max,612,max"`` or ``",612,"``), or the three clocks by name or
in order, in kHz, Hz and Hz.
"""


class InputValue(dict[str, Any]):
    """An input as sent, with items of its value as JSON texts."""


def tensor(item: Any) -> InputValue:
    if isinstance(item, InputValue):
        return item
    try:
        spec = _spec(item)
    except ShapeError as error:
        raise InputError(str(error)) from error
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"input {item!r:.80}: expected a shape such as 1x3x224x224, with :int64 or so for another type"
        ) from error
    asked = InputValue(spec.to_json())
    if "value" in asked:
        asked["value"] = [json.dumps(item) for item in asked["value"]]
    return asked


def _spec(item: Any) -> TensorSpec:
    from ...kernels.inputs import input_spec, parse_input, read_input  # not needed without a model
    from ...kernels.network import TensorSpec

    if isinstance(item, TensorSpec):
        return item
    if isinstance(item, str):
        return parse_input(item)
    if isinstance(item, Mapping):
        return read_input({**item, "shape": [index(size) for size in item["shape"]]})
    if hasattr(item, "shape"):
        return input_spec([index(size) for size in item.shape], str(item.dtype).rpartition(".")[2])
    return input_spec([index(size) for size in item])


def configuration(value: Configuration | None) -> dict[str, int] | None:
    if value is None or isinstance(value, Mapping):
        return None if value is None else dict(value)
    from ...kernels.grid import FrequencyConfiguration, parse_configuration

    try:
        clocks = parse_configuration(value) if isinstance(value, str) else FrequencyConfiguration(*map(int, value))
    except GridError as error:
        raise UsageError(str(error)) from error
    except (TypeError, ValueError) as error:
        raise UsageError(f"configuration {value!r:.80}: expected {', '.join(AXES)}") from error
    return clocks._asdict()


def clocks(value: Configuration | None) -> dict[str, Any]:
    """Parameters of ``Hold`` for a configuration; as text if it depends on the daemon's levels."""
    if isinstance(value, str):
        from ...kernels.grid import needs_levels

        if needs_levels(value):
            return {"configuration_text": value}
    return {"configuration": configuration(value)}


def names(accepted: Sequence[str]) -> list[str] | None:
    return ([accepted] if isinstance(accepted, str) else list(accepted)) or None


def short(text: str | None) -> str | None:
    return None if text is None else text[: protocol.TEXT_CHARACTERS]


def message(interface: str, method: str, parameters: Mapping[str, Any], *, more: bool = False) -> bytes:
    for name, value in parameters.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{name}={value:g}: expected a number")
    given = {name: value for name, value in parameters.items() if value is not None}
    try:
        several = {"more": True} if more else {}
        encoded = protocol.encode({"method": f"{interface}.{method}", "parameters": given, **several})
    except ValueError as error:
        raise UsageError(f"{method}: {error}") from error
    if len(encoded) > protocol.MESSAGE_BYTES:
        raise UsageError(f"{method}: the call has {len(encoded)} bytes; at most {protocol.MESSAGE_BYTES} are taken")
    return encoded
