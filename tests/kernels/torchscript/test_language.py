# SPDX-License-Identifier: Apache-2.0
"""TorchScript's language: each piece, scripted, comes to the same number in PyTorch and in the reader."""

from __future__ import annotations

import importlib.util
import io
import textwrap
from typing import Any

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.tests.support.models.language import METHOD, PIECES

torch = pytest.importorskip("torch", reason="PyTorch compiles the language; it is not installed")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::Warning")]


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, io.BytesIO]:
    text = "import torch, math\nfrom typing import *\nfrom torch import Tensor\nclass Pieces(torch.nn.Module):"
    for place, piece in enumerate(PIECES.split("---\n")):
        text += METHOD.format(place=place, piece=textwrap.indent(piece.strip(), " " * 8))
    path = tmp_path_factory.mktemp("language") / "pieces.py"
    path.write_text(text + "\n    def forward(self, x: Tensor):\n        return x\n")
    spec = importlib.util.spec_from_file_location("pieces", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = torch.jit.script(module.Pieces())
    stream = io.BytesIO()
    torch.jit.save(made, stream)
    return made, stream


def test_every_piece_of_the_language_comes_to_what_pytorch_makes_of_it(scripted: tuple[Any, io.BytesIO]) -> None:
    module, stream = scripted
    x, differing = torch.ones(2, 8), []
    for place, piece in enumerate(PIECES.split("---\n")):
        expected = tuple(getattr(module, f"piece_{place}")(x).shape)
        network = decompose(stream, [parse_input("2x8")], method=f"piece_{place}")
        if network.boundary or network.launches[-1].output != expected:
            differing.append((piece, network.launches[-1:], expected, network.boundary))
    assert differing == []
