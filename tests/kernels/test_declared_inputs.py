# SPDX-License-Identifier: Apache-2.0
"""Inputs that are not given: taken from the file, asked for by name where it leaves sizes open."""

from __future__ import annotations

import pytest

from jetdvfs.kernels.declared_inputs import DeclaredInput, OpenSizes, resolved
from jetdvfs.kernels.errors import ShapeError
from jetdvfs.kernels.inputs import parse_input
from jetdvfs.kernels.network import TensorSpec
from jetdvfs.tests.support.models import handmade
from jetdvfs.tests.support.models.handmade_onnx import declared, graph, model, node, tensor
from jetdvfs.tests.support.models.reading import read

IMAGE = DeclaredInput("x", (1, 3, 8, 8), "float16")
TOKENS = (DeclaredInput("ids", ("batch", "length"), "int64"), DeclaredInput("mask", ("batch", "length"), "bool"))


def texts(given: list[str], *declared: DeclaredInput) -> list[str]:
    return [str(spec) for spec in resolved([parse_input(text) for text in given], declared)]


def test_a_shape_that_is_declared_need_not_be_given() -> None:
    assert texts([], IMAGE) == ["1x3x8x8:float16"]
    assert texts(["1x3x8x8"], IMAGE) == ["1x3x8x8:float16"]
    assert texts(["1x3x8x8:float32"], IMAGE) == ["1x3x8x8:float32"]  # to be refused
    assert texts(["2"], DeclaredInput("a", (2,), "int64"), IMAGE) == ["2:int64", "x=1x3x8x8:float16"]
    assert texts(["x=1x3x8x8"], DeclaredInput("a", (2,), "int64"), IMAGE) == ["x=1x3x8x8:float16", "a=2:int64"]


def test_open_sizes_are_those_of_given_inputs() -> None:
    assert texts(["1x16"], *TOKENS) == ["1x16:int64", "mask=1x16:bool"]
    assert texts(["mask=1x16"], *TOKENS) == ["mask=1x16:bool", "ids=1x16:int64"]


def test_open_sizes_are_asked_for_by_name() -> None:
    with pytest.raises(OpenSizes, match=r"takes the inputs \(ids batchxlength:int64, mask batchxlength:bool\)") as asked:
        texts([], *TOKENS)
    assert [str(spec) for spec in next(asked.value.examples())] == ["ids=1x224:int64", "mask=1x224:bool"]
    exported = OpenSizes((), [DeclaredInput("x", ("s0", 3), "float32", (4, 3))], [])
    assert [str(spec) for spec in next(exported.examples())] == ["x=4x3:float32"]
    assert list(OpenSizes((), [DeclaredInput("x", None, "float32")], []).examples()) == []


def product(width: int) -> bytes:
    """A network that takes rows of one width, and leaves that open."""
    weights = [tensor("w", (width, 4), bytes(16 * width))]
    return model(graph([node("MatMul", ["x", "w"], ["y"])], [declared("x", ("b", "n"))], ["y"], weights))


def test_the_example_is_one_that_the_network_runs_on() -> None:
    with pytest.raises(ShapeError, match="for instance --input x=1x32:float32"):
        read(product(32), [])
    with pytest.raises(ShapeError, match=r"whose sizes are open$"):
        read(product(33), [])


def traced(storage: str = "FloatStorage") -> bytes:
    """A network that was traced with a pair of inputs, the second of them of integers."""
    kept = b"\x80\x02ctorch.jit._pickle\nrestore_type_tag\n}(" + handmade.text("forward") + b"]("
    kept += handmade.tensor("0", 4, 6, storage=storage) + handmade.tensor("1", 6, storage="LongStorage")
    kept += b"eu" + handmade.text("Dict[str, List[Any]]") + b"\x86R."
    code = handmade.forward("return torch.add(torch.relu(x), y)", arguments="x: Tensor,\n    y: Tensor")
    return handmade.archive(code, more={"traced_inputs.pkl": kept})


def test_a_traced_file_keeps_its_inputs() -> None:
    found = read(traced(), [])
    assert found.inputs == (TensorSpec((4, 6)), TensorSpec((6,), "int64")) and len(found.launches) == 2
    half = read(traced("HalfStorage"), [parse_input("2x3"), parse_input("3")])
    assert [launch.dtype for launch in half.launches] == ["float16", "float32"]


def test_a_scripted_file_shows_its_signature() -> None:
    code = handmade.forward("return x", arguments="x: Tensor,\n    n: int=1")
    with pytest.raises(ShapeError, match=r"forward\(\) takes the inputs \(x: Tensor, n: int\); say the shape of its inputs"):
        read(handmade.archive(code), [])


def test_an_element_type_that_was_not_given_travels_as_that() -> None:
    spec = parse_input("1x3")
    assert spec.to_json() == {"shape": [1, 3]} and not TensorSpec.from_json(spec.to_json()).typed
    assert parse_input("1x3:float32").to_json() == {"shape": [1, 3], "dtype": "float32"}
