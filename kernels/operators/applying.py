# SPDX-License-Identifier: Apache-2.0
"""Applying operator rules, and what a message says where one cannot be applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ShapeError, UnsupportedOperator
from .recorder import DataDependent, Recorder
from .registry import rule_of
from .values import ScriptObject, Tensor


def apply_rule(recorder: Recorder, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What an operator makes of its arguments.

    Raises:
        UnsupportedOperator: it has no shape rule.
        ShapeError: it does not take these arguments.
    """
    rule = rule_of(name)
    if rule is None:
        raise UnsupportedOperator(f"operator {spelled(name)} {_why_missing(name)}")
    recorder.account.step()
    try:
        return rule(recorder, *args, **kwargs)
    except DataDependent as error:
        error.operator = error.operator or spelled(name)
        raise
    except RULE_ERRORS as error:
        raise ill_typed(name, args, error) from error


#: What Python raises where a rule is given values of types that its operator does not take.
RULE_ERRORS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError, StopIteration)


def ill_typed(name: str, args: Sequence[Any], error: Exception) -> ShapeError:
    shown = ", ".join(map(_short, args))
    return ShapeError(f"operator {spelled(name)} cannot take these arguments ({shown}): {error}")


def spelled(name: str) -> str:
    """An operator's name with its namespace; without one it is ATen's."""
    return name if "::" in name else f"aten::{name}"


def _short(value: Any) -> str:
    """An argument in a message; containers are not walked, a model may have made them endless."""
    if isinstance(value, (Tensor, ScriptObject, int, float, bool, type(None))):
        return repr(value)[:60]
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, (list, tuple)) and len(value) <= 6 and all(type(item) in (int, float, bool) for item in value):
        return repr(value)[:80]
    return type(value).__name__


def _why_missing(name: str) -> str:
    """What to say of an operator without a rule."""
    base = name.rpartition("::")[2]
    if name.startswith(("quantized::", "_quantized::")) or base.startswith(("quantize_", "quantized_", "fbgemm_")):
        return (
            "of an 8-bit quantised model (or one packed for a CPU) has no shape rule: decompose the model before quantisation"
        )
    return "has no shape rule"
