# SPDX-License-Identifier: Apache-2.0
"""Verbs of ``jetdvfs-lab``.

A verb is a module with ``configure(parser)`` and ``run(args)``, or a group of modules with ``configure(verb)``.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

from ....daemon import arguments
from ....daemon.cli.verbs import Program

Action: TypeAlias = Callable[[argparse.Namespace], int]

_VERBS: dict[str, tuple[tuple[str, ...], str]] = {
    "collect": (("collecting",), "measure networks and kernels of a board, a GPU or a processor into a record"),
    "train": (("making",), "train a profile's models on a record or on simulated boards, and evaluate them"),
    "tune": (("tuning",), "search hyperparameters for a record's models"),
    "cross-validate": (("cross_validation",), "predict each network of a record by models trained without it"),
    "adapt": (("adapting",), "adapt a profile to the board of a record"),
    "evaluate": (("evaluating",), "evaluate a profile, its plans or whole-network predictors on unseen boards and networks"),
    "networks": (("networks", "counting", "predicting"), "measure random networks, and predict unseen ones from them"),
    "table": (("importing", "sharing"), "import, export and merge records"),
    "compare": (
        ("accuracy", "real", "applications", "replaying", "transferring", "fleet"),
        "compare predictions with measurements of real boards",
    ),
    "paper": (("paper.report", "paper.table1", "paper.characterize"), "reproduce the tables and figures of MIRAGE (SEC '21)"),
    "silicon": (("silicon_gate", "silicon_comparison"), "check the simulated chips"),
    "trace": (("trace",), "compare a profiler trace with the decomposed kernel list"),
}


class VerbGroup:
    """Verb of several modules; its docstring is its help."""

    def __init__(self, modules: tuple[ModuleType, ...], summary: str) -> None:
        self.modules = modules
        self.__doc__ = f"{summary[0].upper()}{summary[1:]}."

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parts = parser.add_subparsers(dest="part", metavar="PART", required=True)

        def verb(name: str, text: str, action: Action) -> argparse.ArgumentParser:
            sub = arguments.add_action(parts, name, text)
            sub.set_defaults(action=action)
            return sub

        for module in self.modules:
            module.configure(verb)

    def run(self, args: argparse.Namespace) -> int:
        action: Action = args.action
        return action(args)


def _module_of(verb: str) -> Any:
    names, summary = _VERBS[verb]
    modules = tuple(importlib.import_module(f".{name}", __package__) for name in names)
    return modules[0] if len(modules) == 1 else VerbGroup(modules, summary)


LAB = Program(
    "jetdvfs-lab",
    "Measure boards, train and evaluate profiles, and reproduce published results.",
    {name: summary for name, (_, summary) in _VERBS.items()},
    _module_of,
)
