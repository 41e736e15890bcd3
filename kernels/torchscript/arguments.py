# SPDX-License-Identifier: Apache-2.0
"""Spreads the given input tensors over a method's parameters by their declared types."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from ..errors import ShapeError
from ..operators.values import NamedInputs, Tensor


def arguments(method: str, signature: ast.arguments, tensors: Sequence[Tensor]) -> dict[str, Any]:
    """The method's arguments by name.

    In order, a ``Tensor`` takes one input, a ``Tuple`` as many as it has items, a ``List[Tensor]`` all that the parameters
    after it leave over, and a ``Dict[str, Tensor]`` the same, under the names the model looks up, in that order (the rest
    under ``"0"``, ``"1"`` and so on). A parameter with a default or of an ``Optional`` type may go without.

    Raises:
        ShapeError: the inputs do not go round, or are too many; the text lists the parameters.
    """
    parameters = signature.args[1:]
    optional = {parameter.arg for parameter in parameters[len(parameters) - len(signature.defaults) :] if signature.defaults}
    left = list(tensors)
    made: dict[str, Any] = {}
    for place, parameter in enumerate(parameters):
        later = sum(_needed(other.annotation) for other in parameters[place + 1 :] if other.arg not in optional)
        kind = _outer(parameter.annotation)
        if kind == "Optional" and not left:
            made[parameter.arg] = None
        elif left or kind in ("List", "Dict"):
            taken = _take(parameter.annotation, left, len(left) - later)
            if taken is _NOTHING:
                if parameter.arg not in optional:
                    raise ShapeError(_wanted(method, parameters, len(tensors)))
                continue
            made[parameter.arg] = taken
        elif parameter.arg not in optional:
            raise ShapeError(_wanted(method, parameters, len(tensors)))
    if left:
        raise ShapeError(_wanted(method, parameters, len(tensors)))
    return made


class _Nothing:
    """No value could be made."""


_NOTHING = _Nothing()


def _take(annotation: ast.expr | None, left: list[Tensor], at_most: int) -> Any:
    """A value of the annotated type from the tensors that are left."""
    kind = _outer(annotation)
    inner = annotation.slice if isinstance(annotation, ast.Subscript) else None
    if kind in ("Tensor", "") and left:
        return left.pop(0)
    if kind == "Optional":
        return _take(inner, left, at_most)
    if kind == "Union" and isinstance(inner, ast.Tuple):
        kinds = [_outer(item) for item in inner.elts]
        return _take(next((item for item, one in zip(inner.elts, kinds, strict=True) if one == "Tensor"), None), left, at_most)
    if kind == "List" and _outer(inner) == "Tensor":
        return [left.pop(0) for _ in range(max(at_most, 0))]
    if kind == "Dict":
        return NamedInputs((str(place), left.pop(0)) for place in range(max(at_most, 0)))
    if kind == "Tuple" and isinstance(inner, ast.Tuple):
        items = [_take(item, left, 1) for item in inner.elts]
        return _NOTHING if any(item is _NOTHING for item in items) else tuple(items)
    return _NOTHING


def _outer(annotation: ast.expr | None) -> str:
    node = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return node.id if isinstance(node, ast.Name) else ""


def _needed(annotation: ast.expr | None) -> int:
    """How many tensors a parameter cannot do without."""
    kind = _outer(annotation)
    if kind == "Tuple" and isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        return sum(_needed(item) for item in annotation.slice.elts)
    return 1 if kind == "Tensor" else 0


def _wanted(method: str, parameters: Sequence[ast.arg], given: int) -> str:
    described = ", ".join(f"{p.arg}: {ast.unparse(p.annotation) if p.annotation else 'Tensor'}"[:80] for p in parameters)
    return f"{method}() takes the inputs ({described}); {given} were given"
