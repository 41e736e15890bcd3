# SPDX-License-Identifier: Apache-2.0
"""Table of known operators.

A new one needs a function under :func:`operator` and, for a new kind of kernel, a row in :mod:`jetdvfs.kernels.kinds`. A rule
takes the :class:`~.recorder.Recorder` and arguments by the names and defaults of ATen's schema; it returns the operator's
result and records its launches. Annotations are enforced: an ``int`` is never a list, whose arithmetic could fill the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeVar

from ..errors import ShapeError, UnsupportedOperator
from .recorder import DataDependent, Recorder
from .values import ScriptObject, Tensor

Rule = Callable[..., Any]
AnyRule = TypeVar("AnyRule", bound=Rule)
Check = Callable[[Any], bool]

RULES: dict[str, Rule] = {}
"""Rules registered by :func:`operator`."""

FIRST_SPELLINGS: dict[str, str] = {}
"""First name of each rule, by name; of in-place forms (``__iand__`` too) with an underscore at the end."""

HOST_RULES: dict[str, Rule] = {}
"""Rules registered by :func:`host_operator`."""


def _list_of(kind: type) -> Check:
    return lambda value: isinstance(value, (list, tuple)) and all(isinstance(item, kind) for item in value)


#: Enforced checks by annotation; other types (``Any``, unions of tensors and numbers) are up to the rule.
_CHECKS: dict[str, Check] = {
    "int": lambda value: isinstance(value, int),
    "int | None": lambda value: value is None or isinstance(value, int),
    "bool": lambda value: isinstance(value, int),
    "float": lambda value: isinstance(value, (int, float)),
    "float | None": lambda value: value is None or isinstance(value, (int, float)),
    "str": lambda value: isinstance(value, str),
    "str | None": lambda value: value is None or isinstance(value, str),
    "Tensor": lambda value: isinstance(value, Tensor),
    "Tensor | None": lambda value: value is None or isinstance(value, Tensor),
    "list[Any]": lambda value: isinstance(value, list),
    "dict[Any, Any]": lambda value: isinstance(value, dict),
    "Sequence[Any]": lambda value: isinstance(value, (list, tuple)),
    "Sequence[int]": _list_of(int),
    "Sequence[str]": _list_of(str),
    "Sequence[Tensor]": _list_of(Tensor),
}


_ILL_TYPED = "an argument is of another type than the operator takes"


def operator(*names: str) -> Callable[[AnyRule], AnyRule]:
    """Register a rule; names without a namespace are ATen's (``relu_``), otherwise complete (``prim::device``)."""

    def register(rule: AnyRule) -> AnyRule:
        adding(RULES, names)(_checked(rule))
        for name in names:
            FIRST_SPELLINGS[name] = f"{names[0].removesuffix('_')}_" if _is_in_place(name) else names[0]
        return rule

    return register


def answered(compute: Rule, *names: str, of: str = "Any") -> None:
    """Register computations without a launch; the first argument is ``of`` a type."""
    check = _CHECKS.get(of, lambda value: True)

    @operator(*names)
    def rule(recorder: Recorder, *args: Any, **kwargs: Any) -> Any:
        if args and not check(args[0]):
            raise TypeError(_ILL_TYPED)
        return compute(*args, **kwargs)


def _is_in_place(name: str) -> bool:
    """True for ``relu_`` and ``__iand__``."""
    return (name.endswith("_") and not name.endswith("__")) or (name.startswith("__i") and name not in ("__is__", "__isnot__"))


def _checked(rule: Rule) -> Rule:
    code = rule.__code__
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    by_name = {name: _CHECKS[kind] for name in names if (kind := rule.__annotations__.get(name)) in _CHECKS}
    in_order = [by_name.get(name) for name in names[: code.co_argcount - 1]]
    if not by_name:
        return rule

    def checking(recorder: Any, *args: Any, **kwargs: Any) -> Any:
        for value, check in zip(args, in_order, strict=False):
            if check is not None and not check(value):
                raise TypeError(_ILL_TYPED)
        for name, value in kwargs.items():
            if name in by_name and not by_name[name](value):
                raise TypeError(f"argument {name} is of another type than the operator takes")
        return rule(recorder, *args, **kwargs)

    return checking


def adding(rules: dict[str, Rule], names: Sequence[str], where: str = "") -> Callable[[AnyRule], AnyRule]:
    """Decorator that adds a rule to a table; raises ValueError for a second one."""

    def register(rule: AnyRule) -> AnyRule:
        for name in names:
            if name in rules:
                raise ValueError(f"operator {name} has two rules{where}")
            rules[name] = rule
        return rule

    return register


def host_operator(*names: str) -> Callable[[AnyRule], AnyRule]:
    """Register a computation on tensors known to the host, with ATen's arguments and without a recorder.

    If it returns ``None``, the operator is device work.
    """
    return adding(HOST_RULES, names, " for the host")


def rule_of(name: str) -> Rule | None:
    """Rule of an operator, ``None`` if unknown; it computes if the host holds all tensors."""
    rule = RULES.get(name)
    return None if rule is None else _settled(name, rule, HOST_RULES.get(name.removesuffix("_")))


@cache
def _settled(name: str, rule: Rule, host: Rule | None) -> Rule:
    in_place = name.endswith("_") and not name.endswith("__")
    spelling = FIRST_SPELLINGS[name]
    absorbed = spelling in _ABSORBED

    def settled(recorder: Any, *args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else None
        if host is not None and (type(first) is not Tensor or first.value is not None):
            made = host(*args, **kwargs) if all_on_host((*args, *kwargs.values())) else None
            if made is not None:
                recorder.host(name)
                if in_place and isinstance(first, Tensor):
                    first.value = made.value
                    return first
                return made
        written = first if in_place and isinstance(first, Tensor) else None
        if written is not None:
            written.value = None
        tracking = recorder.tracking
        outer, recorder.operator = recorder.operator, spelling
        start = len(recorder.reads)
        comparing = tracking.comparing
        given = tracking.given(name, (*args, *kwargs.values())) if comparing else []
        made = rule(recorder, *args, **kwargs)
        recorder.operator = outer
        end = len(recorder.reads)
        if end == start:
            if written is None:
                made = _viewed(made, first, absorbed)
        elif comparing or type(made) is not Tensor or made.memory.writer != end - 1 or written is not None:
            tracking.settle(start, end, made, written)
        if comparing:
            tracking.called(name, recorder.scope, args, kwargs, given, range(start, end), made)
        return made

    return settled


#: Casts that belong to a group of PyTorch's tensor-expression fuser.
_ABSORBED = frozenset({"to", "type_as"})


def _viewed(made: Any, first: Any, absorbed: bool) -> Any:
    """Result of an operator that launched nothing, marked if it is a view of its first argument."""
    if type(made) is Tensor and type(first) is Tensor and made.memory is first.memory and made.value is None:
        return made.viewed(first, absorbed)
    return made


#: Types that are and contain no tensor.
_PLAIN = frozenset({int, float, bool, str, type(None)})


def all_on_host(values: Iterable[Any]) -> bool:
    """True if values and lists have tensors, all held by the host."""
    found = False
    for value in values:
        if type(value) in _PLAIN:
            continue
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, Tensor):
                if item.value is None:
                    return False
                found = True
    return found


def known_operators() -> tuple[str, ...]:
    return tuple(sorted(RULES))


def apply_rule(recorder: Recorder, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Result of an operator. Raises UnsupportedOperator, or ShapeError for wrong arguments."""
    rule = rule_of(name)
    if rule is None:
        raise UnsupportedOperator(f"operator {spelled(name)} {_why_missing(name)}")
    recorder.account.step()
    try:
        return rule(recorder, *args, **kwargs)
    except DataDependent as error:
        error.operator = error.operator or spelled(name)
        raise
    except RULE_ERRORS as error:
        raise ill_typed(name, args, error) from error


#: Python's errors for values of types that an operator does not take.
RULE_ERRORS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError, StopIteration)


def ill_typed(name: str, args: Sequence[Any], error: Exception) -> ShapeError:
    shown = ", ".join(map(_short, args))
    return ShapeError(f"operator {spelled(name)} cannot take these arguments ({shown}): {error}")


def spelled(name: str) -> str:
    return name if "::" in name else f"aten::{name}"


def _short(value: Any) -> str:
    """Argument in a message; containers are not walked, since they may be endless."""
    if isinstance(value, (Tensor, ScriptObject, int, float, bool, type(None))):
        return repr(value)[:60]
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, (list, tuple)) and len(value) <= 6 and all(type(item) in (int, float, bool) for item in value):
        return repr(value)[:80]
    return type(value).__name__


def _why_missing(name: str) -> str:
    base = name.rpartition("::")[2]
    if name.startswith(("quantized::", "_quantized::")) or base.startswith(("quantize_", "quantized_", "fbgemm_")):
        return (
            "of an 8-bit quantised model (or one packed for a CPU) has no shape rule: decompose the model before quantisation"
        )
    return "has no shape rule"
