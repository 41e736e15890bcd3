# SPDX-License-Identifier: Apache-2.0
"""What a method is given: tensors, numbers, texts, dictionaries and nothing, in order or by name."""

from __future__ import annotations

import io

import pytest

from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.errors import ShapeError
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.tests.support.models.handmade import archive, forward

RESIZED = archive(forward("return torch.upsample_nearest2d(x, [h, w], None, None)", arguments="x: Tensor, h: int, w: int"))
OPTIONAL = archive(
    forward(
        "y = torch.relu(x)",
        "if torch.__isnot__(h, None):",
        "  y = torch.add(y, (h)[0])",
        "if flag:",
        "  y = torch.sigmoid(y)",
        "for i in range(n):",
        "  y = torch.mul(y, factor)",
        "return y",
        arguments="x: Tensor, h: Optional[Tuple[Tensor, Tensor]]=None, n: int=1, flag: bool=False, factor: float=2.",
    )
)
DICTIONARY = archive(forward('return torch.add(torch.relu(d["a"]), d["b"])', arguments="d: Dict[str, Tensor]"))
MODE = archive(
    forward("if torch.eq(mode, 'soft'):", "  return torch.sigmoid(x)", "return torch.relu(x)", arguments="x: Tensor, mode: str")
)
LENGTHS = archive(
    forward("n = int(torch.max(lengths))", "return torch.relu(torch.slice(x, 0, 0, n))", arguments="x: Tensor, lengths: Tensor")
)


def kinds(model: bytes, *texts: str) -> list[str]:
    return [launch.kind for launch in decompose(io.BytesIO(model), [parse_input(text) for text in texts]).launches]


@pytest.mark.parametrize(
    "texts", [("1x3x8x8", "4:int", "6:int"), ("w=6:int", "h=4:int", "1x3x8x8"), ("1x3x8x8", "w=6:int", "4:int")], ids=str
)
def test_numbers_are_given_in_order_or_by_name(texts: tuple[str, ...]) -> None:
    (launch,) = decompose(io.BytesIO(RESIZED), [parse_input(text) for text in texts]).launches
    assert launch.output == (1, 3, 4, 6)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["4"], ["relu", "mul_scalar"]),
        (["4", "none", "2:int"], ["relu", "mul_scalar", "mul_scalar"]),
        (["4", "4", "4", "0:int", "true"], ["relu", "add", "sigmoid"]),
        (["4", "flag=true", "n=0:int"], ["relu", "sigmoid"]),
        (["4", "factor=0.5:float", "h=none"], ["relu", "mul_scalar"]),
    ],
    ids=str,
)
def test_what_may_be_left_out_takes_the_default_or_what_is_given(texts: list[str], expected: list[str]) -> None:
    assert kinds(OPTIONAL, *texts) == expected


def test_a_dictionary_is_given_by_its_keys_or_in_the_order_they_are_looked_up() -> None:
    for texts in (["a=2x4", "b=1x4"], ["b=1x4", "a=2x4"], ["2x4", "1x4"], ["b=1x4", "2x4"]):
        first, _ = decompose(io.BytesIO(DICTIONARY), [parse_input(text) for text in texts]).launches
        assert first.output == (2, 4)
    with pytest.raises(ShapeError, match="'b'"):
        kinds(DICTIONARY, "a=2x4", "c=2x4")


CACHES = archive(
    forward(
        "for i in range(torch.len(past)):",
        "  k, v, = past[i]",
        "  y = torch.add(torch.relu(k), v)",
        "return torch.mul(ops.prim.data(x), n)",
        arguments="x: Tensor, past: List[Tuple[Tensor, Tensor]], n: int",
    )
)
OPTIONAL_CACHES = archive(
    forward(
        "for i in range(torch.len(past)):",
        "  if torch.__isnot__(past[i], None):",
        "    y = torch.relu((past[i])[1])",
        "return x",
        arguments="x: Tensor, past: List[Optional[Tuple[Tensor, Tensor]]]",
    )
)


def test_a_list_of_tuples_is_filled_in_order() -> None:
    assert kinds(CACHES, "4", "2", "2", "3", "3", "7:int") == ["relu", "add"] * 2 + ["mul_scalar"]
    assert kinds(CACHES, "4", "7:int") == ["mul_scalar"]
    assert kinds(OPTIONAL_CACHES, "4", "2", "2", "none", "3", "3") == ["relu"] * 2
    with pytest.raises(ShapeError, match=r"past: List\[Tuple\[Tensor, Tensor\]\].*5 were given"):
        kinds(CACHES, "4", "2", "2", "3", "7:int")


def test_a_text_decides_a_branch() -> None:
    assert kinds(MODE, "4", "soft:str") == ["sigmoid"]
    assert kinds(MODE, "4", "mode=hard:str") == ["relu"]


def test_numbers_in_a_tensor_steer_the_network_where_they_are_said() -> None:
    (launch,) = decompose(io.BytesIO(LENGTHS), [parse_input("9x4"), parse_input("3:int64=2,7,5")]).launches
    assert launch.output == (7, 4)
    unsaid = decompose(io.BytesIO(LENGTHS), [parse_input("9x4"), parse_input("3:int64")])
    assert unsaid.boundary is not None


@pytest.mark.parametrize(
    "texts",
    [
        ["1x3x8x8"],
        ["1x3x8x8", "8", "8"],
        ["1x3x8x8", "8:int", "8.5:float"],
        ["1x3x8x8", "8:int", "8:int", "8:int"],
        ["1x3x8x8", "h=8:int", "h=8:int"],
        ["1x3x8x8", "h=8:int", "z=8:int"],
        ["8:int", "1x3x8x8", "8:int"],
    ],
    ids=str,
)
def test_other_inputs_are_refused_with_those_the_method_takes(texts: list[str]) -> None:
    with pytest.raises(ShapeError, match=r"takes the inputs \(x: Tensor, h: int, w: int\).*like 16000:int"):
        kinds(RESIZED, *texts)
