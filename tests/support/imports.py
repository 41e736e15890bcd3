# SPDX-License-Identifier: Apache-2.0
"""The floor plan: the product's modules, what they import of each other, and which of its rooms may import which."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from jetdvfs.tests.support.paths import ROOT

#: The product's rooms from top to bottom: each imports only rooms on floors below its own. A room is a folder, or a module that
#: stands on another floor than the rest of its folder; subfolders that have a line of their own are rooms of their own.
FLOORS = (
    ("profiles.lab.cli",),
    ("profiles.twin.cli",),
    ("profiles.lab.compare",),
    ("profiles.lab.paper",),
    ("daemon.notebook", "daemon.cli.setup"),
    ("daemon.cli.doctor",),
    ("daemon.cli.bug_report",),
    ("daemon.cli.config", "daemon.cli.web"),
    ("daemon.cli",),
    ("daemon.service", "daemon.qos"),
    ("daemon.resident",),
    ("daemon.recovery",),
    ("daemon.api",),
    ("daemon.programs",),
    ("daemon.surfaces", "daemon.arguments"),
    ("daemon.leases.mode_proposals", "daemon.leases.board.status"),
    ("daemon.leases.learning",),
    ("daemon.leases.board",),
    ("daemon.leases.controller",),
    ("daemon.leases.drift", "daemon.leases.permitted_clocks", "daemon.leases.effective_leases"),
    ("daemon.leases.unmet_targets",),
    ("daemon.leases.budgets",),
    ("daemon.leases.sharing",),
    ("daemon.leases.joint_choice",),
    ("daemon.leases",),
    ("daemon.leases.frames",),
    ("daemon.leases.credible_range", "daemon.leases.missed_targets"),
    ("daemon.planning",),
    ("daemon.config", "daemon.profile"),
    ("daemon.planning.lease_plan",),
    ("daemon.planning.plan",),
    ("daemon.planning.limits",),
    ("daemon.planning.targets",),
    ("daemon.leases.demand",),
    ("daemon.leases.demand_floors",),
    ("daemon.wire.serving",),
    ("daemon.wire", "daemon.worker", "daemon.system"),
    ("daemon.hardware",),
    ("daemon.hardware.clocks", "daemon.hardware.sensors"),
    ("daemon.hardware.files",),
    ("daemon.hardware.bounded_calls", "daemon.descriptors", "daemon.system.folders"),
    ("daemon",),
    ("daemon.errors",),
    ("profiles.lab.train", "profiles.lab.networks", "profiles.lab.traces"),
    ("profiles.lab.measure",),
    ("profiles.lab.measure.meters", "profiles.twin"),
    ("profiles.twin.silicon", "profiles.twin.measured"),
    ("profiles.lab", "profiles.adapt"),
    ("profiles.bundle",),
    ("profiles.reference",),
    ("profiles",),
    ("kernels.decompose", "kernels.cost", "kernels.correction"),
    ("kernels.engine", "kernels.language"),
    ("kernels.onnx", "kernels.exported_program", "kernels.trees"),
    ("kernels.torchscript",),
    ("kernels.operators.layers",),
    ("kernels.operators.functions",),
    ("kernels.operators.pointwise", "kernels.operators.reduction"),
    ("kernels.operators.memory",),
    ("kernels.operators.host",),
    ("kernels.operators", "kernels.fusion", "kernels.optimizing", "kernels.exported_pieces"),
    ("kernels",),
)
#: The rooms that decide on clocks, of which no two stand on one floor.
CORE = (
    "daemon.planning",
    "daemon.leases.demand",
    "daemon.leases",
    "daemon.leases.sharing",
    "daemon.leases.budgets",
    "daemon.leases.controller",
    "daemon.leases.board",
    "daemon.leases.learning",
)
PACKAGES = ("daemon", "profiles", "kernels")
#: Not part of the runtime: the lab, and the simulated board. They may import all of it, and it imports none of them.
APART = ("profiles.lab", "profiles.twin")
#: What runs in applications, by their own installation's modules; no package of the product.
APPLICATIONS = ("daemon", "integrations")


class Import(NamedTuple):
    """An imported name, dotted; of the product's own without ``jetdvfs``, written with ``level`` dots before it."""

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
            if parts[:2] == APPLICATIONS:
                continue
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported_names(node: ast.AST, path: Path) -> Iterator[Import]:
    """Every import within a piece of a file's syntax, whether it runs as the module is loaded, later, or for types alone."""
    here = path.relative_to(ROOT).with_suffix("").parts
    for inner in ast.walk(node):
        if isinstance(inner, ast.Import):
            yield from (Import(alias.name, 0) for alias in inner.names)
        elif isinstance(inner, ast.ImportFrom):
            base = [*here[: len(here) - inner.level]] if inner.level else []
            base += inner.module.split(".") if inner.module else []
            yield from (Import(".".join((*base, alias.name)), inner.level) for alias in inner.names)


@cache
def imports(name: str) -> frozenset[str]:
    """The product's modules that one of them imports: a name from a package is its module of that name, or its face."""
    path = modules()[name]
    found = {imported.name for imported in imported_names(syntax(path), path) if imported.level}
    return frozenset({other if other in modules() else other.rpartition(".")[0] for other in found} & modules().keys())


def is_apart(name: str) -> bool:
    """True for a module of the lab or of the simulated board."""
    return any(f"{name}.".startswith(f"{package}.") for package in APART)


def is_face(name: str) -> bool:
    """Whether a module is a package's ``__init__``, which hands on what is inside."""
    return modules()[name].name == "__init__.py"


@cache
def room_of(name: str) -> str:
    """The room a module stands in: of those it could be in, the one with the longest name."""
    return max((room for floor in FLOORS for room in floor if f"{name}.".startswith(f"{room}.")), key=len)


def floor_of(room: str) -> int:
    """Counted from the top."""
    return next(number for number, floor in enumerate(FLOORS) if room in floor)


@cache
def passages() -> Mapping[tuple[str, str], list[str]]:
    """Which rooms import which other ones, and by which imports; what a package's face hands on from inside is none."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in modules():
        for other in sorted(imports(name)):
            inside = is_face(name) and other.startswith(f"{name}.")
            if room_of(name) != room_of(other) and not inside:
                found.setdefault((room_of(name), room_of(other)), []).append(f"{name} imports {other}")
    return found


def circle(graph: Mapping[str, frozenset[str]]) -> list[str]:
    """Some names that lead to each other in a circle, the first again at the end; empty where there is none."""
    done: set[str] = set()
    for start in graph:
        way = [start] if start not in done else []
        open_ends = [iter(sorted(graph[start]))] if way else []
        while way:
            following = next(open_ends[-1], None)
            if following is None:
                done.add(way.pop())
                open_ends.pop()
            elif following in way:
                return [*way[way.index(following) :], following]
            elif following not in done:
                way.append(following)
                open_ends.append(iter(sorted(graph[following])))
    return []
