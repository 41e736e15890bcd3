# SPDX-License-Identifier: Apache-2.0
"""Closures that TorchScript code becomes, and the interface of their interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

from ..errors import ModelError
from ..operators.recorder import DataDependent, Recorder
from ..operators.values import ScriptObject, Tensor

#: A running function's variables by name.
Frame = dict[str, Any]
Expression = Callable[[Frame], Any]
#: Returns None to go on, a 1-tuple to return its item, or a word to leave or repeat a loop.
Statement = Callable[[Frame], Any]

#: Key of a frame's current line; no variable can have this name.
LINE = "line#"


class Runtime(Protocol):
    """The model's functions and objects, and the operators' rules, for translated code that runs."""

    recorder: Recorder

    def named(self, qualified: str) -> Any:
        """A function or class of the model, or a constant of one of its classes, by its qualified name."""

    def invoke(self, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function, or build an object of a class."""

    def call_method(self, target: ScriptObject, name: str, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
        """Run a method of a module or object."""

    def attribute(self, target: Any, name: str) -> Any:
        """``target.name``."""

    def constant(self, name: str) -> Any:
        """``CONSTANTS.c12``."""

    def means_today(self, name: str) -> bool:
        """True if an operator of the file's version is called like today's."""

    def operate(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Apply an operator's rule, as the file's version means it."""


def refusal(text: str, error: type[ModelError]) -> Callable[[Frame], NoReturn]:
    """Code that is refused only if it is reached."""

    def refuse(frame: Frame) -> NoReturn:
        raise error(text)

    return refuse


def truth(value: Any) -> bool:
    """The truth of a value, as in ``if``; raises DataDependent for a tensor of unknown value."""
    if isinstance(value, Tensor):
        if value.number is None:
            raise DataDependent("a branch depends on the contents of a tensor", "prim::If")
        return bool(value.number)
    return bool(value)
