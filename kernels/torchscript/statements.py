# SPDX-License-Identifier: Apache-2.0
"""Functions and statements of TorchScript code as Python closures."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, NamedTuple

from ..errors import ModelError, ShapeError, UnsupportedOperator
from ..operators.host.prim import AUTOCAST
from ..operators.values import ScriptObject
from .closures import LINE, Expression, Frame, Statement, refusal, truth
from .expressions import ExpressionTranslator
from .source import FunctionSyntax
from .watching import NameUses, is_literal, names_in, rename, watched_branches

_NEXT, _BREAK, _CONTINUE = None, "break", "continue"


class Function(NamedTuple):
    """A function ready to run; ``returns`` if it is declared to return a value."""

    parameters: tuple[str, ...]
    defaults: dict[str, Expression]
    body: Statement
    returns: bool


class Translator(ExpressionTranslator):
    def function(self, syntax: FunctionSyntax) -> Function:
        arguments = syntax.parameters
        if arguments.vararg or arguments.kwarg:
            raise UnsupportedOperator("a function takes a variable number of arguments")
        names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        defaults: dict[str, Expression] = {}
        plain = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
        for name, default in zip(plain[len(plain) - len(arguments.defaults) :], arguments.defaults, strict=True):
            defaults[name] = self.expression(default)
        for argument, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if keyword_default is not None:
                defaults[argument.arg] = self.expression(keyword_default)
        body = self._stream(syntax) if syntax.long else self.block(next(syntax.pieces(), []))
        return Function(tuple(names), defaults, body, syntax.returns)

    def _stream(self, syntax: FunctionSyntax) -> Statement:
        """Translate a body piece by piece as it runs, and forget it: long functions run once."""

        def execute(frame: Frame) -> Any:
            for nodes in syntax.pieces():
                outcome = self.block(nodes)(frame)
                if outcome is not _NEXT:
                    return outcome
            return _NEXT

        return execute

    def block(self, nodes: Iterable[ast.stmt]) -> Statement:
        steps = [(node.lineno - 1, self.statement(node)) for node in nodes if not isinstance(node, ast.Pass)]
        account = self._account

        def execute(frame: Frame) -> Any:
            for line, step in steps:
                frame[LINE] = line
                account.step()
                outcome = step(frame)
                if outcome is not _NEXT:
                    return outcome
            return _NEXT

        return execute

    def statement(self, node: ast.stmt) -> Statement:
        translate = _STATEMENTS.get(type(node))
        if translate is None:
            return refusal(f"statement {type(node).__name__} is not one that PyTorch writes", UnsupportedOperator)
        self.enter()
        result: Statement = translate(self, node)
        self._depth -= 1
        return result

    def _assign(self, node: ast.Assign) -> Statement:
        value = self.expression(node.value)
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id

            def plain(frame: Frame) -> None:
                frame[name] = value(frame)

            return plain
        stores = [self._store(target) for target in node.targets]

        def execute(frame: Frame) -> None:
            made = value(frame)
            for store in stores:
                store(frame, made)

        return execute

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
            self.enter()
            parts = [self._store(part) for part in node.elts]
            self._depth -= 1

            def to_parts(frame: Frame, value: Any) -> None:
                if not isinstance(value, (tuple, list)) or len(value) != len(parts):
                    have = f"{len(value)} values" if isinstance(value, (tuple, list)) else "a single value"
                    raise ShapeError(f"code unpacks {have} into {len(parts)} names: another number of input dimensions?")
                for part, item in zip(parts, value, strict=True):
                    part(frame, item)

            return to_parts
        if isinstance(node, ast.Attribute):
            attribute = node.attr
            owner = self.expression(node.value)
            tracking = self._runtime.recorder.tracking

            def to_attribute(frame: Frame, value: Any) -> None:
                tracking.keep(value)
                target = owner(frame)
                if not isinstance(target, ScriptObject):
                    raise ModelError(f"code sets attribute {attribute!r:.80} of a value of type {type(target).__name__}")
                target.attributes[attribute] = value

            return to_attribute
        raise UnsupportedOperator("code assigns to something that PyTorch does not write")

    def _if(self, node: ast.If) -> Statement:
        test = self.expression(node.test)
        then, otherwise = self._branch(node.body), self._branch(node.orelse)
        if self._runtime.recorder.tracking.comparing and not is_literal(node.test):
            return watched_branches(self._runtime.recorder, node, test, then, otherwise)
        return lambda frame: then(frame) if truth(test(frame)) else otherwise(frame)

    def _branch(self, nodes: Sequence[ast.stmt]) -> Statement:
        body = self._later(nodes)
        tracking = self._runtime.recorder.tracking
        if not tracking.comparing:
            return body

        def execute(frame: Frame) -> Any:
            tracking.enter()
            outcome = body(frame)
            tracking.leave()
            return outcome

        return execute

    def _later(self, nodes: Sequence[ast.stmt]) -> Statement:
        """Translate a block when it is first reached: most branches never are."""
        depth = self._depth
        made: list[Statement] = []

        def execute(frame: Frame) -> Any:
            if not made:
                outer, self._depth = self._depth, depth
                made.append(self.block(nodes))
                self._depth = outer
            return made[0](frame)

        return execute

    def _while(self, node: ast.While) -> Statement:
        test = self.expression(node.test)
        return self._loop(node, lambda frame: _while_true(test, frame), None, fixed=False)

    def _for(self, node: ast.For) -> Statement:
        values = self.expression(node.iter)
        fixed = isinstance(node.iter, ast.Call) and all(map(is_literal, node.iter.args))

        def sequence(frame: Frame) -> Sequence[Any]:
            items = values(frame)
            if not isinstance(items, (list, tuple, range, str)):
                raise UnsupportedOperator(f"code loops over a value of type {type(items).__name__}")
            return items

        return self._loop(node, sequence, self._store(node.target), fixed=fixed)

    def _loop(
        self,
        node: ast.For | ast.While,
        items: Callable[[Frame], Iterable[Any]],
        store: Callable[[Frame, Any], None] | None,
        *,
        fixed: bool,
    ) -> Statement:
        body = self._later(node.body)
        account = self._account
        tracking = self._runtime.recorder.tracking
        loop = id(node)
        found = names_in(node, "body") if tracking.comparing else NameUses()

        def execute(frame: Frame) -> Any:
            sequence = items(frame)
            count = len(sequence) if isinstance(sequence, Sized) else None
            first = {name: frame[name] for name in found.stored if name in frame}
            carried = [name for name in first if name in found.loaded]
            outcome = _NEXT
            tracking.enter_loop(loop)
            for number, value in enumerate(sequence):
                account.step()
                if tracking.repeat(number, count, fixed, map(frame.get, carried)):
                    rename(frame, carried)
                if store is not None:
                    store(frame, value)
                outcome = body(frame)
                if outcome not in (_NEXT, _CONTINUE):
                    break
            if tracking.leave_loop(map(frame.get, carried), first.values(), list(map(frame.get, first))):
                rename(frame, first)
            return _NEXT if outcome in (_CONTINUE, _BREAK) else outcome

        return execute

    def _with(self, node: ast.With) -> Statement:
        """The body alone: ``no_grad``, profiler ranges and a disabled ``autocast`` launch nothing."""
        managers = [
            (self.expression(item.context_expr), self._store(item.optional_vars) if item.optional_vars else None)
            for item in node.items
        ]
        body = self.block(node.body)

        def execute(frame: Frame) -> Any:
            for manager, store in managers:
                entered = manager(frame)
                casts = isinstance(entered, ScriptObject) and entered.type_name.endswith(".autocast")
                if casts and entered.attributes.get("_enabled", True):
                    raise UnsupportedOperator(f"{AUTOCAST} and save that")
                if store is not None:
                    store(frame, entered)
            return body(frame)

        return execute

    def _nested(self, node: ast.FunctionDef) -> Statement:
        """A task for ``fork`` or ``awaitable``: a function without arguments that sees the names around it."""
        name, body = node.name, self._later(node.body)
        tracking = self._runtime.recorder.tracking

        def define(frame: Frame) -> None:
            def task() -> Any:
                inner = dict(frame)
                try:
                    outcome = tracking.apart(lambda: body(inner))
                finally:
                    frame[LINE] = inner[LINE]
                return outcome[0] if type(outcome) is tuple else None

            frame[name] = task

        return define

    def _return(self, node: ast.Return) -> Statement:
        if node.value is None:
            return lambda frame: (None,)
        value = self.expression(node.value)
        return lambda frame: (value(frame),)

    def _bare(self, node: ast.Expr) -> Statement:
        value = self.expression(node.value)

        def execute(frame: Frame) -> None:
            value(frame)

        return execute


def _while_true(test: Expression, frame: Frame) -> Iterator[None]:
    while truth(test(frame)):
        yield


_STATEMENTS: dict[type, Callable[[Translator, Any], Statement]] = {
    ast.Assign: Translator._assign,
    ast.AnnAssign: Translator._annotated,
    ast.If: Translator._if,
    ast.While: Translator._while,
    ast.For: Translator._for,
    ast.With: Translator._with,
    ast.FunctionDef: Translator._nested,
    ast.Return: Translator._return,
    ast.Expr: Translator._bare,
    ast.Break: lambda translator, node: lambda frame: _BREAK,
    ast.Continue: lambda translator, node: lambda frame: _CONTINUE,
}
