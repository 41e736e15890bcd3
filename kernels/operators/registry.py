# SPDX-License-Identifier: Apache-2.0
"""The table of operators the reader knows. Adding one is writing one function under :func:`operator`.

A rule takes the :class:`~jetdvfs.kernels.recorder.Recorder` and the operator's arguments under the names and with the defaults
of ATen's schema; it returns what the operator returns and writes down what it launches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Rule = Callable[..., Any]
AnyRule = TypeVar("AnyRule", bound=Rule)

_RULES: dict[str, Rule] = {}


def operator(*names: str) -> Callable[[AnyRule], AnyRule]:
    """Register a rule; names without a namespace are ATen's (``relu_``), others are written out (``prim::device``)."""

    def register(rule: AnyRule) -> AnyRule:
        for name in names:
            if name in _RULES:
                raise ValueError(f"operator {name} has two rules")
            _RULES[name] = rule
        return rule

    return register


def rule_of(name: str) -> Rule | None:
    """The rule of an operator, or ``None`` for one the reader does not know."""
    return _RULES.get(name)


def known_operators() -> tuple[str, ...]:
    return tuple(sorted(_RULES))
