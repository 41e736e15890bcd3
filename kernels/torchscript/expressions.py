# SPDX-License-Identifier: Apache-2.0
"""Expressions of TorchScript code as Python closures."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from ..errors import BudgetExceeded, ModelError, UnsupportedOperator
from ..operators import rule_of
from ..operators.recorder import DataDependent
from ..operators.registry import RULE_ERRORS, ill_typed, spelled
from ..operators.values import ScriptObject, Tensor
from .closures import Expression, Frame, Runtime, refusal, truth
from .watching import watched

_ROOTS = frozenset({"torch", "ops", "__torch__", "CONSTANTS"})


class ExpressionTranslator:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._account = runtime.recorder.account
        self._depth = 0

    def enter(self) -> None:
        self._depth += 1
        self._account.node()
        if self._depth > self._account.budget.ast_depth:
            raise BudgetExceeded(f"code is nested more than {self._account.budget.ast_depth} deep")

    def expression(self, node: ast.expr) -> Expression:
        translate = _EXPRESSIONS.get(type(node))
        if translate is None:
            return refusal(f"expression {type(node).__name__} is not one that PyTorch writes", UnsupportedOperator)
        self.enter()
        result: Expression = translate(self, node)
        self._depth -= 1
        return result

    def _constant(self, node: ast.Constant) -> Expression:
        value = node.value
        if not isinstance(value, (int, float, str, type(None))) or (type(value) is int and abs(value) >= 1 << 63):
            return refusal("code holds a constant of a type that TorchScript does not have", ModelError)
        return lambda frame: value

    def _name(self, node: ast.Name) -> Expression:
        name = node.id
        if name in _PLAIN_CONSTANTS:
            value = _PLAIN_CONSTANTS[name]
            return lambda frame: value

        def load(frame: Frame) -> Any:
            try:
                return frame[name]
            except KeyError:
                raise ModelError(f"code uses {name!r:.80} before it is set") from None

        return load

    def _attribute(self, node: ast.Attribute) -> Expression:
        runtime = self._runtime
        path = _path(node)
        if path is None:
            owner = self.expression(node.value)
            name = node.attr
            return lambda frame: runtime.attribute(owner(frame), name)
        if path[0] == "CONSTANTS" and len(path) == 2:
            return lambda frame: runtime.constant(path[1])
        if path[0] == "__torch__":
            qualified = ".".join(path)
            return lambda frame: runtime.named(qualified)
        if path[0] == "torch" and len(path) == 2 and path[1] in ("inf", "nan", "pi"):
            value = float(path[1]) if path[1] != "pi" else 3.141592653589793
            return lambda frame: value
        return refusal(f"name {'.'.join(path):.160} is not one that the reader knows", UnsupportedOperator)

    def _call(self, node: ast.Call) -> Expression:
        runtime = self._runtime
        path = _path(node.func)
        if isinstance(node.func, ast.Name) and node.func.id in _SYNTAX:
            return _SYNTAX[node.func.id](self, node)
        if any(isinstance(argument, ast.Starred) for argument in node.args) or any(k.arg is None for k in node.keywords):
            return refusal("code passes a variable number of arguments", UnsupportedOperator)
        if path is not None and path[-1] == "isinstance":
            return self._isinstance(node)
        args = [self.expression(argument) for argument in node.args]
        kwargs = [(keyword.arg or "", self.expression(keyword.value)) for keyword in node.keywords]
        if path == ["ops", "prim", "awaitable_wait"] and len(args) == 1:
            return lambda frame: _task(args[0](frame))()
        if path is not None and path[0] in ("torch", "ops") and len(path) > 1:
            if runtime.recorder.tracking.comparing:
                return watched(runtime, _operator_name(path), node, args, kwargs)
            return self._operator_call(_operator_name(path), args, kwargs)
        if path is not None and path[-1] == "__new__":
            qualified = ".".join(path[:-1])
            return lambda frame: ScriptObject(qualified)
        if path is not None:
            qualified = ".".join(path)

            def call_reference(frame: Frame) -> Any:
                values = [argument(frame) for argument in args]
                return runtime.invoke(runtime.named(qualified), values, {name: value(frame) for name, value in kwargs})

            return call_reference
        if isinstance(node.func, ast.Attribute):
            return self._method_call(node.func, args, kwargs)
        if isinstance(node.func, ast.Name) and rule_of(f"builtin::{node.func.id}") is not None:
            return self._operator_call(f"builtin::{node.func.id}", args, kwargs)
        callee = self.expression(node.func)

        def call_value(frame: Frame) -> Any:
            values = [argument(frame) for argument in args]
            return runtime.invoke(callee(frame), values, {name: value(frame) for name, value in kwargs})

        return call_value

    def _operator_call(self, name: str, args: list[Expression], kwargs: list[tuple[str, Expression]]) -> Expression:
        runtime = self._runtime
        rule = rule_of(name)
        recorder, step = runtime.recorder, self._account.step
        if rule is None or kwargs or not runtime.means_today(name):
            return lambda frame: runtime.operate(
                name, [argument(frame) for argument in args], {key: value(frame) for key, value in kwargs}
            )
        apply = rule

        def call(frame: Frame) -> Any:
            values = [argument(frame) for argument in args]
            step()
            try:
                return apply(recorder, *values)
            except DataDependent as error:
                error.operator = error.operator or spelled(name)
                raise
            except RULE_ERRORS as error:
                raise ill_typed(name, values, error) from error

        return call

    def _method_call(self, function: ast.Attribute, args: list[Expression], kwargs: list[tuple[str, Expression]]) -> Expression:
        runtime = self._runtime
        name = function.attr
        owner = self.expression(function.value)

        def call(frame: Frame) -> Any:
            target = owner(frame)
            if not isinstance(target, ScriptObject):
                raise UnsupportedOperator(f"code calls method {name!r:.80} of a value of type {type(target).__name__}")
            values = [argument(frame) for argument in args]
            return runtime.call_method(target, name, values, {key: value(frame) for key, value in kwargs} if kwargs else None)

        return call

    def _getattr(self, node: ast.Call) -> Expression:
        runtime = self._runtime
        name = node.args[1].value if len(node.args) == 2 and isinstance(node.args[1], ast.Constant) else None
        if not isinstance(name, str):
            return refusal("getattr needs an object and a fixed name", ModelError)
        fixed = name
        owner = self.expression(node.args[0])
        return lambda frame: runtime.attribute(owner(frame), fixed)

    def _second_argument(self, node: ast.Call) -> Expression:
        """``annotate(type, value)`` and ``unchecked_cast(type, value)`` are the value."""
        if len(node.args) != 2:
            return refusal("a type annotation needs a type and a value", ModelError)
        return self.expression(node.args[1])

    def _uninitialized(self, node: ast.Call) -> Expression:
        return lambda frame: None

    def _fork(self, node: ast.Call) -> Expression:
        """``fork(task)``, which runs here as on one stream, and ``awaitable(task)``, which runs when it is first waited for."""
        task = self.expression(node.args[0]) if len(node.args) == 1 else _nothing
        runs = isinstance(node.func, ast.Name) and node.func.id == "fork"

        def call(frame: Frame) -> Any:
            function = _task(task(frame))
            return function() if runs else cache(function)

        return call

    def _isinstance(self, node: ast.Call) -> Expression:
        if len(node.args) != 2:
            return refusal("isinstance needs a value and types", ModelError)
        value = self.expression(node.args[0])
        kinds = node.args[1].elts if isinstance(node.args[1], (ast.Tuple, ast.List)) else [node.args[1]]
        names = [_type_name(kind) for kind in kinds]
        return lambda frame: any(_is_of(value(frame), name) for name in names)

    def _tuple(self, node: ast.Tuple) -> Expression:
        items = [self.expression(item) for item in node.elts]
        return lambda frame: tuple([item(frame) for item in items])

    def _list(self, node: ast.List) -> Expression:
        items = [self.expression(item) for item in node.elts]
        return lambda frame: [item(frame) for item in items]

    def _dict(self, node: ast.Dict) -> Expression:
        if any(key is None for key in node.keys):
            return refusal("code unpacks a dictionary", UnsupportedOperator)
        pairs = [
            (self.expression(key), self.expression(value)) for key, value in zip(node.keys, node.values, strict=True) if key
        ]
        runtime = self._runtime
        return lambda frame: runtime.operate("builtin::dict", [[(key(frame), value(frame)) for key, value in pairs]], {})

    def _subscript(self, node: ast.Subscript) -> Expression:
        runtime = self._runtime
        owner = self.expression(node.value)
        if isinstance(node.slice, ast.Slice):
            bounds = [self.expression(b) if b else _nothing for b in (node.slice.lower, node.slice.upper, node.slice.step)]

            def cut(frame: Frame) -> Any:
                start, end, step = (bound(frame) for bound in bounds)
                return runtime.operate("slice", [owner(frame), start, end, 1 if step is None else step], {})

            return cut
        index = self.expression(node.slice)
        watching = runtime.recorder.tracking.comparing

        def get(frame: Frame) -> Any:
            target, at = owner(frame), index(frame)
            if type(target) is list and type(at) is int and -len(target) <= at < len(target) and not watching:
                return target[at]
            return runtime.operate("__getitem__", [target, at], {})

        return get

    def _if_expression(self, node: ast.IfExp) -> Expression:
        test, then, otherwise = (self.expression(part) for part in (node.test, node.body, node.orelse))
        return lambda frame: then(frame) if truth(test(frame)) else otherwise(frame)

    def _unary(self, node: ast.UnaryOp) -> Expression:
        value = self.expression(node.operand)
        name = _UNARY.get(type(node.op))
        if name is None:
            return refusal(f"operator {type(node.op).__name__} is not one that PyTorch writes", UnsupportedOperator)
        runtime = self._runtime
        return lambda frame: runtime.operate(name, [value(frame)], {})

    def _binary(self, node: ast.BinOp) -> Expression:
        return self._infix(_BINARY.get(type(node.op)), node.left, node.right)

    def _compare(self, node: ast.Compare) -> Expression:
        if len(node.ops) != 1:
            return refusal("code chains comparisons", UnsupportedOperator)
        return self._infix(_BINARY.get(type(node.ops[0])), node.left, node.comparators[0])

    def _infix(self, name: str | None, left: ast.expr, right: ast.expr) -> Expression:
        if name is None:
            return refusal("code uses an infix operator that PyTorch does not write", UnsupportedOperator)
        first, second = self.expression(left), self.expression(right)
        runtime = self._runtime
        fixed = name
        return lambda frame: runtime.operate(fixed, [first(frame), second(frame)], {})

    def _logic(self, node: ast.BoolOp) -> Expression:
        values = [self.expression(value) for value in node.values]
        if isinstance(node.op, ast.And):
            return lambda frame: all(truth(value(frame)) for value in values)
        return lambda frame: any(truth(value(frame)) for value in values)


def _path(node: ast.expr) -> list[str] | None:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in _ROOTS:
        return None
    names.append(node.id)
    return names[::-1]


def _nothing(frame: Frame) -> None:
    return None


def _task(value: Any) -> Callable[[], Any]:
    if not callable(value):
        raise ModelError(f"code starts a task of type {type(value).__name__}; expected a nested function")
    return cast("Callable[[], Any]", value)


def _operator_name(path: list[str]) -> str:
    if path[0] == "torch":
        return ".".join(path[1:])
    if path[1] == "aten":
        return ".".join(path[2:])
    return "::".join((".".join(path[1:-1]), path[-1]))


def _type_name(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return ".".join(_path(node) or [node.attr])
    if isinstance(node, ast.Constant) and node.value is None:
        return "NoneType"
    return node.id if isinstance(node, ast.Name) else ""


_TYPES: dict[str, tuple[type, ...]] = {
    "Tensor": (Tensor,),
    "int": (int,),
    "float": (float,),
    "bool": (bool,),
    "str": (str,),
    "List": (list,),
    "list": (list,),
    "Tuple": (tuple,),
    "tuple": (tuple,),
    "Dict": (dict,),
    "dict": (dict,),
    "NoneType": (type(None),),
    "number": (int, float),
}


def _is_of(value: Any, name: str) -> bool:
    if name.startswith("__torch__"):
        return isinstance(value, ScriptObject) and value.type_name == name
    if name not in _TYPES:
        raise UnsupportedOperator(f"isinstance against type {name!r:.80} has no rule")
    return isinstance(value, _TYPES[name]) and not (name in ("int", "number") and isinstance(value, bool))


_PLAIN_CONSTANTS: dict[str, Any] = {"True": True, "False": False, "None": None, "inf": float("inf"), "nan": float("nan")}
_UNARY: dict[type, str] = {ast.USub: "neg", ast.Not: "__not__", ast.UAdd: "positive", ast.Invert: "bitwise_not"}
_BINARY: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "remainder",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.BitAnd: "__and__",
    ast.BitOr: "__or__",
    ast.BitXor: "__xor__",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Is: "__is__",
    ast.IsNot: "__isnot__",
    ast.In: "builtin::in",
}
_SYNTAX: dict[str, Callable[[ExpressionTranslator, ast.Call], Expression]] = {
    "getattr": ExpressionTranslator._getattr,
    "annotate": ExpressionTranslator._second_argument,
    "unchecked_cast": ExpressionTranslator._second_argument,
    "fork": ExpressionTranslator._fork,
    "awaitable": ExpressionTranslator._fork,
    "uninitialized": ExpressionTranslator._uninitialized,
    "isinstance": ExpressionTranslator._isinstance,
}
_EXPRESSIONS: dict[type, Callable[[ExpressionTranslator, Any], Expression]] = {
    ast.Constant: ExpressionTranslator._constant,
    ast.Name: ExpressionTranslator._name,
    ast.Attribute: ExpressionTranslator._attribute,
    ast.Call: ExpressionTranslator._call,
    ast.Tuple: ExpressionTranslator._tuple,
    ast.List: ExpressionTranslator._list,
    ast.Dict: ExpressionTranslator._dict,
    ast.Subscript: ExpressionTranslator._subscript,
    ast.IfExp: ExpressionTranslator._if_expression,
    ast.UnaryOp: ExpressionTranslator._unary,
    ast.BinOp: ExpressionTranslator._binary,
    ast.Compare: ExpressionTranslator._compare,
    ast.BoolOp: ExpressionTranslator._logic,
}
