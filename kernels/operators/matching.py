# SPDX-License-Identifier: Apache-2.0
"""Giving the inputs of a graph what was given for them, by name or in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def matched(wanted: Sequence[str], inputs: Sequence[tuple[str, Any]]) -> dict[str, Any] | None:
    """A value for each name: those given by that name, the others in order; ``None`` where they do not go round."""
    named = {name: value for name, value in inputs if name}
    plain = iter([value for name, value in inputs if not name])
    if len(inputs) != len(wanted) or not named.keys() <= set(wanted):
        return None
    return {name: named[name] if name in named else next(plain) for name in wanted}
