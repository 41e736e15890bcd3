# SPDX-License-Identifier: Apache-2.0
"""What reading a file may cost: every limit holds, can be lowered and not be raised."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jetdvfs.kernels.budget import Budget
from jetdvfs.kernels.errors import BudgetExceeded, KernelsError
from jetdvfs.tests.support.models import handmade
from jetdvfs.tests.support.models.reading import read

ENDLESS = {
    "loop": ["n = 0", "while True:", "  n = torch.add(n, 1)", "return x"],
    "list doubled": ["a = [1]", "while True:", "  a = torch.add(a, a)", "return x"],
    "list extended by itself": ["a = [1]", "while True:", "  torch.extend(a, a)", "return x"],
    "string doubled": ["a = 'aa'", "while True:", "  a = torch.add(a, a)", "return x"],
    "number squared": ["a = 3", "while True:", "  a = torch.mul(a, a)", "return x"],
    "power": ["a = torch.pow(9, 999999999)", "return x"],
    "list multiplied": ["a = torch.mul([1], 9999999999)", "return x"],
    "range": ["for i in range(9999999999):", "  pass", "return x"],
    "launches": ["while True:", "  y = torch.relu(x)", "return x"],
    "recursion": ["return (self).forward(x, )"],
    "tensor grown": ["while True:", "  x = torch.cat([x, x])", "return x"],
    "rank grown": ["while True:", "  x = torch.unsqueeze(x, 0)", "return x"],
    "chunks": ["x = torch.expand(torch.select(torch.select(x, 0, 0), 0, 0), [999999999])", "y = torch.unbind(x)", "return x"],
    "nested pairs compared": ["a = (1, 2)", "b = (1, 2)", *["a = (a, a)", "b = (b, b)"] * 60, "c = torch.eq(a, b)", "return x"],
    "nested pairs printed": ["a = (1, 2)", *["a = (a, a)"] * 60, "c = torch.format('{}', a)", "return torch.conv2d(a, x)"],
    "deep brackets": ["y = " + "(" * 150 + "x" + ")," * 150, "return x"],
    "deep operators": ["y = " + "-" * 5000 + "1", "return x"],
    "deep attributes": ["y = x" + ".a" * 5000, "return x"],
    "deep sum": ["y = 1" + " + 1" * 20000, "return x"],
    "deep blocks": ["  " * depth + "if True:" for depth in range(99)] + ["  " * 99 + "pass", "return x"],
    "long number": ["y = " + "9" * 100_000, "return x"],
}


@pytest.mark.parametrize("name", ENDLESS)
def test_code_that_would_never_end_is_stopped_by_the_budget(name: str) -> None:
    began = time.process_time()
    with pytest.raises(KernelsError):
        read(handmade.archive(handmade.forward(*ENDLESS[name])), budget=Budget(steps=100_000, cpu_s=5))
    assert time.process_time() - began < 5


def test_processor_time_is_bounded_by_the_budget() -> None:
    code = handmade.forward("while True:", "  y = torch.dim(x)", "return x")
    began = time.process_time()
    with pytest.raises(BudgetExceeded, match=r"more than 0\.2 s of processor time"):
        read(handmade.archive(code), budget=Budget(cpu_s=0.2))
    assert time.process_time() - began < 2


TWICE = handmade.archive(handmade.forward("y = torch.relu(torch.relu(x))", "return y"))
LOOP = handmade.archive(handmade.forward("n = 0", "while True:", "  n = torch.add(n, 1)", "return x"))
KEPT = handmade.archive(handmade.forward("a = []", "while True:", "  torch.append(a, torch.mul([1], 60000))", "return x"))
CHILD = handmade.archive(handmade.forward("return x"), data=handmade.module({"c": handmade.PLAIN_MODULE[2:-1]}))
GRAPH = handmade.zipped({"m/models/model.json": b'{"graph_module": 1}'})
#: For each limit of the budget, a value and a file that crosses it.
CROSSED = {
    "entries": (2, TWICE),
    "directory_bytes": (10, TWICE),
    "entry_bytes": (10, TWICE),
    "graph_bytes": (10, GRAPH),
    "total_bytes": (10, TWICE),
    "source_bytes": (10, TWICE),
    "piece_bytes": (10, TWICE),
    "ast_depth": (1, TWICE),
    "ast_nodes": (2, TWICE),
    "pickle_steps": (3, TWICE),
    "steps": (600, LOOP),
    "recursion": (1, handmade.archive(handmade.forward("return (self).forward(x, )"))),
    "rank": (1, TWICE),
    "elements": (3, TWICE),
    "items": (2, handmade.archive(handmade.forward("a = torch.mul([1], 3)", "return x"))),
    "calls": (1, TWICE),
    "tree_objects": (1, CHILD),
    "cpu_s": (1e-9, TWICE),
    "memory_bytes": (8 << 20, KEPT),
}


def test_every_limit_of_the_budget_has_a_test() -> None:
    assert set(CROSSED) == set(Budget.__struct_fields__)


@pytest.mark.parametrize("name", CROSSED)
def test_every_limit_of_the_budget_can_be_lowered_and_holds(name: str) -> None:
    limit, data = CROSSED[name]
    lowered: dict[str, Any] = {name: limit}
    with pytest.raises(BudgetExceeded):
        read(data, budget=Budget(**lowered))


def test_a_budget_cannot_be_raised() -> None:
    with pytest.raises(BudgetExceeded, match="at most"):
        Budget(steps=10**9)
