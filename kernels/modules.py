# SPDX-License-Identifier: Apache-2.0
"""A network by its modules: what each one launches, its own calls and those of the modules within it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .network import KernelInvocation, Network


@dataclass
class Module:
    """One module of a network.

    Attributes:
        path: how the network reaches it (``layer1.0.conv1``); empty for the network itself.
        own: the launches that its own code makes, in execution order.
        launches, flops, bytes, kinds: sums over those and the launches of all modules within it.
    """

    path: str
    own: list[KernelInvocation] = field(default_factory=list)
    launches: int = 0
    flops: int = 0
    bytes: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def depth(self) -> int:
        return len(self.path.split(".")) if self.path else 0

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    def to_json(self) -> dict[str, Any]:
        totals = {"launches": self.launches, "flops": self.flops, "bytes": self.bytes, "kinds": dict(self.kinds.most_common())}
        return {"module": self.path, "depth": self.depth, "own_launches": len(self.own), **totals}


def modules_of(network: Network) -> list[Module]:
    """Every module that launches something, in order of first launch, each before those within it; first the network itself."""
    children: dict[str, list[Module]] = {}
    known: dict[str, Module] = {}
    for launch in network.launches:
        for path in _paths(launch.scope):
            if path not in known:
                known[path] = Module(path)
                children.setdefault(path.rpartition(".")[0] if path else "-", []).append(known[path])
            module = known[path]
            module.launches += 1
            module.flops += launch.flops
            module.bytes += launch.bytes
            module.kinds[launch.kind] += 1
        known[launch.scope].own.append(launch)
    return _depth_first(children)


def _paths(scope: str) -> list[str]:
    """A scope and every module around it, the network first."""
    parts = scope.split(".") if scope else []
    return [".".join(parts[:depth]) for depth in range(len(parts) + 1)]


def _depth_first(children: Mapping[str, list[Module]]) -> list[Module]:
    order: list[Module] = []
    waiting = list(children.get("-", ()))
    while waiting:
        module = waiting.pop()
        order.append(module)
        waiting += [child for child in reversed(children.get(module.path, ())) if child is not module]
    return order
