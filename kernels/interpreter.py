# SPDX-License-Identifier: Apache-2.0
"""Runs the functions of a TorchScript file on shapes and element types.

Each function's syntax tree is turned once into a tree of Python closures, which run many times: a walk over syntax, without
compiling or executing anything that the file contains. What a function may touch is its arguments, the model's objects and the
rules in :mod:`jetdvfs.kernels.operators`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from .errors import BudgetExceeded, ModelError, ShapeError, UnsupportedOperator
from .operators import rule_of
from .recorder import DataDependent, Recorder
from .source import ClassSource, FunctionSource, FunctionSyntax, SourceTree, parse_source
from .values import EnumValue, Record, ScriptObject, Tensor

Frame = dict[str, Any]
Expression = Callable[[Frame], Any]
Statement = Callable[[Frame], Any]

#: The key under which a frame keeps the line it is at; no variable can be called that.
LINE = "line#"
_ROOTS = frozenset({"torch", "ops", "__torch__", "CONSTANTS"})
_NEXT, _BREAK, _CONTINUE = None, "break", "continue"


class Reference:
    """A function or class of the model, named in its code."""

    __slots__ = ("name", "target")

    def __init__(self, name: str, target: ClassSource | FunctionSource) -> None:
        self.name = name
        self.target = target


class Function:
    """A function ready to run."""

    __slots__ = ("body", "defaults", "parameters")

    def __init__(self, parameters: Sequence[str], defaults: dict[str, Expression], body: Statement) -> None:
        self.parameters = tuple(parameters)
        self.defaults = defaults
        self.body = body


class Interpreter:
    """Runs a model's functions, with a :class:`Recorder` taking down what they launch.

    Attributes:
        failed_at: after an error, the line of the model's code where it came up.
    """

    def __init__(self, sources: SourceTree, constants: Sequence[Any], recorder: Recorder) -> None:
        self.recorder = recorder
        self.failed_at = ""
        self._sources = sources
        self._constants = constants
        self._functions: dict[str, Function] = {}
        self._references: dict[str, Reference] = {}
        self._class_values: dict[tuple[str, str], Any] = {}
        self._depth = 0

    # Functions and objects

    def call_method(self, target: ScriptObject, name: str, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
        """Run a method of a module or object; while it runs, launches carry the module's path.

        Raises:
            ModelError: the method does not exist, or fails.
        """
        owner = self.reference(target.type_name).target
        method = owner.methods.get(name) if isinstance(owner, ClassSource) else None
        if method is None:
            have = ", ".join(sorted(owner.methods)) if isinstance(owner, ClassSource) else ""
            raise UnsupportedOperator(f"{target.type_name} has no method {name!r}; it has: {have or 'none'}")
        if target.path is None:
            return self.call(method, [target, *args], kwargs)
        recorder = self.recorder
        outer = recorder.scope
        recorder.scope = target.path
        result = self.call(method, [target, *args], kwargs)
        recorder.scope = outer
        return result

    def call(self, source: FunctionSource, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
        """Run a function on positional and named arguments."""
        frame: Frame = {LINE: 1}
        try:
            function = self._functions.get(source.text)
            if function is None:
                function = self._functions[source.text] = _Translator(self).function(self._sources.parse(source.text))
            self._bind(function, source.name, args, kwargs, frame)
            if self._depth >= self.recorder.meter.budget.recursion:
                raise BudgetExceeded(f"functions call each other more than {self._depth} deep")
            self._depth += 1
            outcome = function.body(frame)
            self._depth -= 1
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
            if key not in parameters or key in frame:
                raise ShapeError(f"{name}() takes no further argument {key!r:.40}")
            frame[key] = value
        if len(frame) <= len(parameters):
            for parameter in parameters:
                if parameter not in frame:
                    if parameter not in function.defaults:
                        raise ShapeError(f"{name}() needs a value for its argument {parameter!r}")
                    frame[parameter] = function.defaults[parameter](frame)

    def signature(self, target: ScriptObject, name: str) -> ast.arguments:
        """A method's parameters, ``self`` first.

        Raises:
            ModelError: there is no such method; the text lists those there are.
        """
        owner = self.reference(target.type_name).target
        if not isinstance(owner, ClassSource) or name not in owner.methods:
            have = ", ".join(sorted(owner.methods)) if isinstance(owner, ClassSource) else ""
            raise ModelError(f"the model has no method {name!r}; it has: {have or 'none'}")
        return self._sources.parse(owner.methods[name].text).parameters

    def reference(self, qualified: str) -> Reference:
        """A function or class of the model by its qualified name."""
        found = self._references.get(qualified)
        if found is None:
            found = self._references[qualified] = Reference(qualified, self._sources.find(qualified))
        return found

    def invoke(self, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call what a name in the code stands for: a function, or a class to be built."""
        if not isinstance(callee, Reference):
            raise UnsupportedOperator(f"code calls a value of type {type(callee).__name__}")
        target = callee.target
        if isinstance(target, FunctionSource):
            return self.call(target, args, kwargs)
        if target.base == "NamedTuple":
            names = list(target.fields)
            values = [*args, *(kwargs[name] for name in names[len(args) :] if name in kwargs)]
            values += [self.class_value(callee, name) for name in names[len(values) :]]
            return Record.of(names, values)
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
            tree = parse_source(text).body
            if len(tree) != 1 or not isinstance(tree[0], ast.Expr):
                raise ModelError(f"{reference.name}.{name} has no plain value")
            value = _Translator(self).expression(tree[0].value)({LINE: 1})
            is_member = isinstance(target, ClassSource) and target.base == "Enum" and isinstance(value, (int, float, str))
            self._class_values[key] = EnumValue(reference.name, value) if is_member else value
        return self._class_values[key]

    def attribute(self, target: Any, name: str) -> Any:
        """``target.name``."""
        if isinstance(target, ScriptObject):
            if name in target.attributes:
                return target.attributes[name]
            return self.class_value(self.reference(target.type_name), name)
        if isinstance(target, Record) and name in target.fields:
            return target[target.fields.index(name)]
        if isinstance(target, Reference):
            return self.class_value(target, name)
        if isinstance(target, EnumValue) and name == "value":
            return target.value
        rule = rule_of(f"prim::{name}")
        if rule is None:
            raise UnsupportedOperator(f"attribute {name!r:.80} of a value of type {type(target).__name__} has no rule")
        return rule(self.recorder, target)

    def constant(self, name: str) -> Any:
        """``CONSTANTS.c12``."""
        digits = name[1:]
        if name[:1] != "c" or not digits.isdecimal() or len(digits) > 9 or int(digits) >= len(self._constants):
            raise ModelError(f"archive has no constant {name!r:.40}")
        value = self._constants[int(digits)]
        if isinstance(value, Tensor) and value.rank == 0 and value.value is None and value.load is not None:
            value.value = value.load()[0]  # constants without dimensions are numbers of the trace
        return value

    def operate(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Apply an operator's rule."""
        return apply_rule(self.recorder, name, args, kwargs)


def apply_rule(recorder: Recorder, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What an operator makes of its arguments.

    Raises:
        UnsupportedOperator: it has no shape rule.
        ShapeError: it does not take these arguments.
    """
    rule = rule_of(name)
    if rule is None:
        raise UnsupportedOperator(f"operator {_spelled(name)} has no shape rule")
    recorder.meter.step()
    try:
        return rule(recorder, *args, **kwargs)
    except _RULE_ERRORS as error:
        raise _ill_typed(name, args, error) from error


def truth(value: Any) -> bool:
    """What ``if`` makes of a value.

    Raises:
        DataDependent: it is a tensor whose number is not known.
    """
    if isinstance(value, Tensor):
        if value.value is None or value.rank:
            raise DataDependent("a branch depends on the contents of a tensor")
        return bool(value.value)
    return bool(value)


#: What Python raises where a rule is given values of types that its operator does not take.
_RULE_ERRORS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError)


def _ill_typed(name: str, args: Sequence[Any], error: Exception) -> ShapeError:
    shown = ", ".join(map(_short, args))
    return ShapeError(f"operator {_spelled(name)} cannot take these arguments ({shown}): {error}")


def _spelled(name: str) -> str:
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


def _path(node: ast.expr) -> list[str] | None:
    """The names of a dotted path that starts at one of the code's fixed roots, else ``None``."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in _ROOTS:
        return None
    names.append(node.id)
    return names[::-1]


class _Translator:
    """Turns the syntax of one function into closures over an interpreter."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._run = interpreter
        self._meter = interpreter.recorder.meter
        self._depth = 0

    def function(self, syntax: FunctionSyntax) -> Function:
        arguments = syntax.parameters
        if arguments.vararg or arguments.kwarg:
            raise UnsupportedOperator("a function takes any number of arguments")
        names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        defaults: dict[str, Expression] = {}
        plain = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
        for name, default in zip(plain[len(plain) - len(arguments.defaults) :], arguments.defaults, strict=True):
            defaults[name] = self.expression(default)
        for argument, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if keyword_default is not None:
                defaults[argument.arg] = self.expression(keyword_default)
        return Function(names, defaults, self._stream(syntax) if syntax.long else self.block(next(syntax.pieces(), [])))

    def _stream(self, syntax: FunctionSyntax) -> Statement:
        """A body that is translated piece by piece as it runs, and forgotten: long functions run once."""

        def run(frame: Frame) -> Any:
            for nodes in syntax.pieces():
                outcome = self.block(nodes)(frame)
                if outcome is not _NEXT:
                    return outcome
            return _NEXT

        return run

    # Statements: a closure returns None to go on, a 1-tuple to return its item, or a word to leave or repeat a loop.

    def block(self, nodes: Iterable[ast.stmt]) -> Statement:
        steps = [(node.lineno - 1, self.statement(node)) for node in nodes if not isinstance(node, ast.Pass)]
        meter = self._meter

        def run(frame: Frame) -> Any:
            for line, step in steps:
                frame[LINE] = line
                meter.step()
                outcome = step(frame)
                if outcome is not _NEXT:
                    return outcome
            return _NEXT

        return run

    def statement(self, node: ast.stmt) -> Statement:
        translate = _STATEMENTS.get(type(node))
        if translate is None:
            return _refusal(f"statement {type(node).__name__} is none PyTorch prints", UnsupportedOperator)
        self._enter()
        result: Statement = translate(self, node)
        self._depth -= 1
        return result

    def _enter(self) -> None:
        self._depth += 1
        self._meter.node()
        if self._depth > self._meter.budget.ast_depth:
            raise BudgetExceeded(f"code is nested more than {self._meter.budget.ast_depth} deep")

    def _assign(self, node: ast.Assign) -> Statement:
        value = self.expression(node.value)
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id

            def plain(frame: Frame) -> None:
                frame[name] = value(frame)

            return plain
        stores = [self._store(target) for target in node.targets]

        def run(frame: Frame) -> None:
            made = value(frame)
            for store in stores:
                store(frame, made)

        return run

    def _annotated(self, node: ast.AnnAssign) -> Statement:
        if node.value is None:
            return lambda frame: None
        value = self.expression(node.value)
        store = self._store(node.target)
        return lambda frame: store(frame, value(frame))

    def _store(self, node: ast.expr) -> Callable[[Frame, Any], None]:
        if isinstance(node, ast.Name):
            name = node.id

            def to_name(frame: Frame, value: Any) -> None:
                frame[name] = value

            return to_name
        if isinstance(node, (ast.Tuple, ast.List)):
            self._enter()
            parts = [self._store(part) for part in node.elts]
            self._depth -= 1

            def to_parts(frame: Frame, value: Any) -> None:
                if not isinstance(value, (tuple, list)) or len(value) != len(parts):
                    have = len(value) if isinstance(value, (tuple, list)) else "no"
                    raise ShapeError(
                        f"code takes {len(parts)} values apart where there are {have}: another number of input dimensions?"
                    )
                for part, item in zip(parts, value, strict=True):
                    part(frame, item)

            return to_parts
        if isinstance(node, ast.Attribute):
            attribute = node.attr
            owner = self.expression(node.value)

            def to_attribute(frame: Frame, value: Any) -> None:
                target = owner(frame)
                if not isinstance(target, ScriptObject):
                    raise ModelError(f"code sets attribute {attribute!r:.80} of a value of type {type(target).__name__}")
                target.attributes[attribute] = value

            return to_attribute
        raise UnsupportedOperator("code assigns to something that PyTorch does not print")

    def _if(self, node: ast.If) -> Statement:
        test = self.expression(node.test)
        then, otherwise = self._branch(node.body), self._branch(node.orelse)
        return lambda frame: then(frame) if truth(test(frame)) else otherwise(frame)

    def _branch(self, nodes: Sequence[ast.stmt]) -> Statement:
        """A block that is translated when it is first reached: most branches never are."""
        depth = self._depth
        made: list[Statement] = []

        def run(frame: Frame) -> Any:
            if not made:
                outer, self._depth = self._depth, depth
                made.append(self.block(nodes))
                self._depth = outer
            return made[0](frame)

        return run

    def _while(self, node: ast.While) -> Statement:
        test = self.expression(node.test)
        body = self.block(node.body)
        meter = self._meter

        def run(frame: Frame) -> Any:
            while truth(test(frame)):
                meter.step()
                outcome = body(frame)
                if outcome == _BREAK:
                    break
                if outcome is not _NEXT and outcome != _CONTINUE:
                    return outcome
            return _NEXT

        return run

    def _for(self, node: ast.For) -> Statement:
        values = self.expression(node.iter)
        store = self._store(node.target)
        body = self.block(node.body)
        meter = self._meter

        def run(frame: Frame) -> Any:
            sequence = values(frame)
            if not isinstance(sequence, (list, tuple, range, str)):
                raise UnsupportedOperator(f"code loops over a value of type {type(sequence).__name__}")
            for value in sequence:
                meter.step()
                store(frame, value)
                outcome = body(frame)
                if outcome == _BREAK:
                    break
                if outcome is not _NEXT and outcome != _CONTINUE:
                    return outcome
            return _NEXT

        return run

    def _return(self, node: ast.Return) -> Statement:
        if node.value is None:
            return lambda frame: (None,)
        value = self.expression(node.value)
        return lambda frame: (value(frame),)

    def _bare(self, node: ast.Expr) -> Statement:
        value = self.expression(node.value)

        def run(frame: Frame) -> None:
            value(frame)

        return run

    # Expressions

    def expression(self, node: ast.expr) -> Expression:
        translate = _EXPRESSIONS.get(type(node))
        if translate is None:
            return _refusal(f"expression {type(node).__name__} is none PyTorch prints", UnsupportedOperator)
        self._enter()
        result: Expression = translate(self, node)
        self._depth -= 1
        return result

    def _constant(self, node: ast.Constant) -> Expression:
        value = node.value
        if not isinstance(value, (int, float, str, type(None))) or (type(value) is int and abs(value) >= 1 << 63):
            return _refusal("code holds a constant of no TorchScript type", ModelError)
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
        run = self._run
        path = _path(node)
        if path is None:
            owner = self.expression(node.value)
            name = node.attr
            return lambda frame: run.attribute(owner(frame), name)
        if path[0] == "CONSTANTS" and len(path) == 2:
            return lambda frame: run.constant(path[1])
        if path[0] == "__torch__":
            qualified = ".".join(path)
            return lambda frame: self._referred(qualified)
        if path[0] == "torch" and len(path) == 2 and path[1] in ("inf", "nan", "pi"):
            value = float(path[1]) if path[1] != "pi" else 3.141592653589793
            return lambda frame: value
        return _refusal(f"name {'.'.join(path):.160} stands for nothing the reader knows", UnsupportedOperator)

    def _referred(self, qualified: str) -> Any:
        """A function, a class, or a constant or member of a class."""
        module, _, name = qualified.rpartition(".")
        try:
            return self._run.reference(qualified)
        except ModelError:
            if not module.startswith("__torch__."):
                raise
            return self._run.class_value(self._run.reference(module), name)

    def _call(self, node: ast.Call) -> Expression:
        run = self._run
        path = _path(node.func)
        if isinstance(node.func, ast.Name) and node.func.id in _SYNTAX:
            return _SYNTAX[node.func.id](self, node)
        if any(isinstance(argument, ast.Starred) for argument in node.args) or any(k.arg is None for k in node.keywords):
            return _refusal("code passes on an unknown number of arguments", UnsupportedOperator)
        if path is not None and path[-1] == "isinstance":
            return self._isinstance(node)
        args = [self.expression(argument) for argument in node.args]
        kwargs = [(keyword.arg or "", self.expression(keyword.value)) for keyword in node.keywords]
        if path is not None and path[0] in ("torch", "ops") and len(path) > 1:
            return self._operator_call(_operator_name(path), args, kwargs)
        if path is not None and path[-1] == "__new__":
            qualified = ".".join(path[:-1])
            return lambda frame: ScriptObject(qualified)
        if path is not None:
            qualified = ".".join(path)

            def call_reference(frame: Frame) -> Any:
                values = [argument(frame) for argument in args]
                return run.invoke(self._referred(qualified), values, {name: value(frame) for name, value in kwargs})

            return call_reference
        if isinstance(node.func, ast.Attribute):
            return self._method_call(node.func, args, kwargs)
        if isinstance(node.func, ast.Name) and rule_of(f"builtin::{node.func.id}") is not None:
            return self._operator_call(f"builtin::{node.func.id}", args, kwargs)
        callee = self.expression(node.func)

        def call_value(frame: Frame) -> Any:
            values = [argument(frame) for argument in args]
            return run.invoke(callee(frame), values, {name: value(frame) for name, value in kwargs})

        return call_value

    def _operator_call(self, name: str, args: list[Expression], kwargs: list[tuple[str, Expression]]) -> Expression:
        run = self._run
        rule = rule_of(name)
        recorder, step = run.recorder, self._meter.step
        if rule is None or kwargs:
            return lambda frame: run.operate(
                name, [argument(frame) for argument in args], {key: value(frame) for key, value in kwargs}
            )
        apply = rule

        def call(frame: Frame) -> Any:
            values = [argument(frame) for argument in args]
            step()
            try:
                return apply(recorder, *values)
            except _RULE_ERRORS as error:
                raise _ill_typed(name, values, error) from error

        return call

    def _method_call(self, function: ast.Attribute, args: list[Expression], kwargs: list[tuple[str, Expression]]) -> Expression:
        run = self._run
        name = function.attr
        owner = self.expression(function.value)

        def call(frame: Frame) -> Any:
            target = owner(frame)
            if not isinstance(target, ScriptObject):
                raise UnsupportedOperator(f"code calls method {name!r:.80} of a value of type {type(target).__name__}")
            values = [argument(frame) for argument in args]
            return run.call_method(target, name, values, {key: value(frame) for key, value in kwargs} if kwargs else None)

        return call

    def _getattr(self, node: ast.Call) -> Expression:
        run = self._run
        name = node.args[1].value if len(node.args) == 2 and isinstance(node.args[1], ast.Constant) else None
        if not isinstance(name, str):
            return _refusal("getattr needs an object and a fixed name", ModelError)
        fixed = name
        owner = self.expression(node.args[0])
        return lambda frame: run.attribute(owner(frame), fixed)

    def _second_argument(self, node: ast.Call) -> Expression:
        """``annotate(type, value)`` and ``unchecked_cast(type, value)`` are the value."""
        if len(node.args) != 2:
            return _refusal("a type annotation needs a type and a value", ModelError)
        return self.expression(node.args[1])

    def _uninitialized(self, node: ast.Call) -> Expression:
        return lambda frame: None

    def _isinstance(self, node: ast.Call) -> Expression:
        if len(node.args) != 2:
            return _refusal("isinstance needs a value and types", ModelError)
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
            return _refusal("code unpacks a dictionary", UnsupportedOperator)
        pairs = [
            (self.expression(key), self.expression(value)) for key, value in zip(node.keys, node.values, strict=True) if key
        ]
        run = self._run
        return lambda frame: run.operate("builtin::dict", [[(key(frame), value(frame)) for key, value in pairs]], {})

    def _subscript(self, node: ast.Subscript) -> Expression:
        run = self._run
        owner = self.expression(node.value)
        if isinstance(node.slice, ast.Slice):
            bounds = [self.expression(b) if b else _nothing for b in (node.slice.lower, node.slice.upper, node.slice.step)]

            def cut(frame: Frame) -> Any:
                start, end, step = (bound(frame) for bound in bounds)
                return run.operate("slice", [owner(frame), start, end, 1 if step is None else step], {})

            return cut
        index = self.expression(node.slice)

        def get(frame: Frame) -> Any:
            target, at = owner(frame), index(frame)
            if type(target) is list and type(at) is int and -len(target) <= at < len(target):
                return target[at]
            return run.operate("__getitem__", [target, at], {})

        return get

    def _if_expression(self, node: ast.IfExp) -> Expression:
        test, then, otherwise = (self.expression(part) for part in (node.test, node.body, node.orelse))
        return lambda frame: then(frame) if truth(test(frame)) else otherwise(frame)

    def _unary(self, node: ast.UnaryOp) -> Expression:
        value = self.expression(node.operand)
        name = _UNARY.get(type(node.op))
        if name is None:
            return _refusal(f"operator {type(node.op).__name__} is none PyTorch prints", UnsupportedOperator)
        run = self._run
        return lambda frame: run.operate(name, [value(frame)], {})

    def _binary(self, node: ast.BinOp) -> Expression:
        return self._infix(_BINARY.get(type(node.op)), node.left, node.right)

    def _compare(self, node: ast.Compare) -> Expression:
        if len(node.ops) != 1:
            return _refusal("code chains comparisons", UnsupportedOperator)
        return self._infix(_BINARY.get(type(node.ops[0])), node.left, node.comparators[0])

    def _infix(self, name: str | None, left: ast.expr, right: ast.expr) -> Expression:
        if name is None:
            return _refusal("code uses an infix operator that PyTorch does not print", UnsupportedOperator)
        first, second = self.expression(left), self.expression(right)
        run = self._run
        fixed = name
        return lambda frame: run.operate(fixed, [first(frame), second(frame)], {})

    def _logic(self, node: ast.BoolOp) -> Expression:
        values = [self.expression(value) for value in node.values]
        if isinstance(node.op, ast.And):
            return lambda frame: all(truth(value(frame)) for value in values)
        return lambda frame: any(truth(value(frame)) for value in values)


def _nothing(frame: Frame) -> None:
    return None


def _refusal(text: str, error: type[ModelError]) -> Callable[[Frame], NoReturn]:
    """Code that is refused only if it is reached."""

    def refuse(frame: Frame) -> NoReturn:
        raise error(text)

    return refuse


def _operator_name(path: list[str]) -> str:
    """``torch.relu`` is ATen's ``relu``; ``ops.prim.device`` is ``prim::device``."""
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
_SYNTAX: dict[str, Callable[[_Translator, ast.Call], Expression]] = {
    "getattr": _Translator._getattr,
    "annotate": _Translator._second_argument,
    "unchecked_cast": _Translator._second_argument,
    "uninitialized": _Translator._uninitialized,
    "isinstance": _Translator._isinstance,
}
_STATEMENTS: dict[type, Callable[[_Translator, Any], Statement]] = {
    ast.Assign: _Translator._assign,
    ast.AnnAssign: _Translator._annotated,
    ast.If: _Translator._if,
    ast.While: _Translator._while,
    ast.For: _Translator._for,
    ast.Return: _Translator._return,
    ast.Expr: _Translator._bare,
    ast.Break: lambda translator, node: lambda frame: _BREAK,
    ast.Continue: lambda translator, node: lambda frame: _CONTINUE,
}
_EXPRESSIONS: dict[type, Callable[[_Translator, Any], Expression]] = {
    ast.Constant: _Translator._constant,
    ast.Name: _Translator._name,
    ast.Attribute: _Translator._attribute,
    ast.Call: _Translator._call,
    ast.Tuple: _Translator._tuple,
    ast.List: _Translator._list,
    ast.Dict: _Translator._dict,
    ast.Subscript: _Translator._subscript,
    ast.IfExp: _Translator._if_expression,
    ast.UnaryOp: _Translator._unary,
    ast.BinOp: _Translator._binary,
    ast.Compare: _Translator._compare,
    ast.BoolOp: _Translator._logic,
}
