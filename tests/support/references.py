# SPDX-License-Identifier: Apache-2.0
"""What docstrings and comments refer to by a role, as in ``:class:`~jetdvfs.kernels.grid.FrequencyGrid```: found, followed."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import resolve_name
from typing import Any

from jetdvfs.tests.support.imports import imported_names, is_face, modules, syntax

ROLE = re.compile(r":(?:mod|func|class|meth|attr|data|exc):`(~?[\w.]+)`")

#: Modules of the reference, from applications down.
FACES = (
    "daemon.notebook",
    "daemon.qos",
    "daemon.wire.client",
    "daemon.wire.persistent_lease",
    "daemon.planning.plan",
    "daemon.planning.targets",
    "daemon.errors",
    "profiles.board",
    "profiles.bundle.bundle",
    "profiles.errors",
    "kernels.decompose",
    "kernels.inputs",
    "kernels.network",
    "kernels.kinds",
    "kernels.grid",
    "kernels.surface",
    "kernels.cost.model",
    "kernels.correction.correct",
    "kernels.correction.observation",
    "kernels.trees.ensemble",
    "kernels.errors",
)


def references(text: str) -> Iterator[str]:
    """What a text refers to, as it is written."""
    yield from (found.group(1) for found in ROLE.finditer(text))


def followed(reference: str, name: str) -> str | None:
    """The full name of what a reference in a module (its name below ``jetdvfs``) means; None where there is no such thing.

    It is written in full, from the module's package on with a dot before it, or as it is called within the module or one of its
    classes.
    """
    reference = reference.lstrip("~")
    module = f"jetdvfs.{name}"
    if reference.startswith("."):
        candidates = [resolve_name(reference, module if is_face(name) else module.rpartition(".")[0])]
    else:
        candidates = [reference] if "." in reference else []
        candidates += [f"{place}.{reference}" for place in (module, *_classes(name))]
        head, dot, rest = reference.partition(".")
        candidates += [f"jetdvfs.{other}{dot}{rest}" for other in _imported(name) if other.rpartition(".")[2] == head]
    return next((candidate for candidate in candidates if _exists(candidate)), None)


def _classes(name: str) -> list[str]:
    return [f"jetdvfs.{name}.{node.name}" for node in syntax(modules()[name]).body if isinstance(node, ast.ClassDef)]


def _imported(name: str) -> list[str]:
    path = modules()[name]
    return [found.name for found in imported_names(syntax(path), path) if found.level]


@cache
def _exists(name: str) -> bool:
    """Whether a dotted name is that of a module, or of something in one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        return _has(thing, parts[cut:])
    return False


def _has(thing: Any, members: list[str]) -> bool:
    for number, member in enumerate(members):
        if not hasattr(thing, member):
            annotated = [member in getattr(one, "__annotations__", ()) for one in getattr(thing, "__mro__", ())]
            return number == len(members) - 1 and any(annotated)
        thing = getattr(thing, member)
    return True
