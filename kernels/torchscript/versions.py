# SPDX-License-Identifier: Apache-2.0
"""What the version of a TorchScript file says about its operators.

PyTorch writes into each file the newest version that one of its operators needs (caffe2/serialize/versions.h) and, loading an
older file, gives operators whose meaning changed since then the meaning they had
(torch/csrc/jit/operator_upgraders/upgraders_entry.cpp). This is that list as far as it changes what is launched or in which
shape and element type; ``docs/archives.md`` describes it with the rest of the format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import ModelError
from ..operators.values import Tensor

#: Versions that are read. PyTorch 1.4 was the first to write this format, as version 1; 10 is what PyTorch 2.13 knows.
OLDEST, NEWEST = 1, 10

Arguments = tuple[list[Any], dict[str, Any]]


class Upgrade(NamedTuple):
    """How operators are called in files older than a version: their arguments as today's operators take them."""

    operators: tuple[str, ...]
    before: int
    adapt: Callable[[list[Any], dict[str, Any]], Arguments]


def _integer_division(args: list[Any], kwargs: dict[str, Any]) -> Arguments:
    """Division of integer tensors dropped the remainder."""
    values = [*args, *kwargs.values()][:2]
    integers = all(not value.is_floating if isinstance(value, Tensor) else isinstance(value, int) for value in values)
    if not integers or "rounding_mode" in kwargs or not any(isinstance(value, Tensor) for value in values):
        return args, kwargs
    return args, {**kwargs, "rounding_mode": "trunc"}


def _floating_fill(args: list[Any], kwargs: dict[str, Any]) -> Arguments:
    """A tensor filled with an integer or a truth value was a floating-point one, unless a type was given."""
    if kwargs.get("dtype") is not None or len(args) > 2 or len(args) < 2 or not isinstance(args[1], int):
        return args, kwargs
    return [args[0], float(args[1])], kwargs


def _hundred_steps(args: list[Any], kwargs: dict[str, Any]) -> Arguments:
    """The number of steps could be left out, for 100."""
    if len(args) > 2:
        return [*args[:2], 100 if args[2] is None else args[2], *args[3:]], kwargs
    return args, {**kwargs, "steps": 100} if kwargs.get("steps") is None else kwargs


UPGRADES = (
    Upgrade(("div", "div_"), 4, _integer_division),
    Upgrade(("full",), 5, _floating_fill),
    Upgrade(("linspace",), 8, _hundred_steps),
    Upgrade(("logspace",), 9, _hundred_steps),
)


def upgrades(version: int) -> dict[str, Callable[[list[Any], dict[str, Any]], Arguments]]:
    """The operators that a file of this version calls in an older way, and how to read their arguments."""
    return {name: upgrade.adapt for upgrade in UPGRADES if version < upgrade.before for name in upgrade.operators}


def parse_version(text: bytes) -> int:
    """The number in a file's ``version`` entry.

    Raises:
        ModelError: it is not one that is read.
    """
    number = text.strip()
    if not number.isdigit() or len(number) > 9 or not OLDEST <= int(number) <= NEWEST:
        raise ModelError(f"archive is of format version {number[:20]!r}; versions {OLDEST} to {NEWEST} are read")
    return int(number)
