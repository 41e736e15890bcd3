# SPDX-License-Identifier: Apache-2.0
"""Weights of a file that no launch reads: a note, and the end of a list that has next to no work for its weights."""

from __future__ import annotations

import pytest

from jetdvfs.kernels.errors import EndsEarly
from jetdvfs.kernels.network import Network
from jetdvfs.kernels.operators.unread import MISSING
from jetdvfs.tests.support.models import handmade
from jetdvfs.tests.support.models.reading import read

USED = "return torch.linear(torch.zeros([1, 16]), self.w, None)"
OTHER = "  def encode(self: __torch__.M,\n    x: Tensor) -> Tensor:\n    return torch.linear(x, self.v, None)\n"


def network(*lines: str, more: str = "") -> Network:
    """Of a module with a weight ``w`` of 64x16, ``v`` of 640x640 and ``table`` of 10,000x16."""
    shapes = {"w": (64, 16), "v": (640, 640), "table": (10_000, 16)}
    data = handmade.module({name: handmade.tensor(name, *shape) for name, shape in shapes.items()})
    return read(handmade.archive(handmade.forward(*lines) + more, data=data))


@pytest.mark.parametrize("lookup", ["torch.embedding(self.table, i)", "torch.embedding_bag(self.table, i, i)"])
def test_weights_that_are_all_read_need_no_note(lookup: str) -> None:
    rows = f"i = torch.zeros([2], dtype=4)\n    b = {lookup}"
    found = network("a = torch.relu(torch.t(self.v))", rows, USED)
    assert (found.unread, found.boundary) == ("", None)


def test_a_list_without_the_work_of_its_weights_ends_early() -> None:
    found = network("if bool(False):", "  y = torch.linear(x, self.v, None)", USED)
    assert found.boundary is not None and found.boundary.operator == MISSING
    assert (
        "2 of 3 weights (100% of their elements) are read by no launch: v, table; they imply 8.192e+05 FLOPs"
        in found.boundary.reason
    )
    with pytest.raises(EndsEarly, match=f"to take it as it is: --accept-boundary {MISSING}"):
        found.check_whole()
    found.check_whole([MISSING])


def test_a_head_that_does_not_run_is_a_note() -> None:
    found = network(
        "y = torch.matmul(torch.zeros([512, 640]), self.v)", "if bool(False):", "  y = torch.relu(self.w)", "return y"
    )
    assert found.boundary is None and found.unread.startswith("2 of 3 weights (28% of their elements) are read by no launch: w")
    assert Network.from_json(found.to_json()) == found


@pytest.mark.parametrize("calls", [False, True])
def test_weights_of_a_method_that_is_not_called_imply_nothing(calls: bool) -> None:
    branch = ("if bool(False):", "  y = (self).encode(x, )") if calls else ()
    found = network(*branch, USED, more=OTHER)
    assert found.unread and (found.boundary is not None) is calls
