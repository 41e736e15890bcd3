# SPDX-License-Identifier: Apache-2.0
"""Runs the functions of a TorchScript file on shapes and element types.

Each function's syntax tree is turned once into Python closures, which run many times: nothing in the file is compiled or
executed. A function reaches only its arguments, the model's objects and the rules in :mod:`jetdvfs.kernels.operators`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from ..errors import BudgetExceeded, ModelError, ShapeError, UnsupportedOperator
from ..operators import rule_of
from ..operators.recorder import Recorder
from ..operators.registry import apply_rule
from ..operators.values import EnumValue, NamedTupleValue, ScriptObject, Tensor, tensors_in
from .closures import LINE, Frame
from .source import NEWEST, ClassSource, FunctionSource, SourceTree, parse_source, upgrades
from .statements import Function, Translator


class Reference(Struct, frozen=True, eq=False):
    name: str
    target: ClassSource | FunctionSource


class Interpreter:
    def __init__(self, sources: SourceTree, constants: Sequence[Any], recorder: Recorder, version: int = NEWEST) -> None:
        self.recorder = recorder
        self.failed_at = ""
        self._sources = sources
        self._constants = constants
        self._functions: dict[str, Function] = {}
        self._references: dict[str, Reference] = {}
        self._class_values: dict[tuple[str, str], Any] = {}
        self._depth = 0
        self._upgrades = upgrades(version)

    # Functions and objects

    def call_method(self, target: ScriptObject, name: str, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
        """Run a method of a module or object; while it runs, launches carry the module's path. Raises ModelError."""
        methods = self._methods(target)
        method = methods.get(name)
        if method is None:
            raise UnsupportedOperator(f"{target.type_name} has no method {name!r}; it has: {_listed(methods)}")
        if target.path is None:
            return self.call(method, [target, *args], kwargs)
        recorder = self.recorder
        outer = recorder.scope
        recorder.scope = target.path
        result = self.call(method, [target, *args], kwargs)
        recorder.scope = outer
        return result

    def call(self, source: FunctionSource, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
        frame: Frame = {LINE: 1}
        try:
            function = self._functions.get(source.text)
            if function is None:
                function = self._functions[source.text] = Translator(self).function(self._sources.parse(source.text))
            self._bind(function, source.name, args, kwargs, frame)
            if self._depth >= self.recorder.account.budget.recursion:
                raise BudgetExceeded(f"functions call each other more than {self._depth} deep")
            self._depth += 1
            outcome = function.body(frame)
            self._depth -= 1
            if function.returns and type(outcome) is not tuple:
                raise ModelError(f"{source.name}() ends without the value that it is declared to return")
        except ModelError:
            if not self.failed_at:
                self.failed_at = source.location(frame[LINE])
            raise
        return outcome[0] if type(outcome) is tuple else None

    def _bind(self, function: Function, name: str, args: Sequence[Any], kwargs: dict[str, Any] | None, frame: Frame) -> None:
        parameters = function.parameters
        if len(args) > len(parameters):
            raise ShapeError(f"{name}() takes {len(parameters)} arguments, but {len(args)} were given")
        frame.update(zip(parameters, args, strict=False))
        for key, value in (kwargs or {}).items():
            if key not in parameters:
                raise ShapeError(f"{name}() has no argument {key!r:.40}")
            if key in frame:
                raise ShapeError(f"{name}() is given its argument {key!r:.40} twice")
            frame[key] = value
        if len(frame) <= len(parameters):
            for parameter in parameters:
                if parameter not in frame:
                    if parameter not in function.defaults:
                        raise ShapeError(f"{name}() needs a value for its argument {parameter!r}")
                    frame[parameter] = function.defaults[parameter](frame)

    def overload(self, target: ScriptObject, name: str) -> str:
        """A method's name in the file: of one with several signatures (recurrent layers), the first's."""
        have = self._methods(target)
        return f"{name}__0" if name not in have and f"{name}__0" in have else name

    def signature(self, target: ScriptObject, name: str) -> ast.arguments:
        """A method's parameters, ``self`` first, or ModelError."""
        methods = self._methods(target)
        if name not in methods:
            raise ModelError(f"the model has no method {name!r}; it has: {_listed(methods)}")
        return self._sources.parse(methods[name].text).parameters

    def _methods(self, target: ScriptObject) -> dict[str, FunctionSource]:
        owner = self.reference(target.type_name).target
        return owner.methods if isinstance(owner, ClassSource) else {}

    def reference(self, qualified: str) -> Reference:
        found = self._references.get(qualified)
        if found is None:
            found = self._references[qualified] = Reference(qualified, self._sources.find(qualified))
        return found

    def named(self, qualified: str) -> Any:
        module, _, name = qualified.rpartition(".")
        try:
            return self.reference(qualified)
        except ModelError:
            if not module.startswith("__torch__."):
                raise
            return self.class_value(self.reference(module), name)

    def invoke(self, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not isinstance(callee, Reference):
            raise UnsupportedOperator(f"code calls a value of type {type(callee).__name__}")
        target = callee.target
        if isinstance(target, FunctionSource):
            return self.call(target, args, kwargs)
        if target.base == "NamedTuple":
            names = list(target.fields)
            values = [*args, *(kwargs[name] for name in names[len(args) :] if name in kwargs)]
            values += [self.class_value(callee, name) for name in names[len(values) :]]
            return NamedTupleValue.of(names, values)
        made = ScriptObject(callee.name)
        self.call_method(made, "__init__", args, kwargs)
        return made

    def class_value(self, reference: Reference, name: str) -> Any:
        """A constant that a class declares (``aux_logits : Final[bool] = True``)."""
        key = (reference.name, name)
        if key not in self._class_values:
            target = reference.target
            text = target.fields.get(name) if isinstance(target, ClassSource) else None
            if text is None:
                raise ModelError(f"{reference.name} has no attribute {name!r:.80}")
            tree = parse_source(text, self.recorder.account.budget.piece_bytes).body
            if len(tree) != 1 or not isinstance(tree[0], ast.Expr):
                raise ModelError(f"{reference.name}.{name} is not a plain value")
            value = Translator(self).expression(tree[0].value)({LINE: 1})
            is_member = isinstance(target, ClassSource) and target.base == "Enum" and isinstance(value, (int, float, str))
            self._class_values[key] = EnumValue(reference.name, value) if is_member else value
        return self._class_values[key]

    def attribute(self, target: Any, name: str) -> Any:
        if isinstance(target, ScriptObject):
            if name in target.attributes:
                return target.attributes[name]
            if self._restored(target) and name in target.attributes:
                return target.attributes[name]
            return self.class_value(self.reference(target.type_name), name)
        if isinstance(target, NamedTupleValue) and name in target.fields:
            return target[target.fields.index(name)]
        if isinstance(target, Reference):
            return self.class_value(target, name)
        if isinstance(target, EnumValue) and name == "value":
            return target.value
        rule = rule_of(f"prim::{name}")
        if rule is None:
            raise UnsupportedOperator(f"attribute {name!r:.80} of a value of type {type(target).__name__} has no rule")
        return rule(self.recorder, target)

    def _restored(self, target: ScriptObject) -> bool:
        """Let an object that was saved by its own ``__getstate__`` unpack itself, once; True if it did."""
        state, target.state = target.state, None
        if state is None or "__setstate__" not in self._methods(target):
            return False
        self.call_method(target, "__setstate__", [state])
        return True

    def constant(self, name: str) -> Any:
        digits = name[1:]
        if name[:1] != "c" or not digits.isdecimal() or len(digits) > 9 or int(digits) >= len(self._constants):
            raise ModelError(f"archive has no constant {name!r:.40}")
        value = self._constants[int(digits)]
        if isinstance(value, Tensor) and value.rank == 0 and value.value is None and value.load is not None:
            value.value = tuple(value.load())  # constants without dimensions are numbers of the trace
        if self.recorder.tracking.comparing:
            for tensor in tensors_in(value):
                tensor.constant = not tensor.requires_grad
        return value

    def means_today(self, name: str) -> bool:
        return name not in self._upgrades

    def operate(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name in self._upgrades:
            args, kwargs = self._upgrades[name](args, kwargs)
        return apply_rule(self.recorder, name, args, kwargs)


def _listed(methods: Iterable[str]) -> str:
    return ", ".join(sorted(methods)) or "none"
