# SPDX-License-Identifier: Apache-2.0
"""Distributes the given inputs over a method's parameters by their declared types."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from ..errors import ShapeError
from ..inputs import were_given
from ..operators.values import NamedInputs, Tensor


def arguments(method: str, signature: ast.arguments, inputs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The method's arguments by name, from values with or without names.

    A name is a parameter's, or else a key of the only dictionary among them. In order, a ``Tensor``, a number, a truth value or
    a text takes one input, a ``Tuple`` one per item, a ``List`` all that later parameters leave over, and a ``Dict[str,
    Tensor]`` the same, under the names the model looks up, in that order (the rest under ``"0"``, ``"1"`` and so on). A
    parameter with a default or of an ``Optional`` type may go without.

    Raises:
        ShapeError: too few or too many inputs; the text lists the parameters.
    """
    parameters = signature.args[1:]
    if not inputs and len(parameters) > len(signature.defaults):
        raise ShapeError(_wanted(method, parameters, inputs))
    optional = {parameter.arg for parameter in parameters[len(parameters) - len(signature.defaults) :] if signature.defaults}
    named = {name: value for name, value in inputs if name}
    left = [value for name, value in inputs if not name]
    made: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.arg in named:
            value = [named.pop(parameter.arg)]
            made[parameter.arg] = _take(parameter.annotation, value, 1)
            if made[parameter.arg] is _NOTHING:
                raise ShapeError(_wanted(method, parameters, inputs))
    waiting = [parameter for parameter in parameters if parameter.arg not in made]
    keyed = [parameter.arg for parameter in waiting if _outer(parameter.annotation) == "Dict"]
    if (named and len(keyed) != 1) or len(made) + len(named) + len(left) != len(inputs):
        raise ShapeError(_wanted(method, parameters, inputs))
    for place, parameter in enumerate(waiting):
        later = sum(_needed(other.annotation) for other in waiting[place + 1 :] if other.arg not in optional)
        kind = _outer(parameter.annotation)
        if kind == "Optional" and not left:
            made[parameter.arg] = None
        elif left or kind in ("List", "Dict"):
            taken = _take(parameter.annotation, left, len(left) - later)
            if taken is _NOTHING:
                if kind == "Optional":
                    made[parameter.arg] = None
                elif parameter.arg not in optional:
                    raise ShapeError(_wanted(method, parameters, inputs))
                continue
            if isinstance(taken, NamedInputs) and named:
                taken = NamedInputs({**named, **taken})
            made[parameter.arg] = taken
        elif parameter.arg not in optional:
            raise ShapeError(_wanted(method, parameters, inputs))
    if left:
        raise ShapeError(_wanted(method, parameters, inputs))
    return made


_NOTHING = object()
"""No value could be made."""
#: Types of plain values, by their names in TorchScript.
_PLAIN: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "number": (float, int),
    "bool": (bool,),
    "str": (str,),
}


def _is_plain(value: Any, kind: str) -> bool:
    return isinstance(value, _PLAIN[kind]) and (kind == "bool" or not isinstance(value, bool))


def _take(annotation: ast.expr | None, left: list[Any], at_most: int) -> Any:
    kind = _outer(annotation)
    inner = annotation.slice if isinstance(annotation, ast.Subscript) else None
    if kind in ("Tensor", "") and left and isinstance(left[0], Tensor):
        return left.pop(0)
    if kind in _PLAIN and left and _is_plain(left[0], kind):
        return float(left.pop(0)) if kind == "float" else left.pop(0)
    if kind == "Optional":
        if left and left[0] is None:
            return left.pop(0)
        return _take(inner, left, at_most)
    if kind == "Union" and isinstance(inner, ast.Tuple):
        for item in inner.elts:
            if (taken := _take(item, left, at_most)) is not _NOTHING:
                return taken
        return _NOTHING
    if kind == "List" and _outer(inner) in ("Tensor", "Tuple", "Optional", *_PLAIN):
        made: list[Any] = []
        end = len(left) - at_most
        while len(left) - end >= max(_needed(inner), 1) and (taken := _take(inner, left, len(left) - end)) is not _NOTHING:
            made.append(taken)
        return made
    if kind == "Dict":
        count = 0
        while count < min(at_most, len(left)) and isinstance(left[count], Tensor):
            count += 1
        return NamedInputs((str(place), left.pop(0)) for place in range(count))
    if kind == "Tuple" and isinstance(inner, ast.Tuple):
        whole = list(left)
        items = [_take(item, left, 1) for item in inner.elts]
        if any(item is _NOTHING for item in items):
            left[:] = whole
            return _NOTHING
        return tuple(items)
    return _NOTHING


def _outer(annotation: ast.expr | None) -> str:
    node = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return node.id if isinstance(node, ast.Name) else ""


def _needed(annotation: ast.expr | None) -> int:
    kind = _outer(annotation)
    if kind == "Tuple" and isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        return sum(_needed(item) for item in annotation.slice.elts)
    if kind == "Optional" and isinstance(annotation, ast.Subscript) and _outer(annotation.slice) == "Tuple":
        return 1  # none
    return 1 if kind == "Tensor" or kind in _PLAIN else 0


def _wanted(method: str, parameters: Sequence[ast.arg], inputs: Sequence[tuple[str, Any]]) -> str:
    types = [ast.unparse(p.annotation) if p.annotation else "Tensor" for p in parameters]
    described = ", ".join(f"{p.arg}: {kind}"[:80] for p, kind in zip(parameters, types, strict=True))
    plain = any(kind in text for text in types for kind in _PLAIN)
    how = "; values that are no tensors are like 16000:int, 0.5:float, true, none, by name like sr=16000:int" if plain else ""
    given = were_given(inputs) if inputs else "say the shape of its inputs, each with --input"
    return f"{method}() takes the inputs ({described}); {given}{how}"
