# SPDX-License-Identifier: Apache-2.0
"""``torch.autocast`` in scripted code: on, it is refused; off, it changes nothing."""

from __future__ import annotations

import io

import pytest

from jetdvfs.kernels.errors import UnsupportedOperator
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.tests.support.models.reading import read

torch = pytest.importorskip("torch", reason="PyTorch compiles autocast; it is not installed")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::Warning")]


class Within(torch.nn.Module):  # type: ignore[name-defined]
    """Two kinds of regions, one within the other."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(8, 8)

    def forward(self, x, outer: bool, inner: bool):  # type: ignore[no-untyped-def]
        y = x
        with torch.autocast("cuda", enabled=outer):
            y = self.a(y)
            with torch.cuda.amp.autocast(enabled=inner):
                y = self.a(y)
        if outer and inner:
            with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
                y = self.a(y)
        return y.relu()


@pytest.fixture(scope="module")
def scripted() -> bytes:
    stream = io.BytesIO()
    torch.jit.save(torch.jit.script(Within().eval()), stream)
    return stream.getvalue()


def test_an_autocast_that_is_off_changes_nothing(scripted: bytes) -> None:
    inputs = [parse_input(text) for text in ("2x8", "false", "false")]
    assert read(scripted, inputs).kinds == {"matmul": 2, "relu": 1}


@pytest.mark.parametrize("flags", [("true", "false"), ("false", "true")])
def test_an_autocast_that_is_on_is_refused_with_the_way_out(scripted: bytes, flags: tuple[str, str]) -> None:
    with pytest.raises(UnsupportedOperator, match=r"autocast .*half\(\) and save that"):
        read(scripted, [parse_input(text) for text in ("2x8", *flags)])
