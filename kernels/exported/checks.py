# SPDX-License-Identifier: Apache-2.0
"""Checks that an exported graph carries along: numbers that are taken out of tensors only to be compared.

``torch._check`` over a tensor becomes a launch or two, an ``item`` on the host, and assertions about that number (PyTorch,
torch/fx/passes/runtime_assert.py). No launch and no shape depends on it, so a list of launches needs not end there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..budget import Account

_ASSERTIONS = frozenset(
    f"torch.ops.aten.{name}.default" for name in ("_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size")
)
_TAKEN_OUT = frozenset(("torch.ops.aten.item.default", "torch.ops.aten._local_scalar_dense.default"))
#: Functions of Python and PyTorch on numbers that are known as the network runs.
_ON_NUMBERS = ("_operator.", "math.", "torch.sym_")


def only_checking(nodes: Sequence[Mapping[str, Any]], outputs: Any, account: Account) -> frozenset[int]:
    """The places of the nodes that work on the host, and for assertions alone.

    Args:
        outputs: what the graph hands out, as its JSON says.

    Raises:
        BudgetExceeded: the graph is larger than is read.
    """
    needed = set(_names(outputs))
    checked: set[str] = set()
    found = []
    for place in range(len(nodes) - 1, -1, -1):
        account.step()
        node = nodes[place]
        target = str(node["target"])
        used = _names([argument["arg"] for argument in node["inputs"]])
        made = set(_names(node["outputs"]))
        on_host = target in _TAKEN_OUT or target.startswith(_ON_NUMBERS)
        if target in _ASSERTIONS or (on_host and made & checked and not made & needed):
            found.append(place)
            checked.update(used)
        else:
            needed.update(used)
    return frozenset(found)


def _names(described: Any) -> Iterator[str]:
    """Every name of a value within a piece of a graph's JSON; those of graphs within it too."""
    waiting = [described]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting += part.values()
            yield from (part[key] for key in ("name", "as_name") if isinstance(part.get(key), str))
        elif isinstance(part, list):
            waiting += part
