# SPDX-License-Identifier: Apache-2.0
"""The code of a TorchScript file: found by qualified name, split into functions by its fixed layout, parsed on demand.

PyTorch indents code by two spaces, escapes strings onto one line and qualifies all names, so that a function's text can be cut
out without parsing its surroundings. Nothing is compiled.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from msgspec import Struct, field

from ..budget import Account
from ..errors import BudgetExceeded, ModelError
from ..operators.values import Tensor
from .archive import Archive

#: Supported versions. PyTorch 1.4 was the first to write this format, as version 1; PyTorch 2.13 writes 10.
OLDEST, NEWEST = 1, 10

Arguments = tuple[list[Any], dict[str, Any]]


class Upgrade(NamedTuple):
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
    """Operators that a file of this version calls in an older way, and the conversion of their arguments."""
    return {name: upgrade.adapt for upgrade in UPGRADES if version < upgrade.before for name in upgrade.operators}


def parse_version(text: bytes) -> int:
    number = text.strip()
    if not number.isdigit() or len(number) > 9 or not OLDEST <= int(number) <= NEWEST:
        raise ModelError(f"archive is of format version {number[:20]!r}; versions {OLDEST} to {NEWEST} are read")
    return int(number)


_HEADS = re.compile(r"^(?:class (\w+)(?:\(([\w.]*)\))?:|( *)def (\w+)\()", re.MULTILINE)
_SELF_TYPE = re.compile(r"\A( *def \w+\(\w+): [\w.]+")
_ATTRIBUTE = re.compile(r"^  (\w+)(?: : ?(.*?))?(?: = (.*))?$", re.MULTILINE)
_HEAD_END = re.compile(r":[ \t]*\n")
#: Characters of a function that are parsed at a time.
_PIECE = 1 << 13
_LONG_NUMBER = re.compile(r"\d{400}")


class FunctionSource(Struct, frozen=True, eq=False):
    name: str
    text: str
    file: str
    whole: str
    start: int

    def location(self, line: int) -> str:
        return f"{self.file}:{self.whole.count(chr(10), 0, self.start) + max(line, 1)}"


class ClassSource(Struct, frozen=True, eq=False):
    name: str
    base: str
    fields: dict[str, str | None]
    methods: dict[str, FunctionSource] = field(default_factory=dict)


class FunctionSyntax(NamedTuple):
    """A function's parameters, and its body in pieces, parsed on demand: the syntax of a long one is never held at once."""

    parameters: ast.arguments
    returns: bool
    pieces: Callable[[], Iterator[list[ast.stmt]]]
    long: bool


class SourceTree:
    def __init__(self, archive: Archive, account: Account) -> None:
        self._archive = archive
        self._account = account
        self._files: dict[str, dict[str, ClassSource | FunctionSource]] = {}

    def find(self, qualified: str) -> ClassSource | FunctionSource:
        module, _, name = qualified.rpartition(".")
        found = self._file(module).get(name)
        if found is None:
            raise ModelError(f"archive has no code for {qualified!r:.160}")
        return found

    def _file(self, module: str) -> dict[str, ClassSource | FunctionSource]:
        if module not in self._files:
            path = f"code/{module.replace('.', '/')}.py"
            if path not in self._archive:
                raise ModelError(f"archive has no code for {module!r:.160}")
            if self._archive.size(path) > self._account.budget.source_bytes:
                size = self._archive.size(path)
                raise BudgetExceeded(
                    f"{path} has {size} bytes; at most {self._account.budget.source_bytes} are read of one file"
                )
            try:
                text = self._archive.read(path).decode()
            except UnicodeDecodeError as error:
                raise ModelError(f"{path}: source is not UTF-8 ({error})") from error
            self._files[module] = _split(path, text)
            self._account.check()
        return self._files[module]

    def parse(self, text: str) -> FunctionSyntax:
        """The syntax of one function's text; lines count from 2. Raises ModelError or BudgetExceeded."""
        head_end = _HEAD_END.search(text)
        if head_end is None:
            raise ModelError("code is not laid out as PyTorch writes it: a function has no body")
        outer = len(text) - len(text.lstrip(" "))
        head = self._parsed(text[: head_end.end()] + " " * (outer + 2) + "pass", 0)
        if len(head) != 1 or not isinstance(head[0], ast.FunctionDef):
            raise ModelError("code holds something else where a function is expected")
        start, indent = head_end.end(), outer + 2
        declared = head[0].returns
        returns = declared is not None and ast.unparse(declared) not in ("None", "NoneType")
        return FunctionSyntax(head[0].args, returns, lambda: self._pieces(text, start, indent), len(text) - start > _PIECE)

    def _pieces(self, text: str, start: int, indent: int) -> Iterator[list[ast.stmt]]:
        cuts = re.compile(rf"^ {{{indent}}}(?!\s|else:|elif |[)\]}}])", re.MULTILINE)
        while start < len(text):
            cut = cuts.search(text, start + _PIECE) if len(text) - start > _PIECE else None
            end = cut.start() if cut else len(text)
            yield self._parsed(text[start:end], text.count("\n", 0, start))
            self._account.check()
            start = end

    def _parsed(self, text: str, lines_before: int) -> list[ast.stmt]:
        """Indented statements, parsed with ``lines_before`` lines counted before them; the first line after those is line 2."""
        opening = "if 1:\n" if text.startswith(" ") else "\n"
        body: list[ast.stmt] = parse_source(opening + text, self._account.budget.piece_bytes, lines_before).body
        return body[0].body if len(body) == 1 and isinstance(body[0], ast.If) and text.startswith(" ") else body


def parse_source(text: str, limit: int, lines_before: int = 0) -> ast.Module:
    """Python syntax to a tree, with every failure as one error; ``lines_before`` lines count before the first."""
    if len(text) > limit:
        raise BudgetExceeded(f"a statement of {len(text)} characters; at most {limit} are parsed at a time")
    if _LONG_NUMBER.search(text):
        raise ModelError("code holds a number of hundreds of digits")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse("\n" * lines_before + text)
    except (SyntaxError, ValueError) as error:
        raise ModelError(f"code is not valid Python: {error.args[0] if error.args else error}") from error
    except (RecursionError, MemoryError) as error:
        raise BudgetExceeded("code is nested too deeply to be parsed") from error


def _split(path: str, text: str) -> dict[str, ClassSource | FunctionSource]:
    found: dict[str, ClassSource | FunctionSource] = {}
    heads: list[re.Match[str]] = []
    in_class = False
    for head in _HEADS.finditer(text):
        if not head[3]:
            in_class = head[3] is None
        elif len(head[3]) > 2 or not in_class:
            continue
        heads.append(head)
    current: ClassSource | None = None
    for head, after in zip(heads, [*(head.start() for head in heads[1:]), len(text)], strict=False):
        class_name, base, indent, function_name = head.groups()
        if class_name:
            body = text[head.end() : after]
            current = ClassSource(class_name, base or "", {m[1]: m[3] for m in _ATTRIBUTE.finditer(body)})
            found[class_name] = current
        elif not indent:
            found[function_name] = FunctionSource(function_name, text[head.start() : after], path, text, head.start())
        elif current is not None:
            # Copies of a class differ in the type of self alone: without it, equal methods are parsed once.
            method = _SELF_TYPE.sub(r"\1", text[head.start() : after])
            current.methods[function_name] = FunctionSource(function_name, method, path, text, head.start())
    return found
