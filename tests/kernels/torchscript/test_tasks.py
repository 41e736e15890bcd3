# SPDX-License-Identifier: Apache-2.0
"""Functions within functions: tasks of ``torch.jit.fork``, as saved code spells them, and functions that are cut short."""

from __future__ import annotations

import pytest

from jetdvfs.kernels.errors import ModelError
from jetdvfs.tests.support.models.handmade import archive, forward
from jetdvfs.tests.support.models.reading import read

TASK = ("def __forked_function():", "  return torch.relu(x)", "f = fork(__forked_function)")


def kinds(*lines: str, more: str = "") -> list[str]:
    return [launch.kind for launch in read(archive(forward(*lines) + more)).launches]


def test_a_method_goes_on_behind_a_task() -> None:
    assert kinds(*TASK, "y = torch.tanh(x)", "return torch.add(torch.wait(f), y)") == ["relu", "tanh", "add"]


def test_the_method_after_a_task_is_a_method() -> None:
    other = "  def other(self: __torch__.M,\n    y: Tensor) -> Tensor:\n    return torch.exp(y)\n"
    assert kinds(*TASK, "return (self).other(torch.wait(f), )", more=other) == ["relu", "exp"]


def test_a_free_function_goes_on_behind_a_task() -> None:
    free = "def free(y: Tensor) -> Tensor:\n  def __forked_function():\n    return torch.exp(y)\n"
    free += "  f = fork(__forked_function)\n  return torch.tanh(torch.wait(f))\n"
    assert kinds("return __torch__.free(x, )", more=free) == ["exp", "tanh"]


def test_tasks_within_tasks_and_loops() -> None:
    lines = (
        "fs = annotate(List[Future[Tensor]], [])",
        "for i in range(3):",
        "  def __forked_function():",
        "    y = torch.mul(x, i)",
        "    def __forked_function0():",
        "      return torch.relu(y)",
        "    f = fork(__forked_function0)",
        "    return torch.wait(f)",
        "  _0 = torch.append(fs, fork(__forked_function))",
        "return torch.add(torch.wait(fs[0]), torch.wait(fs[2]))",
    )
    assert kinds(*lines) == ["mul_scalar", "relu"] * 3 + ["add"]


def test_names_in_a_task_are_its_own() -> None:
    lines = (
        "y = torch.relu(x)",
        "def task():",
        "  y = torch.zeros([7])",
        "  return y",
        "f = fork(task)",
        "return torch.tanh(y)",
    )
    assert read(archive(forward(*lines))).launches[-1].output == (2, 3)


def test_an_awaitable_runs_once_when_it_is_awaited() -> None:
    lines = ("def task():", "  return torch.relu(x)", "w = awaitable(task)", "y = torch.tanh(x)")
    assert kinds(*lines, "return y") == ["tanh"]
    end = "return torch.add(ops.prim.awaitable_wait(w), ops.prim.awaitable_wait(w))"
    assert kinds(*lines, end) == ["tanh", "relu", "add"]


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (("y = torch.relu(x)",), "ends without the value"),
        (("if bool(False):", "  return x"), "ends without the value"),
        (("f = fork(x)", "return x"), "starts a task of type Tensor"),
        (("return torch.wait(fork())",), "starts a task of type NoneType"),
    ],
    ids=str,
)
def test_code_that_is_cut_short_is_refused(lines: tuple[str, ...], named: str) -> None:
    with pytest.raises(ModelError, match=named):
        read(archive(forward(*lines)))


def test_a_method_that_returns_nothing_may_end() -> None:
    other = "  def other(self: __torch__.M) -> NoneType:\n    y = torch.zeros([1])\n"
    assert kinds("_0 = (self).other()", "return torch.relu(x)", more=other) == ["zeros", "relu"]
