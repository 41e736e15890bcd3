# SPDX-License-Identifier: Apache-2.0
"""The product's modules and what they import of each other, read from their syntax."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from jetdvfs.tests.support.paths import ROOT

#: From top to bottom: each may import those after it.
PACKAGES = ("daemon", "profiles", "kernels")


class Import(NamedTuple):
    """An import statement's module: dotted, of the product's own without ``jetdvfs``; and how many dots it was written with."""

    name: str
    level: int


@cache
def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def modules() -> Mapping[str, Path]:
    """The file of every module of the product, by dotted name below ``jetdvfs``; a package's is its ``__init__``."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(nodes: ast.AST, path: Path) -> Iterator[Import]:
    """Every import below a node of a file's syntax, whether it runs when the module is loaded, later, or for types alone."""
    here = path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(nodes):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*here[: len(here) - node.level]] if node.level else []
            base += node.module.split(".") if node.module else []
            yield from (Import(".".join((*base, alias.name)), node.level) for alias in node.names)


@cache
def imports(name: str) -> frozenset[str]:
    """The product's modules that a module imports: of ``from package import name`` the module of that name, else the package."""
    path = modules()[name]
    found = set()
    for imported in statements(syntax(path), path):
        if imported.level:
            known = imported.name if imported.name in modules() else imported.name.rpartition(".")[0]
            found.add(known)
    return frozenset(found & modules().keys())


def circles(graph: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """The groups of modules that reach each other (strongly connected components of more than one module)."""
    order: list[str] = []
    seen: set[str] = set()
    for start in graph:
        stack = [(start, iter(sorted(graph[start])))] if start not in seen else []
        seen.add(start)
        while stack:
            name, rest = stack[-1]
            following = next((other for other in rest if other not in seen), None)
            if following is None:
                order.append(stack.pop()[0])
            else:
                seen.add(following)
                stack.append((following, iter(sorted(graph[following]))))
    importers: dict[str, list[str]] = {name: [] for name in graph}
    for name, targets in graph.items():
        for target in targets:
            importers[target].append(name)
    groups = []
    left = set(graph)
    for start in reversed(order):
        group, waiting = [], [start] if start in left else []
        left.discard(start)
        while waiting:
            group.append(waiting.pop())
            for other in importers[group[-1]]:
                if other in left:
                    left.discard(other)
                    waiting.append(other)
        if len(group) > 1:
            groups.append(sorted(group))
    return groups
